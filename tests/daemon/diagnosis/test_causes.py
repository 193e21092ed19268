"""Each cause is named, with its place and its numbers, within a minute; and it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tests.daemon.diagnosis.timeline import BLOCKED, BUSY, CALM, ORDERS, OUT, TOTALS, Timeline, phase
from tidegate.coordinator.events import CheckpointFailure
from tidegate.coordinator.history import CheckpointResult, SubtaskPhases
from tidegate.daemon.diagnosis.facts import BrokerOutage, Conditions
from tidegate.daemon.diagnosis.rules import RULES
from tidegate.daemon.slot_metrics import LoopAge
from tidegate.daemon.status import Diagnosis, DiagnosisSeverity, PipelineState
from tidegate.ids import MAIN_CLUSTER, ClusterName, ProducerId, TopicPartition, TransactionalId
from tidegate.kafka.facts import OpenBrokerTransaction
from tidegate.sinks.hanging_transactions import HangingTransaction, HangingVerdict, UnresolvedTransaction, tell_left

LATE: Final[dict[str, Any]] = {"lag": 100, "lag_s": 1.0}


def only(line: Timeline, code: str) -> Diagnosis:
    """The one thing that is shown."""
    assert line.codes == (code,)
    return line.diagnoses[0]


def test_brokers_unavailable() -> None:
    line = Timeline().second(times=10)
    why = "no broker answers at kafka:9092: connection refused"
    for seconds in range(1, 30):
        line.conditions = Conditions(outages={MAIN_CLUSTER: BrokerOutage(why, float(seconds))})
        line.second(state=PipelineState.WAITING, reason=why, oldest_transaction_seconds=3.0)
    found = only(line, "brokers-unavailable")
    assert (found.sentence, found.cluster) == (f"{why} (for 29.0 s)", MAIN_CLUSTER)
    assert found.evidence["unavailable_seconds"] == 29.0
    line.conditions = Conditions()
    line.second(state=PipelineState.RUNNING)
    assert line.codes == ()


def test_two_clusters_away() -> None:
    line = Timeline()
    two = {MAIN_CLUSTER: BrokerOutage("a", 9.0), ClusterName("dr"): BrokerOutage("b", 8.0)}
    line.conditions = Conditions(outages=two)
    line.second(times=5, state=PipelineState.WAITING)
    assert [one.cluster for one in line.diagnoses] == list(two)


def test_one_killed_slot() -> None:
    cause = "slot 1 (process 12 on a): killed by signal 9"
    line = Timeline().second(times=30).fail(cause=cause).second(times=3)
    found = only(line, "restarted")
    assert found.severity is DiagnosisSeverity.NOTICE
    assert found.sentence == "attempt 1 failed 4.0 s ago, attempt 2 runs: slot 1 (process 12 on a): killed by signal 9"
    line.second(times=120)
    assert line.codes == ()


def test_an_attempt_that_does_not_come_back_stays_named() -> None:
    line = Timeline().second(times=30).fail()
    line.second(times=600, state=PipelineState.RESTARTING)
    assert "the next one is not running yet" in only(line, "restarted").sentence


def test_a_restart_loop() -> None:
    line = Timeline()
    for _ in range(4):
        line.fail(cause="slot 0 was lost; at its last heartbeat it ran the code of score").second(times=20)
    found = only(line, "restart-loop")
    assert found.sentence.startswith("4 attempts have failed in 87.0 s, all with the same error, `slot-lost`: slot 0")
    assert found.evidence["same_error"] == 4
    line.second(times=181)
    assert line.codes == ()


def test_a_daemon_that_gives_up_at_a_record() -> None:
    line = Timeline().second(times=30)
    line.second(state=PipelineState.FAILED, reason="in[2] offset 17: MALFORMED_JSON: not JSON\nmore")
    assert only(line, "gave-up").sentence == "the daemon has given up: in[2] offset 17: MALFORMED_JSON: not JSON"


def test_registry_away() -> None:
    line = Timeline()
    text = "records wait for a schema: http://registry does not answer"
    line.conditions = Conditions(schemas=text, schemas_waiting=2)
    line.second(times=60, state=PipelineState.DEGRADED, reason=text, **LATE)
    assert only(line, "registry-unavailable").sentence == text


def test_blocked_readers() -> None:
    line = Timeline()
    opened = OpenBrokerTransaction(TopicPartition("out", 0), ProducerId(7, 1), 3, -1)
    one = HangingTransaction(opened, HangingVerdict.FOREIGN, TransactionalId("other"), 1)
    text = tell_left(UnresolvedTransaction(one, "it is not ours"), "kafka:9092")
    line.conditions = Conditions(hanging={MAIN_CLUSTER: text, ClusterName("dr"): ""})
    line.second(times=5, state=PipelineState.DEGRADED)
    found = only(line, "readers-blocked")
    assert found.cluster == MAIN_CLUSTER
    assert found.sentence.endswith("its coordinator does not list it as open")
    assert found.remedy.startswith("Ask its owner")


def test_a_stuck_slot() -> None:
    line = Timeline().checkpoint(0.1).second(times=30)
    line.checkpoint(None, missing=("orders[1]", "totals[1]"), acknowledged_ms=None)
    for age in range(40):
        line.conditions = Conditions(loops={0: LoopAge(0.1, "score"), 1: LoopAge(float(age), "score (score.py:14)")})
        line.second([CALM, (0.0, 0.0, 0.0)], lag=50)
        assert set(line.codes) <= {"slot-stuck"}
    found = only(line, "slot-stuck")
    assert "stuck for 39.0 s: the code of score (score.py:14) does not return; checkpoint 2 has" in found.sentence
    assert found.slot == 1
    assert found.evidence["missing"] == "orders[1], totals[1]"


@pytest.mark.parametrize("slots", [2, 8, 100])
def test_a_skewed_key(slots: int) -> None:
    line = Timeline(slots)
    line.rows[1] = 100 * slots * 9
    line.second([CALM, BUSY, *[BLOCKED] * (slots - 2)], times=70, **LATE)
    found = only(line, "slot-skewed")
    assert (found.step, found.slot) == (TOTALS, 1)
    assert "one key, or a few" in found.remedy
    assert found.evidence["lag_records"] == 7000
    assert found.evidence["busy_ratio"] == 0.97


def test_the_step_in_a_vertex_with_a_source_has_skewed_partitions() -> None:
    line = Timeline()
    line.rows[1] = 5000
    line.second([CALM, BUSY], times=70, **LATE)
    plan_of_one_vertex = {"orders": "orders", "totals": "orders", "out": "orders"}
    line.recorder._plan = replace(line.recorder._plan, vertices=plan_of_one_vertex)
    line.second([CALM, BUSY], **LATE)
    assert "partitions" in only(line, "slot-skewed").remedy


def test_a_slow_machine() -> None:
    line = Timeline().second([CALM, BUSY], times=70, **LATE)
    assert only(line, "slot-slow").slot == 1


@pytest.mark.parametrize("slots", [1, 4])
def test_all_slots_are_busy(slots: int) -> None:
    line = Timeline(slots).second([BUSY] * slots, times=70, **LATE)
    found = only(line, "slots-overloaded")
    assert found.step == TOTALS
    assert ("the slot is" if slots == 1 else "all 4 slots are") in found.sentence
    assert "7,000 records wait, the oldest for 70.0 s" in found.sentence


def test_a_full_sink() -> None:
    line = Timeline().second([BLOCKED, BLOCKED], times=70, **LATE)
    found = only(line, "sink-slow")
    assert (found.step, found.cluster) == (OUT, MAIN_CLUSTER)


def test_brokers_that_deliver_slowly() -> None:
    line = Timeline().second(times=70, **LATE)
    assert only(line, "source-slow").evidence["idle_ratio"] == 0.9


def test_a_lag_without_a_bottleneck() -> None:
    half = (0.55, 0.05, 0.4)
    line = Timeline().second([half, half], times=70, **LATE)
    assert only(line, "lag-growing").evidence["lag_records"] == 7000
    line.second([half, half], times=40, lag=-170, lag_s=-1.7)
    assert line.codes == ()


@pytest.mark.parametrize(
    ("code", "phases", "word"),
    [
        (
            "storage-slow",
            phase(upload_s=8.0),
            "storage is slow: writing 1000 B of state took 8.0 s of the 8.1 s of",
        ),
        ("state-large", phase(upload_s=8.0, written_bytes=1 << 30), "the state is large: writing 1.0 GiB took"),
        (
            "state-large",
            phase(snapshot_s=8.0, written_bytes=1 << 30),
            "state is large: the snapshot of 1.0 GiB took",
        ),
        ("sink-slow", phase(prepare_s=8.0), "the brokers are slow: writing the records of the sinks"),
        ("checkpoint-delayed", phase(delay_s=8.0), "barriers wait behind rows"),
    ],
)
def test_a_slow_phase_of_checkpoints(code: str, phases: SubtaskPhases, word: str) -> None:
    line = Timeline().second(times=30)
    for _ in range(3):
        line.checkpoint(8.1, phases, phase(slot=1)).second(times=8)
    found = only(line, code)
    assert word in found.sentence
    assert "totals[0]" in found.sentence
    assert found.slot == 0
    line.checkpoint(None, missing=("totals[0]",), acknowledged_ms=None).second(times=20)
    assert set(line.codes) == {code}, "the one in progress does not tell yet, the last one has"
    line.checkpoints.pop(0)
    line.checkpoint(0.1).second(times=12)
    assert line.codes == ()


@pytest.mark.parametrize(("journal_ms", "code"), [(8000, "storage-slow"), (10, "sink-slow")])
def test_a_slow_end_of_checkpoints(journal_ms: int, code: str) -> None:
    line = Timeline().second(times=30)
    for _ in range(2):
        line.checkpoint(8.1, acknowledged_ms=50, journal_ms=journal_ms, commit_ms=8050 - journal_ms).second(times=8)
    only(line, code)


def test_a_missing_acknowledgement() -> None:
    line = Timeline().second(times=30).checkpoint(None, missing=("totals[1]",), acknowledged_ms=None).second(times=20)
    assert line.codes == (), "once it has ended, its phases tell more"
    line.second(times=10)
    found = only(line, "checkpoint-unacknowledged")
    assert found.sentence == "totals[1] has not acknowledged checkpoint 1, which has taken 29.0 s"
    assert found.slot == 1


def test_a_journal_that_is_not_answered() -> None:
    line = Timeline().second(times=30).checkpoint(None, acknowledged_ms=40).second(times=20)
    assert "writing the entry of the journal took" in only(line, "storage-slow").sentence


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (f"{CheckpointFailure.JOURNAL_FAILED.value} (No space left on device)", "storage-failing"),
        (
            f"{CheckpointFailure.DECLINED.value} (totals[1]: declined: the snapshot failed: [Errno 28])",
            "storage-failing",
        ),
        (f"{CheckpointFailure.TRIGGER_FAILED.value} (slot 1)", "checkpoint-failed"),
    ],
)
def test_failing_checkpoints(reason: str, code: str) -> None:
    line = Timeline().checkpoint(0.1).second(times=30)
    for _ in range(3):
        line.checkpoint(0.2, result=CheckpointResult.FAILED, reason=reason).second(times=2)
    found = only(line, code)
    assert reason in found.sentence
    assert found.evidence["failed_in_a_row"] == 3
    line.checkpoint(0.1).second()
    assert line.codes == ()


def test_an_old_transaction() -> None:
    line = Timeline(transaction_timeout_s=60.0).second(times=5)
    line.second(oldest_transaction_seconds=40.0)
    assert only(line, "transaction-old").evidence["transaction_timeout_seconds"] == 60.0


def test_a_source_on_hold() -> None:
    line = Timeline()
    line.operators[ORDERS] = {"on_hold": "until `rates` of `priced` has caught up", "on_hold_seconds": 41.0}
    line.second(times=60, **LATE)
    found = only(line, "source-on-hold")
    assert found.sentence == "source orders has been on hold for 41.0 s, until `rates` of `priced` has caught up"
    assert (found.severity, found.step) == (DiagnosisSeverity.NOTICE, ORDERS)


def test_a_silent_partition() -> None:
    line = Timeline()
    line.operators[ORDERS] = {"stalled_seconds": 45.0, "held_back_by": "in[3]", "event_time_lag_seconds": 50.0}
    line.second(times=3)
    found = only(line, "watermark-stalled")
    assert "in[3]" in found.sentence
    assert found.step == ORDERS


@pytest.mark.parametrize(("bad", "severity"), [(1, DiagnosisSeverity.NOTICE), (100, DiagnosisSeverity.PROBLEM)])
def test_bad_records(bad: int, severity: DiagnosisSeverity) -> None:
    line = Timeline()
    line.conditions = Conditions(bad_kinds={TOTALS: {"CAST_OVERFLOW": 3, "WRONG_TYPE": 5}})
    for number in range(70):
        line.operators[TOTALS] = {"failed": bad * number}
        line.second(bad_records=bad * number, dead_letters=bad * number)
    found = only(line, "bad-records")
    assert (found.severity, found.step) == (severity, TOTALS)
    assert "most of them in step totals, WRONG_TYPE)" in found.sentence
    assert "became dead letters" in found.sentence
    early = line.seen.index(("bad-records",))
    assert early <= 20, "not only after a minute"
    line.second(times=120)
    assert line.codes == ()


def test_bad_records_that_are_left_out_cannot_be_replayed() -> None:
    line = Timeline()
    for number in range(70):
        line.operators[ORDERS] = {"failed": number}
        line.second(bad_records=number)
    found = only(line, "bad-records")
    assert found.sentence.endswith("): they were left out")
    assert found.remedy.endswith("; `bad_records: dead-letter` of the source keeps such records for a replay")


def test_late_rows() -> None:
    line = Timeline()
    for number in range(70):
        line.operators[TOTALS] = {"late": 10 * number}
        line.second()
    assert only(line, "late-rows").step == TOTALS


def test_a_clock_that_was_set() -> None:
    line = Timeline().second(times=5)
    line.recorder.clock_was_set(line.now, -3600.0)
    line.second()
    assert "set back by 1h, " in only(line, "clock-set").sentence
    line.second(times=600)
    assert line.codes == ()


def test_every_rule_is_found_by_a_test() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [rule.code for rule in RULES if f'"{rule.code}"' not in source] == []


def test_one_very_slow_checkpoint_is_named_without_a_second_one() -> None:
    line = Timeline().second(times=30).checkpoint(18.8, phase(prepare_s=18.0)).second(times=4)
    only(line, "sink-slow")
    line.checkpoint(0.1).second(times=12)
    assert line.codes == ()


def test_records_that_are_all_bad_come_before_the_load_that_they_are() -> None:
    line = Timeline()
    for number in range(70):
        line.second([BUSY, BUSY], bad_records=200 * number, dead_letters=200 * number, **LATE)
    assert line.codes == ("bad-records", "slots-overloaded")
    assert "(100.0%, most of them in step" in line.diagnoses[0].sentence
