"""When a checkpoint begins, when it is refused, and when it is given up."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.values import (
    ATTEMPT,
    SOURCE,
    TOTALS,
    ack,
    acknowledge_all,
    committable,
    job,
    journaled,
    of,
    only,
    running,
    settings,
)
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.events import (
    FORCED,
    ORDERED,
    PERIODIC,
    AckReceived,
    AppendCheckpoint,
    BrokersSeen,
    CheckpointFailure,
    CheckpointProperties,
    DeclineReceived,
    FailAttempt,
    NotifyAborted,
    OpenTransaction,
    SendTrigger,
    SubtaskRunning,
    Tick,
    TriggerFailed,
    TriggerRefusal,
    TriggerRefused,
    TriggerRequested,
)
from tidegate.coordinator.triggers import AttemptPhase, CheckpointPolicy, TriggerFacts, decide_refusal
from tidegate.coordinator.types import Decline
from tidegate.ids import CheckpointId


def facts(
    phase: AttemptPhase = AttemptPhase.RUNNING,
    under_way: int = 0,
    unended: int = 0,
    last_completed_ms: int | None = None,
    sources_running: bool = True,
    all_running: bool = True,
    next_id: int = 5,
) -> TriggerFacts:
    return TriggerFacts(
        phase=phase,
        under_way=under_way,
        unended=unended,
        last_completed_ms=last_completed_ms,
        sources_running=sources_running,
        all_running=all_running,
        next_id=CheckpointId(next_id),
        reserved_to=CheckpointId(9),
    )


def refusal(
    given: TriggerFacts, properties: CheckpointProperties = PERIODIC, now_ms: int = 1000, min_pause_ms: int = 500
) -> TriggerRefusal | None:
    return decide_refusal(settings(min_pause_ms=min_pause_ms), given, properties, now_ms)


def test_C01_nothing_in_the_way_means_a_checkpoint_begins() -> None:
    assert refusal(facts()) is None


@pytest.mark.parametrize("phase", [AttemptPhase.FINISHED, AttemptPhase.FAILED, AttemptPhase.ENDED])
@pytest.mark.parametrize("properties", [PERIODIC, ORDERED, FORCED])
def test_C04_refused_after_shut_down(phase: AttemptPhase, properties: CheckpointProperties) -> None:
    assert refusal(facts(phase), properties) is TriggerRefusal.SHUT_DOWN


@pytest.mark.parametrize("properties", [ORDERED, FORCED])
def test_C04_nothing_follows_a_final_checkpoint(properties: CheckpointProperties) -> None:
    assert refusal(facts(AttemptPhase.FINISHING), properties) is TriggerRefusal.SHUT_DOWN


def test_C05_periodic_triggers_are_off_during_the_final_checkpoint() -> None:
    assert refusal(facts(AttemptPhase.FINISHING)) is TriggerRefusal.PERIODIC_OFF


def test_C06_refused_when_the_limit_is_reached_unless_forced() -> None:
    assert refusal(facts(under_way=1)) is TriggerRefusal.TOO_MANY
    assert refusal(facts(under_way=1), FORCED) is None


def test_C06_decided_checkpoints_whose_commit_hangs_count_too() -> None:
    assert refusal(facts(unended=15)) is None
    assert refusal(facts(unended=16)) is TriggerRefusal.TOO_MANY


@pytest.mark.parametrize(("now_ms", "expected"), [(1499, TriggerRefusal.TOO_SOON), (1500, None)])
def test_C07_refused_until_the_pause_has_passed(now_ms: int, expected: TriggerRefusal | None) -> None:
    assert refusal(facts(last_completed_ms=1000), now_ms=now_ms) is expected
    assert refusal(facts(last_completed_ms=1000), FORCED, now_ms=now_ms) is None


def test_C08_refused_while_a_source_is_not_running() -> None:
    assert refusal(facts(sources_running=False, all_running=False)) is TriggerRefusal.SOURCE_NOT_RUNNING


def test_C09_refused_while_a_subtask_that_must_ack_is_not_running() -> None:
    assert refusal(facts(all_running=False)) is TriggerRefusal.SUBTASK_NOT_RUNNING


@pytest.mark.parametrize(("next_id", "expected"), [(9, None), (10, TriggerRefusal.NO_ID)])
def test_C10_refused_when_no_reserved_id_is_left(next_id: int, expected: TriggerRefusal | None) -> None:
    assert refusal(facts(next_id=next_id)) is expected


def test_C08_C09_requests_before_all_run_are_refused_and_register_nothing() -> None:
    coordinator = Coordinator(settings(), job())
    first = coordinator.handle(TriggerRequested(0))
    coordinator.handle(SubtaskRunning(SOURCE, 1))
    second = coordinator.handle(TriggerRequested(2))
    assert [only(out, TriggerRefused).refusal for out in (first, second)] == [
        TriggerRefusal.SOURCE_NOT_RUNNING,
        TriggerRefusal.SUBTASK_NOT_RUNNING,
    ]
    assert coordinator.under_way == ()


def test_C10_ids_grow_by_one_and_end_with_the_reserve() -> None:
    coordinator = running(settings(tolerable_failures=100, max_concurrent=3), job(first=7, reserved_to=8))
    first, second, third = (coordinator.handle(TriggerRequested(now_ms)) for now_ms in (1, 2, 3))
    assert [only(out, SendTrigger).checkpoint for out in (first, second)] == [7, 8]
    assert only(third, TriggerRefused).refusal is TriggerRefusal.NO_ID


def test_C10_a_periodic_trigger_without_an_id_waits_an_interval() -> None:
    coordinator = running(work=job(first=7, reserved_to=6))
    out = coordinator.handle(Tick(1000))
    assert only(out, TriggerRefused).refusal is TriggerRefusal.NO_ID
    assert coordinator.next_deadline_ms() == 2000


def test_C02_C11_the_pending_entry_exists_when_the_trigger_leaves() -> None:
    coordinator = running()
    out = coordinator.handle(Tick(1000))
    assert coordinator.under_way == (1,)
    assert only(out, SendTrigger).checkpoint == 1


def test_the_first_trigger_of_an_attempt_does_not_wait_for_an_interval() -> None:
    coordinator = running(msgspec.structs.replace(settings(interval_ms=1000), first_ms=200))
    assert coordinator.next_deadline_ms() == 200
    assert only(coordinator.handle(Tick(200)), SendTrigger).properties == PERIODIC
    acknowledge_all(coordinator, 1, 210)
    coordinator.handle(journaled(1, 220))
    assert coordinator.next_deadline_ms() == 1200, "an interval after the first"


def test_C37_a_trigger_names_its_attempt_and_its_moment() -> None:
    trigger = only(running().handle(Tick(1000)), SendTrigger)
    assert (trigger.attempt, trigger.timestamp_ms) == (ATTEMPT, 1000)


def test_C38_a_user_forces_a_checkpoint_before_the_interval_and_the_pause_are_over() -> None:
    coordinator = running(settings(interval_ms=1000, min_pause_ms=60_000))
    first = only(coordinator.handle(TriggerRequested(10)), SendTrigger)
    assert (first.checkpoint, first.properties) == (1, ORDERED)
    acknowledge_all(coordinator, 1, 20)
    coordinator.handle(journaled(1, 30))
    assert of(coordinator.handle(Tick(1000)), SendTrigger) == [], "the pause holds the timer back"
    assert only(coordinator.handle(TriggerRequested(1001)), SendTrigger).checkpoint == 2


def test_C38_the_limit_of_concurrent_checkpoints_holds_for_users_too() -> None:
    coordinator = running(settings(max_concurrent=2))
    coordinator.handle(Tick(1000))
    assert only(coordinator.handle(TriggerRequested(1001)), SendTrigger).checkpoint == 2
    assert coordinator.handle(TriggerRequested(1002)) == (TriggerRefused(TriggerRefusal.TOO_MANY, ORDERED),)
    assert coordinator.under_way == (1, 2)


def test_C38_the_timer_keeps_its_beat_when_a_user_asks_in_between() -> None:
    coordinator = running(settings(interval_ms=1000))
    coordinator.handle(TriggerRequested(700))
    acknowledge_all(coordinator, 1, 710)
    coordinator.handle(journaled(1, 720))
    assert coordinator.next_deadline_ms() == 1000
    assert only(coordinator.handle(Tick(1000)), SendTrigger).properties == PERIODIC


def test_C13_a_checkpoint_past_its_time_limit_is_given_up() -> None:
    coordinator = running(settings(interval_ms=1000, timeout_ms=300))
    coordinator.handle(Tick(1000))
    assert coordinator.next_deadline_ms() == 1300
    assert coordinator.handle(Tick(1299)) == ()
    gone = only(coordinator.handle(Tick(1300)), NotifyAborted)
    assert (gone.checkpoint, gone.reason) == (1, CheckpointFailure.EXPIRED)
    assert "orders[0], totals[0]" in gone.detail
    assert coordinator.under_way == ()


def test_C13_no_time_limit_applies_once_all_acks_are_in() -> None:
    coordinator = running(settings(timeout_ms=300))
    coordinator.handle(Tick(1000))
    acknowledge_all(coordinator, 1, 1001)
    assert of(coordinator.handle(Tick(5000)), NotifyAborted) == []


def test_C14_a_trigger_that_cannot_be_sent_leaves_nothing_behind() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    gone = only(coordinator.handle(TriggerFailed(CheckpointId(1), "connection lost", 1001)), NotifyAborted)
    assert (gone.reason, gone.detail) == (CheckpointFailure.TRIGGER_FAILED, "connection lost")
    assert coordinator.under_way == ()
    assert only(coordinator.handle(Tick(2000)), SendTrigger).checkpoint == 2


def test_intervals_that_pass_during_a_checkpoint_make_one_trigger_not_several() -> None:
    coordinator = running(settings(interval_ms=100))
    coordinator.handle(Tick(100))
    for now_ms in (200, 300, 450):
        assert coordinator.handle(Tick(now_ms)) == ()
    acknowledge_all(coordinator, 1, 460)
    out = coordinator.handle(journaled(1, 470))
    assert [trigger.checkpoint for trigger in of(out, SendTrigger)] == [2]
    assert of(coordinator.handle(Tick(480)), SendTrigger) == []


def test_C25_the_timer_is_looked_at_again_at_once_on_completion() -> None:
    coordinator = running(settings(interval_ms=100, min_pause_ms=40))
    coordinator.handle(Tick(100))
    acknowledge_all(coordinator, 1, 260)
    coordinator.handle(journaled(1, 270))
    assert coordinator.next_deadline_ms() == 310
    assert of(coordinator.handle(Tick(309)), SendTrigger) == []
    assert only(coordinator.handle(Tick(310)), SendTrigger).checkpoint == 2


def test_C25_a_trigger_that_has_become_due_meanwhile_leaves_with_the_completion() -> None:
    coordinator = running(settings(interval_ms=100))
    coordinator.handle(Tick(100))
    acknowledge_all(coordinator, 1, 260)
    assert only(coordinator.handle(journaled(1, 270)), SendTrigger).checkpoint == 2


@pytest.mark.parametrize(("first_ends_ms", "next_beat_ms"), [(300, 400), (550, 650)])
def test_C25_beats_that_pass_while_one_is_under_way_make_one_trigger(first_ends_ms: int, next_beat_ms: int) -> None:
    coordinator = running(settings(interval_ms=100))
    coordinator.handle(Tick(100))
    acknowledge_all(coordinator, 1, first_ends_ms)
    assert only(coordinator.handle(journaled(1, first_ends_ms)), SendTrigger).checkpoint == 2
    acknowledge_all(coordinator, 2, first_ends_ms + 10)
    assert of(coordinator.handle(journaled(2, first_ends_ms + 10)), SendTrigger) == []
    assert coordinator.next_deadline_ms() == next_beat_ms


def test_before_the_subtasks_run_there_is_no_deadline() -> None:
    assert Coordinator(settings(), job()).next_deadline_ms() is None


def test_a_subtask_that_never_had_a_transaction_sets_no_time_limit() -> None:
    coordinator = running()
    before = coordinator.next_deadline_ms()
    assert coordinator.handle(OpenTransaction(TOTALS, None, 900_000, 1)) == ()
    assert coordinator.next_deadline_ms() == before


@pytest.mark.parametrize("name", ["interval_ms", "timeout_ms", "max_concurrent", "retained"])
def test_settings_of_which_one_at_least_is_needed(name: str) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        CheckpointPolicy(**{"interval_ms": 1, "timeout_ms": 1, name: 0})


@pytest.mark.parametrize("name", ["min_pause_ms", "tolerable_failures", "transaction_margin_ms"])
def test_settings_that_cannot_be_negative(name: str) -> None:
    with pytest.raises(ValueError, match="not be negative"):
        CheckpointPolicy(**{"interval_ms": 1, "timeout_ms": 1, name: -1})


def test_the_beat_is_kept_when_a_tick_is_late() -> None:
    coordinator = running(settings(interval_ms=100, max_concurrent=9))
    assert only(coordinator.handle(Tick(130)), SendTrigger).timestamp_ms == 130
    assert coordinator.next_deadline_ms() == 200


def test_C02_several_checkpoints_may_be_under_way() -> None:
    coordinator = running(settings(interval_ms=100, max_concurrent=2))
    for now_ms in (100, 200, 300):
        coordinator.handle(Tick(now_ms))
    assert coordinator.under_way == (1, 2)


def test_failures_in_a_row_beyond_the_tolerable_end_the_attempt() -> None:
    coordinator = running(settings(tolerable_failures=1))
    failures = []
    for checkpoint, now_ms in ((1, 1000), (2, 2000)):
        coordinator.handle(Tick(now_ms))
        decline = Decline(ATTEMPT, CheckpointId(checkpoint), TOTALS, "snapshot failed")
        failures.append(of(coordinator.handle(DeclineReceived(decline, now_ms + 1)), FailAttempt))
    assert failures[0] == []
    (failed,) = failures[1]
    assert failed.cause == "checkpoint-failures"
    assert "2 checkpoints in a row" in failed.reason
    assert "totals[0]: snapshot failed" in failed.reason
    assert coordinator.phase is AttemptPhase.FAILED
    assert coordinator.next_deadline_ms() is None


def test_a_completed_checkpoint_begins_the_count_anew() -> None:
    coordinator = running(settings(tolerable_failures=1))
    for checkpoint in (1, 2, 3):
        coordinator.handle(Tick(checkpoint * 1000))
        if checkpoint == 2:
            acknowledge_all(coordinator, checkpoint, 2001)
            coordinator.handle(journaled(2, 2002))
        else:
            coordinator.handle(TriggerFailed(CheckpointId(checkpoint), "x", checkpoint * 1000 + 1))
    assert coordinator.phase is AttemptPhase.RUNNING


def test_a_decline_by_a_stranger_or_for_another_attempt_changes_nothing() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    stale = Decline(type(ATTEMPT)(2), CheckpointId(1), TOTALS, "x")
    unknown = Decline(ATTEMPT, CheckpointId(9), TOTALS, "x")
    assert coordinator.handle(DeclineReceived(stale, 1001)) == ()
    assert coordinator.handle(DeclineReceived(unknown, 1001)) == ()
    assert coordinator.under_way == (1,)


def test_a_subtask_cannot_decline_what_all_have_acknowledged() -> None:
    coordinator = running()
    coordinator.handle(Tick(1000))
    out = acknowledge_all(coordinator, 1, 1001)
    assert only(out, AppendCheckpoint).checkpoint.id == 1
    assert coordinator.handle(DeclineReceived(Decline(ATTEMPT, CheckpointId(1), TOTALS, "x"), 1002)) == ()


def test_an_undecided_transaction_near_its_time_limit_ends_the_attempt_in_time() -> None:
    coordinator = running(settings(timeout_ms=10_000_000, transaction_margin_ms=10_000))
    coordinator.handle(Tick(1000))
    coordinator.handle(AckReceived(ack(1, TOTALS, committables=[committable(1)]), 1001))
    coordinator.handle(OpenTransaction(TOTALS, age_ms=502, timeout_ms=900_000, now_ms=1002))
    assert coordinator.next_deadline_ms() == 500 + 900_000 - 10_000
    assert coordinator.handle(Tick(890_499)) == ()
    failed = only(coordinator.handle(Tick(890_500)), FailAttempt)
    assert failed.cause == "transaction-timeout"
    assert str(TOTALS) in failed.reason


def test_while_no_broker_answers_a_checkpoint_has_no_time_limit_of_its_own_and_all_of_it_afterwards() -> None:
    coordinator = running(settings(timeout_ms=60_000))
    coordinator.handle(Tick(1000))
    coordinator.handle(BrokersSeen(False, 5000))
    assert coordinator.next_deadline_ms() is None
    assert coordinator.handle(Tick(700_000)) == ()
    assert coordinator.handle(BrokersSeen(True, 800_000)) == ()
    assert coordinator.under_way == (1,)
    assert coordinator.next_deadline_ms() == 860_000
    assert coordinator.handle(BrokersSeen(True, 850_000)) == ()
    assert only(coordinator.handle(Tick(860_000)), NotifyAborted).reason is CheckpointFailure.EXPIRED


def test_an_outage_lasts_as_long_as_transactions_let_it() -> None:
    coordinator = running(settings(timeout_ms=60_000, transaction_margin_ms=10_000))
    coordinator.handle(Tick(1000))
    coordinator.handle(OpenTransaction(TOTALS, age_ms=2, timeout_ms=900_000, now_ms=1002))
    coordinator.handle(BrokersSeen(False, 5000))
    assert coordinator.next_deadline_ms() == 1000 + 890_000
    assert coordinator.handle(Tick(890_999)) == ()
    failed = only(coordinator.handle(Tick(891_000)), FailAttempt)
    assert failed.cause == "transaction-timeout"
    assert failed.reason.endswith(
        "approaches the broker's time limit and no broker answers; to wait longer for them, raise "
        "`checkpoints.transaction_timeout`"
    )


def test_X06_the_brokers_clock_is_compared_with_no_other() -> None:
    """A broker whose clock is 20 minutes slow: its stamps are not looked at."""
    coordinator = running(settings(timeout_ms=10_000_000))
    coordinator.handle(Tick(2_000_000))
    coordinator.handle(AckReceived(ack(1, SOURCE), 2_000_001))
    prepared = committable(1, opened_at_ms=2_000_000 - 1_200_000)
    out = coordinator.handle(AckReceived(ack(1, TOTALS, committables=[prepared]), 2_000_002))
    assert only(out, AppendCheckpoint).checkpoint.committables == (prepared,)


def test_a_short_time_limit_leaves_three_quarters_of_it() -> None:
    coordinator = running(settings(interval_ms=100_000, transaction_margin_ms=10_000))
    coordinator.handle(OpenTransaction(TOTALS, age_ms=1, timeout_ms=8000, now_ms=1001))
    assert coordinator.next_deadline_ms() == 7000
    coordinator.handle(OpenTransaction(TOTALS, age_ms=None, timeout_ms=8000, now_ms=1002))
    assert coordinator.next_deadline_ms() == 100_000


def test_a_checkpoint_is_not_decided_with_too_little_time_left() -> None:
    coordinator = running(settings(timeout_ms=10_000_000))
    coordinator.handle(Tick(1000))
    coordinator.handle(AckReceived(ack(1, SOURCE), 1001))
    coordinator.handle(OpenTransaction(TOTALS, age_ms=1002, timeout_ms=900_000, now_ms=1002))
    out = coordinator.handle(AckReceived(ack(1, TOTALS, committables=[committable(1)]), 895_000))
    assert of(out, AppendCheckpoint) == []
    assert only(out, FailAttempt).cause == "transaction-timeout"


@pytest.mark.parametrize(
    "wrong",
    [{"interval_ms": 0}, {"timeout_ms": 0}, {"max_concurrent": 0}, {"min_pause_ms": -1}, {"tolerable_failures": -1}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        CheckpointPolicy(**{"interval_ms": 1, "timeout_ms": 1, **wrong})
