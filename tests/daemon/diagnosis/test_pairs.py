"""Of a cause and its consequences only the cause is shown; of two causes, both."""

from __future__ import annotations

from msgspec.structs import replace

from tests.daemon.diagnosis.timeline import BLOCKED, BUSY, CALM, ORDERS, Timeline, phase
from tests.tidy.tree import ROOT
from tidegate.coordinator.events import CheckpointFailure
from tidegate.coordinator.history import CheckpointResult
from tidegate.daemon.diagnosis.facts import SAMPLES_S, BrokerOutage, Conditions, Observation
from tidegate.daemon.diagnosis.rules import RULES
from tidegate.daemon.status import DiagnosisSeverity, PipelineState
from tidegate.ids import MAIN_CLUSTER

AWAY = Conditions(outages={MAIN_CLUSTER: BrokerOutage("no broker answers", 60.0)})


def test_an_outage_explains_everything_that_follows_from_it() -> None:
    line = Timeline().checkpoint(0.1).second(times=60)
    line.conditions = AWAY
    line.fail(code="broker-unavailable")
    line.checkpoint(None, missing=("totals[0]",), acknowledged_ms=None)
    line.second(
        [BLOCKED, BLOCKED], times=60, lag=100, lag_s=1.0, state=PipelineState.WAITING, oldest_transaction_seconds=800.0
    )
    assert line.shown == {"brokers-unavailable"}


def test_a_backlog_after_an_outage_is_no_problem() -> None:
    line = Timeline().second(times=30)
    line.conditions = AWAY
    line.second(times=300, lag=100, lag_s=1.0, state=PipelineState.WAITING)
    line.conditions = Conditions()
    line.second([BUSY, BUSY], times=100, lag=-250, lag_s=-2.5, state=PipelineState.RUNNING)
    assert line.shown == {"brokers-unavailable"}


def test_a_slow_slot_explains_the_checkpoint_the_lag_and_the_watermark() -> None:
    """The example of the design: one sentence, not five."""
    line = Timeline(transaction_timeout_s=60.0).checkpoint(0.1).second(times=30)
    line.rows[1] = 5000
    line.operators[ORDERS] = {"stalled_seconds": 45.0, "held_back_by": "in[3]"}
    line.status = replace(line.status, oldest_transaction_seconds=50.0)
    expired = f"{CheckpointFailure.EXPIRED.value} (missing)"
    line.checkpoint(30.0, result=CheckpointResult.FAILED, reason=expired, missing=("totals[1]",), acknowledged_ms=None)
    line.checkpoint(None, missing=("totals[1]",), acknowledged_ms=None)
    line.second([BLOCKED, BUSY], times=70, lag=100, lag_s=1.0)
    assert line.codes == ("slot-skewed",)
    assert "70.0 s" in line.diagnoses[0].sentence
    assert "checkpoint 3 has taken 69.0 s" in line.diagnoses[0].sentence


def test_slow_storage_explains_an_old_transaction() -> None:
    line = Timeline(transaction_timeout_s=60.0).second(times=30)
    line.status = replace(line.status, oldest_transaction_seconds=50.0)
    line.checkpoint(20.0, phase(upload_s=19.0)).checkpoint(20.0, phase(upload_s=19.0)).second(times=5)
    assert line.codes == ("storage-slow",)


def test_a_loop_explains_a_single_restart() -> None:
    line = Timeline()
    for _ in range(3):
        line.fail().second(times=5)
    assert line.codes == ("restart-loop",)


def test_independent_causes_are_shown_both() -> None:
    line = Timeline(transaction_timeout_s=3600.0)
    line.operators[ORDERS] = {"stalled_seconds": 45.0, "held_back_by": "in[3]"}
    line.checkpoint(8.1, phase(upload_s=8.0)).checkpoint(8.1, phase(upload_s=8.0)).second(times=10)
    line.recorder.clock_was_set(line.now, 5.0)
    line.second()
    assert line.codes == ("storage-slow", "watermark-stalled", "clock-set")


def test_problems_come_before_notices() -> None:
    line = Timeline().second(times=10).fail()
    line.conditions = Conditions(hanging={MAIN_CLUSTER: "readers are blocked"})
    line.second(times=3)
    assert line.codes == ("readers-blocked", "restarted")


def test_the_numbers_of_an_ended_attempt_do_not_count_for_the_next() -> None:
    line = Timeline().second([CALM, BUSY], times=25, lag=100, lag_s=1.0).fail()
    line.second([CALM, BUSY], times=25, lag=100, lag_s=1.0)
    assert line.shown == {"restarted"}


def test_a_cause_that_flickers_is_shown_without_a_break() -> None:
    line = Timeline()
    line.rows[1] = 5000
    line.second([CALM, BUSY], times=70, lag=100, lag_s=1.0)
    before = len(line.seen)
    for _ in range(10):
        line.second([CALM, CALM], times=1, lag=100, lag_s=1.0).second([CALM, BUSY], times=9, lag=100, lag_s=1.0)
    assert set(line.seen[before:]) == {("slot-skewed",)}


def test_causes_explain_codes_that_exist_and_never_each_other() -> None:
    explains = {rule.code: rule.explains for rule in RULES}
    assert len(explains) == len(RULES)
    assert {code for codes in explains.values() for code in codes} <= explains.keys()
    assert [(one, other) for one, codes in explains.items() for other in codes if one in explains[other]] == []


def test_the_alert_leaves_out_what_is_only_a_notice() -> None:
    text = (ROOT / "helm" / "tidegate" / "files" / "alerts.yaml").read_text(encoding="utf-8")
    notices = {rule.code for rule in RULES if rule.severity is DiagnosisSeverity.NOTICE}
    parts = set(text.partition('tidegate_diagnosis{code!~"')[2].partition('"')[0].split("|"))
    assert parts == notices


def test_few_snapshots_are_kept() -> None:
    line = Timeline().second(times=120)
    facts = line.recorder.record(line.now, Observation(status=line.status))
    assert len(facts.samples) in {6, 7}
    assert facts.at_s - facts.samples[0].at_s <= SAMPLES_S
