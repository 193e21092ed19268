"""All rules, the most important first: each is one cause, its remedy, and the consequences that it explains.

`python -m tidegate.daemon.diagnosis.rules` prints the table of `docs/operations/diagnosis.md`.
"""

from __future__ import annotations

import sys
from typing import Final

from tidegate.daemon.diagnosis import bottlenecks, checkpoints, conditions
from tidegate.daemon.diagnosis.situation import Rule
from tidegate.daemon.status import DiagnosisSeverity

LATE: Final = frozenset({"lag-growing", "source-slow", "watermark-stalled", "late-rows"})
CHECKPOINTS: Final = frozenset(
    {"checkpoint-failed", "checkpoint-delayed", "checkpoint-unacknowledged", "transaction-old"}
)
STORED: Final = frozenset({"storage-failing", "storage-slow", "state-large"})
LOADED: Final = frozenset({"slot-skewed", "slot-slow", "slots-overloaded", "sink-slow"})
RESTARTS: Final = frozenset({"restart-loop", "restarted"})

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        code="gave-up",
        meaning="The daemon ends because of an error that another attempt would meet again, or of too many failures.",
        remedy="correct what the message names, then start the daemon again: it continues from the last checkpoint; a "
        "record that cannot be processed is left out with `bad_records: skip`, or kept with `dead-letter`",
        find=conditions.find_given_up,
        explains=LATE | CHECKPOINTS | STORED | LOADED | RESTARTS | {"slot-stuck", "brokers-unavailable"},
        logged=True,
    ),
    Rule(
        code="brokers-unavailable",
        meaning="No broker of a cluster has responded for at least 5 s. Records and checkpoints wait.",
        remedy="start the brokers, or check the network and `bootstrap.servers` from the daemon's machine; nothing is "
        "lost, and output has to be written again only after `checkpoints.transaction_timeout`",
        find=conditions.find_silent_brokers,
        explains=LATE | CHECKPOINTS | STORED | LOADED | RESTARTS | {"slot-stuck"},
        after_s=2.5,
        logged=True,
    ),
    Rule(
        code="restart-loop",
        meaning="Three or more attempts have failed within ten minutes, the last one at most three minutes ago.",
        remedy="correct what the message names: `GET /failures` has all failures, and the log their tracebacks. If a "
        "step in Python ends its process at the same record again and again, correct the step or filter the record",
        find=conditions.find_restart_loop,
        explains=LATE | CHECKPOINTS | STORED | LOADED | {"restarted", "slot-stuck"},
    ),
    Rule(
        code="restarted",
        meaning="An attempt has failed within the last two minutes, or the next one does not run yet.",
        remedy="no action is needed if it happened once; `GET /failures` has the full cause",
        find=conditions.find_restart,
        severity=DiagnosisSeverity.NOTICE,
        explains=LATE | CHECKPOINTS,
        logged=True,
    ),
    Rule(
        code="storage-failing",
        meaning="Checkpoints fail because the checkpoint storage refuses what is written, or cannot be reached.",
        remedy="check the space, the permissions and the reachability of `checkpoints.directory` from the daemon and "
        "from the executors (`tidegate doctor FILE`)",
        find=checkpoints.find_failing_storage,
        explains=CHECKPOINTS | {"storage-slow", "state-large"},
        after_s=3.0,
    ),
    Rule(
        code="registry-unavailable",
        meaning="Records wait for a schema, and the schema registry does not respond.",
        remedy="start the registry, or check `registry.url` from the daemon's machine; the records wait, and none is "
        "lost",
        find=conditions.find_missing_schemas,
        explains=LATE,
        after_s=3.0,
        logged=True,
    ),
    Rule(
        code="slot-stuck",
        meaning="The loop of a slot has been stuck for 10 s, usually because user code does not return.",
        remedy="give calls in Python steps a timeout, or move them into an `async` step; without user code, check the "
        "machine of the slot",
        find=bottlenecks.find_stuck_slots,
        explains=LATE | CHECKPOINTS | LOADED | STORED,
    ),
    Rule(
        code="bad-records",
        meaning=(
            "At least ten records of the last minute could not be processed. From 10 % of all records on it is a "
            "problem."
        ),
        remedy="see the dead letters or the warnings in the log, which name kind and place; correct the format, the "
        "schema or the producers, then replay the dead letters",
        find=conditions.find_bad_records,
        severity=DiagnosisSeverity.NOTICE,
        linger_s=30.0,
    ),
    Rule(
        code="slot-skewed",
        meaning="One slot is busy and the others are not, because it has more rows: a few keys or partitions have most "
        "of them.",
        remedy="aggregate before the step, add a column to its keys, or spread the records over more partitions",
        find=bottlenecks.find_skew,
        explains=LATE | CHECKPOINTS | STORED | {"sink-slow", "slots-overloaded"},
        after_s=5.0,
        linger_s=10.0,
    ),
    Rule(
        code="slot-slow",
        meaning="One slot is busy and the others are not, although all have as many rows: its machine is slower.",
        remedy="check the machine of this slot (CPU limits, other processes, steal time), or let Spark start it on "
        "another one",
        find=bottlenecks.find_slow_slot,
        explains=LATE | CHECKPOINTS | {"sink-slow", "slots-overloaded"},
        after_s=5.0,
        linger_s=10.0,
    ),
    Rule(
        code="slots-overloaded",
        meaning="All slots are busy, and records or barriers are late.",
        remedy="raise `parallelism` (a source uses at most as many slots as it has partitions), give the slots more "
        "CPU, or make the step cheaper: filter and select before it",
        find=bottlenecks.find_overload,
        explains=LATE | CHECKPOINTS | {"sink-slow"},
        after_s=5.0,
        linger_s=10.0,
    ),
    Rule(
        code="sink-slow",
        meaning="A sink takes no more rows, or takes long to write or commit its records: the brokers are slow.",
        remedy="check the load, the disks, the replicas and the quotas (`producer_byte_rate`) of the cluster, and the "
        "network to it; more partitions of the output spread the load over more brokers",
        find=bottlenecks.find_slow_sinks,
        explains=LATE | CHECKPOINTS,
        after_s=3.0,
        linger_s=10.0,
    ),
    Rule(
        code="storage-slow",
        meaning="A checkpoint takes longer than its interval and 5 s, most of it to write files of state or an entry "
        "of the journal.",
        remedy="check the latency and the throughput of the checkpoint storage, or raise `checkpoints.interval`",
        find=checkpoints.find_slow_storage,
        explains=CHECKPOINTS,
        after_s=1.0,
    ),
    Rule(
        code="state-large",
        meaning="A checkpoint takes longer than its interval and 5 s, because the state is large: the storage accepts "
        "at least 5 MiB/s from each slot, or the snapshot itself takes long.",
        remedy="let state expire sooner (shorter windows, `ttl`), raise `parallelism` or `checkpoints.interval`",
        find=checkpoints.find_large_state,
        explains=CHECKPOINTS | {"storage-slow"},
        after_s=1.0,
    ),
    Rule(
        code="checkpoint-failed",
        meaning="Checkpoints fail, and no other cause was found.",
        remedy="correct what the message names; `GET /checkpoints` has the phases of every subtask",
        find=checkpoints.find_failed,
        explains=frozenset({"checkpoint-delayed", "checkpoint-unacknowledged", "transaction-old"}),
        after_s=3.0,
    ),
    Rule(
        code="checkpoint-delayed",
        meaning="A checkpoint takes longer than its interval and 5 s, until its barriers have passed the rows before "
        "them.",
        remedy="make the busiest step cheaper (`tidegate status FILE`), or let barriers overtake rows with "
        "`checkpoints.unaligned`",
        find=checkpoints.find_waiting_barriers,
        explains=frozenset({"transaction-old"}),
        after_s=1.0,
        linger_s=5.0,
    ),
    Rule(
        code="checkpoint-unacknowledged",
        meaning="A checkpoint waits for subtasks, whose phases are not known yet: barriers, snapshot, upload or flush.",
        remedy="check the log of that slot, its machine, and its connections to the storage and to the brokers; the "
        "checkpoint fails after `checkpoints.timeout`",
        find=checkpoints.find_missing_acknowledgements,
        explains=frozenset({"transaction-old"}),
        after_s=10.0,
    ),
    Rule(
        code="transaction-old",
        meaning="The oldest open transaction has lived for 60 % of `checkpoints.transaction_timeout`. The broker "
        "aborts it at the end, and its records have to be written again.",
        remedy="let a checkpoint complete (`tidegate checkpoint FILE`), or raise `checkpoints.transaction_timeout`",
        find=conditions.find_old_transaction,
    ),
    Rule(
        code="readers-blocked",
        meaning="A transaction that nothing will end blocks readers of committed records of an output.",
        remedy="ask the owner that the message names, and run its command (`tidegate docs operations/kafka`, Blocked "
        "readers)",
        find=conditions.find_blocked_readers,
        logged=True,
    ),
    Rule(
        code="source-on-hold",
        meaning="A source has read nothing for 10 s because another input comes first or is behind.",
        remedy="no action is needed while the other input makes progress; otherwise check that input's lag and event "
        "time, and `ahead` of the step",
        find=conditions.find_holds,
        severity=DiagnosisSeverity.NOTICE,
        explains=frozenset({"lag-growing", "source-slow", "watermark-stalled"}),
        logged=True,
    ),
    Rule(
        code="source-slow",
        meaning="Records wait, and the slots wait for input: the brokers deliver too slowly.",
        remedy="check the load and the quotas (`consumer_byte_rate`) of the cluster, and the network to it; more "
        "partitions can be fetched at the same time",
        find=bottlenecks.find_slow_sources,
        explains=frozenset({"lag-growing"}),
        after_s=5.0,
        linger_s=10.0,
    ),
    Rule(
        code="watermark-stalled",
        meaning="The watermark of a source has not advanced for 30 s although rows arrive: one partition has none, has "
        "no newer event time, or is not read.",
        remedy="check the lag and the producers of this partition, or exclude it while it is silent by `watermark: "
        "{idle: caught-up}` of the source",
        find=conditions.find_stalled_watermarks,
        explains=frozenset({"late-rows"}),
        logged=True,
    ),
    Rule(
        code="lag-growing",
        meaning="Records have waited for 15 s or more during the last 30 s, and their number does not shrink.",
        remedy="find the busiest step (`tidegate status FILE`), and check the cluster",
        find=bottlenecks.find_lag,
        after_s=5.0,
        linger_s=10.0,
    ),
    Rule(
        code="late-rows",
        meaning="A step has left out at least ten late rows in the last minute, and 1 % of its rows.",
        remedy="raise `delay` under `watermark` of the source or `allowed_lateness` of the step, or send late rows to "
        "a side output",
        find=conditions.find_late_rows,
        severity=DiagnosisSeverity.NOTICE,
        linger_s=30.0,
    ),
    Rule(
        code="clock-set",
        meaning="The wall clock of the daemon's machine was set by a second or more within the last ten minutes.",
        remedy="check the time service of the machine; checkpoints, deadlines and restarts do not depend on it",
        find=conditions.find_clock_steps,
        severity=DiagnosisSeverity.NOTICE,
        logged=True,
    ),
)


def render_rules_table() -> str:
    """Renders the table of the page, one line per rule, without a newline at the end."""
    lines = ["| code | severity | meaning | remedy |", "| --- | --- | --- | --- |"]
    for rule in RULES:
        remedy = f"{rule.remedy[:1].upper()}{rule.remedy[1:]}"
        lines.append(f"| `{rule.code}` | {rule.severity} | {rule.meaning} | {remedy}. |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(render_rules_table() + "\n")
