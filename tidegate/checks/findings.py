"""What was looked at, and what was found: values, and the verdict over all of them. Pure.

The list of checks is the one source of docs/doctor.md. What decides a finding is in the modules `judge_*.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

import msgspec

from tidegate.settings.base import Path


class Level(Enum):
    """How a finding is to be taken."""

    OK = "ok"
    WARNING = "warning"
    """It works, with less margin than it should have; or it could not be seen."""
    PROBLEM = "problem"
    """The pipeline does not start, stops, cannot be read, or can lose or repeat records."""


class Check(msgspec.Struct, frozen=True):
    """One thing that is looked at. The texts are those of docs/doctor.md."""

    title: str
    looks: str
    problem: str = ""
    """When it is one; empty: never."""
    warning: str = ""


class Finding(msgspec.Struct, frozen=True):
    """What a check found in one place."""

    check: str
    """Its name in CHECKS."""
    level: Level
    found: str
    """What is."""
    wanted: str = ""
    """What should be."""
    mend: str = msgspec.field(default="", name="remedy")
    """The command that mends it, or what a person has to do."""
    path: Path = ()
    """In the pipeline file, of what needs it."""
    subject: str = ""
    """The topic, or what else it is about."""
    passing: bool = False
    """A problem that may be gone without anybody: a start that it refuses is worth another one."""

    @property
    def place(self) -> str:
        """For a list of what is wrong."""
        return f"{self.check} ({self.subject})" if self.subject else self.check


CHECKS: Final[Mapping[str, Check]] = {
    "start": Check(
        "Start",
        "everything that `validate --connect` looks at: topics, journal, state, registry, port",
        "a start would be refused",
        "what `validate --connect` warns of",
    ),
    "broker-version": Check(
        "Broker version",
        "whether every broker answers the requests that Tidegate sends (Kafka 3.3 or newer)",
        "a broker lacks one",
        "brokers have different versions",
    ),
    "brokers": Check(
        "Brokers",
        "how many there are",
        "they stop answering while they are looked at",
        "one: nothing survives its disk",
    ),
    "clock": Check(
        "Clock",
        "this machine's clock against the clock of the cluster's controller",
        warning="more than 5 s apart: limits on timestamps and lag in seconds are wrong by that; or it cannot be seen",
    ),
    "transaction-timeout": Check(
        "Transaction timeout",
        "`checkpoints.transaction_timeout` against `transaction.max.timeout.ms` of the brokers",
        "the brokers allow less",
        "the brokers' limit cannot be seen",
    ),
    "id-expiration": Check(
        "Expiration of ids",
        "`transactional.id.expiration.ms` of the brokers against the longest outage",
        "shorter than what a restart without a person may take",
        "less than three days, so shorter than a weekend; or it cannot be seen",
    ),
    "copies": Check(
        "Copies",
        "replication factor of every topic, and of Kafka's own logs of transactions and positions",
        "one copy in a cluster of several brokers: lost with its disk",
        "two copies",
    ),
    "min-in-sync": Check(
        "Acknowledging copies",
        "`min.insync.replicas` of the same topics",
        "1 where there are more copies: one acknowledges what no other has; or more than there are copies: nothing "
        "can be written",
        "as many as there are copies: one broker away stops writes; or it cannot be seen",
    ),
    "unclean-election": Check(
        "Unclean election",
        "`unclean.leader.election.enable` of the same topics",
        "on: a copy that lacks acknowledged records can become the leader",
        "on, where there is one copy",
    ),
    "retention": Check(
        "Retention",
        "`retention.ms` and `retention.bytes` of inputs (they must outlive an outage) and outputs (what the broker "
        "aborted in an outage is read back from them)",
        "shorter than what a restart without a person may take",
        "less than three days, so shorter than a weekend; or limited by size; or records get old timestamps, which "
        "are deleted soon; or it cannot be seen",
    ),
    "cleanup": Check(
        "Compaction",
        "`cleanup.policy` against keys, tombstones and salvage",
        "compacted, and the sink writes records without a key",
        "the sink writes tombstones, and nothing removes what they delete; or an output is compacted before an outage "
        "may be over; or an input is compacted, so what was overwritten may not be read",
    ),
    "timestamps": Check(
        "Timestamps",
        "`message.timestamp.type`, `.before.max.ms` and `.after.max.ms` (before Kafka 4.0 `.difference.max.ms`) of "
        "outputs; the type of inputs whose event "
        "time is Kafka's",
        warning="the topic replaces the timestamps that the sink sets, or takes none that are a day old or an hour "
        "ahead; or an input stamps records on arrival",
    ),
    "record-size": Check(
        "Record size",
        "`max.message.bytes` of outputs against inputs and the client's `message.max.bytes`",
        warning="a record that can be read may be too large to be written",
    ),
    "permissions": Check(
        "Permissions",
        "every right that is needed, by a request that needs it and changes nothing",
        "one is missing that the pipeline cannot do without",
        "one is missing that only checks, lag tools or repairs need",
    ),
    "other-ids": Check(
        "Transactional ids",
        "transactional ids that begin with the pipeline's name and a dot",
        "another checkpoint directory has open transactions under this name",
        "some do not have the form of Tidegate's: another program shares the prefix, and grants for it; or they cannot "
        "be seen",
    ),
    "other-writers": Check(
        "Other writers",
        "idempotent and transactional producers that are known to the outputs and are not of this pipeline",
        warning="there are some: their records are among the output; or they cannot be seen",
    ),
    "open-transactions": Check(
        "Hanging transactions",
        "open transactions in the outputs, which stop readers of committed records",
        "one that nobody will end",
        "one of another program that is open for more than a minute, or whose owner cannot be seen; one of this "
        "pipeline whose marker is lost: a start writes it; or they cannot be seen",
    ),
    "checkpoint-directory": Check(
        "Checkpoint directory",
        "writing, reading, refusing a second writer and deleting, really tried; the kind of file system",
        "something fails; or it is in memory",
        "it is on a local disk, and executors may be on other machines",
    ),
    "disk-space": Check(
        "Disk space",
        "free space and inodes of the checkpoint directory and of the directory for temporary files",
        "less than 100 MiB or 1,000 inodes",
        "less than 1 GiB, or than three times what the directory holds now",
    ),
    "open-files": Check(
        "Open files",
        "the hard limit (RLIMIT_NOFILE) against what daemon and slots of this machine open",
        "less than that",
        "less than twice that",
    ),
    "memory": Check(
        "Memory",
        "memory that this machine or container has left against slots that run here",
        warning="less than about 150 MiB for each slot and 400 MiB for daemon and JVM",
    ),
    "cpus": Check("Processors", "processors against slots that run here", warning="more than two slots for each"),
    "executors": Check(
        "Executors",
        "with `--spark`: a session is started, its slots counted, and the checkpoint directory tried from each",
        "there are fewer than `parallelism`, they do not start, or one sees another directory",
    ),
}


def is_kept(findings: Collection[Finding]) -> bool:
    """The verdict on what the file promises, `checkpoints.mode`: nothing that was seen stands against it."""
    return not any(one.level is Level.PROBLEM for one in findings)


def render_checks_table() -> str:
    """The table of docs/doctor.md, one line per check, without a newline at the end."""
    lines = ["| check | looks at | problem | warning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{name}` | {one.looks} | {one.problem} | {one.warning} |" for name, one in CHECKS.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(render_checks_table() + "\n")
