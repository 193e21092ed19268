"""The end is asked for between two attempts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed
from tests.support.clusters import alone
from tests.waiting import PATIENCE_S
from tidegate.clock import SYSTEM_CLOCK
from tidegate.committable import Committable
from tidegate.coordinator.discovery import TopicFound
from tidegate.coordinator.history import FailureRecord, FollowedBy
from tidegate.coordinator.journal_state import EMPTY
from tidegate.coordinator.restart import RestartStrategy
from tidegate.daemon.attempt_slots import SlotError
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.restore_point import StartOptions
from tidegate.daemon.supervisor import JvmDied, ShutdownIncomplete, Supervisor
from tidegate.errors import AttemptFailed, PipelineStopped, Superseded, TidegateError
from tidegate.ids import MAIN_CLUSTER, Attempt, CheckpointId
from tidegate.journal.journal import Journal
from tidegate.process.logs import JsonFormatter, LogContext
from tidegate.sinks.hanging_transactions import ResolveReport
from tidegate.storage.base import StorageError

SETTINGS = RestartStrategy(initial_ms=60_000, max_ms=60_000, give_up_failures=20, give_up_window_ms=600_000)


class Planned(Supervisor):
    """Attempts that fail, or that are being deployed when the end is asked for."""

    def __init__(self, *, deploying: bool) -> None:
        self.looks = 0
        """For markers that Kafka has left out."""
        self.edge = SimpleNamespace(interruptions=0, resolve=self._mend, unavailable=False, explains_failures=False)
        services = SimpleNamespace(
            clock=SYSTEM_CLOCK,
            metrics=PipelineMetrics("shop", "0"),
            kafka=alone(self.edge),
            journal=SimpleNamespace(read_own=lambda: None, read=lambda: EMPTY, last_read=EMPTY),
            in_journal_thread=_at_once,
        )
        self.settings = cast("Any", SimpleNamespace(restarts=SETTINGS if not deploying else _quick()))
        host = SimpleNamespace(spark=SimpleNamespace(jvm_alive=True))
        sink = SimpleNamespace(name="out", topics=("out",), cluster=MAIN_CLUSTER)
        nothing = cast("Any", SimpleNamespace(operators=lambda _kind: [sink], pipeline="shop", exactly_once=True))
        super().__init__(
            nothing, cast("Any", services), cast("Any", host), self.settings, StartOptions(), print, lambda: 0.0
        )
        self._deploying = deploying
        self.error: TidegateError = AttemptFailed("the storage is full")
        self.number = 0

    @property
    def failures(self) -> tuple[FailureRecord, ...]:
        """What the history has of it, newest first."""
        return self._services.metrics.failures

    async def _mend(self, _pipeline: str, _topics: list[str]) -> ResolveReport:
        self.looks += 1
        return ResolveReport(frozenset())

    async def _run_attempt(self) -> None:
        self.number += 1
        if self._deploying and self.number == 2:
            self.runner = cast("Any", SimpleNamespace(is_running=False, cancel=lambda: None, running_since=None))
            self.stop()
            return
        if not self._deploying:
            asyncio.get_running_loop().call_soon(self.stop)
        raise self.error


async def _at_once(work: Callable[[], object]) -> object:
    return work()


def journal_listing(*listed: Committable) -> Journal:
    """Another daemon's, as the check before the start has read it. Its attempt has ended none of these."""
    storage = FakeStorage()
    former = Journal(storage, OTHER, retained=1, id_reserve=5)
    former.take_over(IDENTITY, 1)
    former.append_checkpoint(completed(1, committables=listed))
    journal = Journal(storage, ME, retained=1, id_reserve=5)
    journal.read()
    return journal


def planned_with(journal: object) -> Planned:
    """The end is asked for before the first recovery: while Spark is starting, say."""
    attempts = Planned(deploying=False)
    attempts._services.journal = journal  # type: ignore[misc, assignment]  # a namespace here
    return attempts


def _quick() -> RestartStrategy:
    return RestartStrategy(initial_ms=1, max_ms=1, give_up_failures=20, give_up_window_ms=600_000)


@pytest.mark.parametrize("deploying", [False, True])
def test_an_end_without_a_final_checkpoint_is_no_success(deploying: bool) -> None:
    """Exit code 6, not 0: a supervisor that asked for the end must learn that the last records are not committed."""
    attempts = Planned(deploying=deploying)
    with pytest.raises(ShutdownIncomplete, match=r"no final checkpoint.*the storage is full.*Nothing is lost"):
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    assert ShutdownIncomplete.exit_code == 6
    (failure,) = attempts.failures
    assert (failure.code, failure.cause, failure.attempt) == ("attempt-failed", "the storage is full", None)
    assert (failure.followed_by, failure.restart_after_ms) == (FollowedBy.RESTART, 0)


def test_the_log_line_of_an_attempt_that_failed_has_the_code_and_the_fields_of_the_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As the line of a daemon that ends has them: `docs/messages.md` explains codes."""
    attempts = Planned(deploying=True)
    attempts.error = SlotError("slot 1: the broker is away", code="broker-unavailable", fault="")
    with pytest.raises(ShutdownIncomplete):
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    (record,) = [record for record in caplog.records if "attempt failed" in record.getMessage()]
    line = JsonFormatter(LogContext("shop")).format(record)
    assert '"code":"slot-failed"' in line
    assert '"fields":{"code":"broker-unavailable"' in line


class OnAFullDisk(Planned):
    """Its attempts fail before they run; the fifth one runs, and is lost for another reason."""

    async def _run_attempt(self) -> None:
        self.number += 1
        if self.number == 5:
            self.on_running(Attempt(5))
            self.error = SlotError("slot 1: lost", code="slot-failed", fault="")
        if self.number == 6:
            self.stop()
            return
        raise self.error


def test_attempts_that_fail_alike_have_one_line_and_their_number(caplog: pytest.LogCaptureFixture) -> None:
    """The delay is in the line, so that no two were the same: a full disk wrote 27 of them in 45 s."""
    caplog.set_level(logging.INFO)
    attempts = OnAFullDisk(deploying=True)
    with pytest.raises(ShutdownIncomplete):
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    lines = [line for line in caplog.messages if line.startswith("attempt")]
    assert [line.partition(" after")[0].partition(" in ")[0] for line in lines] == [
        "attempt failed",
        "attempts failed 3 times more",
        "attempt 5 is running",
        "attempt failed",
    ]
    assert "the storage is full; retrying" in lines[0]
    assert lines[1].endswith(" s: the storage is full")
    assert len(attempts.failures) == 5


def test_a_new_topic_is_no_failure_that_counts_for_the_limit_of_a_crash_loop() -> None:
    attempts = Planned(deploying=True)
    attempts.settings.restarts = RestartStrategy(7, 60_000, give_up_failures=1, give_up_window_ms=600_000)
    attempts.error = TopicFound("source orders: eu is new")
    with pytest.raises(ShutdownIncomplete):
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    (failure,) = attempts.failures
    assert failure.followed_by is FollowedBy.RESTART


class InAnOutage(Planned):
    """Its first attempt is lost while no broker answers; the second one ends well."""

    def __init__(self) -> None:
        super().__init__(deploying=False)
        self.settings.restarts = RestartStrategy(1, 1, give_up_failures=1, give_up_window_ms=600_000)
        self.answering = asyncio.Event()
        self.waits = asyncio.Event()
        self.edge.wait_answering = self._wait_answering
        self.error = SlotError("slot 1: no final answer", code="broker-unavailable", fault="")

    async def _wait_answering(self) -> None:
        self.waits.set()
        await self.answering.wait()
        self.edge.unavailable = False

    async def _run_attempt(self) -> None:
        self.number += 1
        if self.number == 1:
            self.edge.unavailable = self.edge.explains_failures = True
            raise self.error
        self._verified = True


def test_an_attempt_that_is_lost_in_an_outage_counts_for_nothing_and_the_next_begins_when_brokers_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def scene() -> InAnOutage:
        attempts = InAnOutage()
        running = asyncio.create_task(attempts.run())
        await asyncio.wait_for(attempts.waits.wait(), 10)
        await asyncio.sleep(0.01)
        assert attempts.number == 1
        attempts._failed = None  # what the end of this story would complain of
        attempts.answering.set()
        await asyncio.wait_for(running, 10)
        return attempts

    attempts = asyncio.run(scene())
    assert attempts.number == 2
    assert [failure.followed_by for failure in attempts.failures] == [FollowedBy.RESTART]
    (line,) = [record.getMessage() for record in caplog.records if "attempt failed" in record.getMessage()]
    assert "slot 1: no final answer; the brokers did not answer, so it does not count for" in line
    assert line.endswith("; retrying when they answer")


def test_a_stop_is_not_kept_waiting_by_brokers() -> None:
    async def scene() -> None:
        attempts = InAnOutage()
        running = asyncio.create_task(attempts.run())
        await asyncio.wait_for(attempts.waits.wait(), 10)
        attempts.stop()
        with pytest.raises(ShutdownIncomplete, match=r"no final checkpoint \(slot 1: no final answer\)"):
            await asyncio.wait_for(running, 10)

    asyncio.run(scene())


@pytest.mark.parametrize("deploying", [False, True])
def test_an_end_before_anything_was_read_says_that_there_is_no_final_checkpoint(
    deploying: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Exit code 0: nothing is missing. But rows in flight in the last checkpoint are there still."""
    attempts = Planned(deploying=True)
    attempts.number = 1  # the next one is being deployed when the end is asked for
    if not deploying:
        attempts.stop()
    with caplog.at_level("INFO"):
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    assert "before anything was read, so there is no final checkpoint" in caplog.text
    assert attempts.looks == 1, "whoever ends well leaves no committed transaction without its marker"


def test_a_stop_before_the_first_recovery_is_incomplete_where_the_journal_lists_transactions() -> None:
    """They were left by a crash: readers are blocked, and code 0 says that there is nothing to do."""
    attempts = planned_with(journal_listing(committable(1)))
    assert attempts.unsaved, "nor after the grace, where Spark does not come up"
    attempts.stop()
    text = r"ransactions of checkpoint 1 are decided.*the next start commits them.*blocked in out"
    with pytest.raises(ShutdownIncomplete, match=text):
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    assert attempts.number == 0


@pytest.mark.parametrize("ended", [False, True])
def test_a_stop_before_the_first_recovery_is_a_success_where_nothing_is_left(ended: bool) -> None:
    """`ended`: the daemon before, which was still running, has come to its end meanwhile."""
    journal = journal_listing(*([committable(1)] if ended else []))
    if ended:
        other = Journal(journal._storage, OTHER, retained=1, id_reserve=5)
        other.take_over(IDENTITY, 2)
        other.append_ended(CheckpointId(1), 3)
    attempts = planned_with(journal)
    attempts.stop()
    asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    assert not attempts.unsaved


@pytest.mark.parametrize(("before", "code"), [((committable(1),), 6), ((), 0)])
def test_a_journal_that_cannot_be_read_does_not_hide_the_stop(
    before: tuple[Committable, ...], code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What the check before the start has read counts then."""
    known = journal_listing(*before).last_read

    def fail() -> None:
        raise StorageError("the disk is away")

    attempts = planned_with(SimpleNamespace(read=fail, last_read=known))
    attempts.stop()
    caught = 0
    try:
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    except ShutdownIncomplete as error:
        caught = error.exit_code
    assert caught == code
    assert "the journal could not be read at the stop (the disk is away)" in caplog.text


def test_a_failure_after_which_nothing_is_tried_is_kept_as_given_up() -> None:
    attempts = Planned(deploying=False)
    attempts.error = PipelineStopped("the topic is gone")
    with pytest.raises(PipelineStopped):
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    (failure,) = attempts.failures
    assert (failure.code, failure.followed_by) == ("pipeline-stopped", FollowedBy.GAVE_UP)
    assert failure.restart_after_ms is None


def test_a_failure_once_the_end_was_asked_for_is_kept_as_stopped_with_attempt_and_time() -> None:
    attempts = Planned(deploying=False)
    now = SYSTEM_CLOCK.monotonic()

    async def fail() -> None:
        attempts.runner = cast(
            "Any", SimpleNamespace(is_running=True, attempt=4, running_since=now - 5, request_final=lambda: None)
        )
        attempts.stop()
        raise attempts.error

    attempts._run_attempt = fail  # type: ignore[method-assign]  # of this one only
    with pytest.raises(ShutdownIncomplete):
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    (failure,) = attempts.failures
    assert (failure.attempt, failure.followed_by) == (4, FollowedBy.STOPPED)
    assert failure.ran_ms >= 5000


@pytest.mark.parametrize(
    ("running", "finished", "failed", "unsaved"),
    [
        (None, False, False, False),  # Spark is starting
        (False, False, False, False),  # slots are being deployed
        (True, False, False, True),
        (True, True, False, False),  # committed, slots are closing
        (None, False, True, True),  # between two attempts
        (False, True, True, True),  # given up while the next one was being deployed
        (True, True, True, False),
    ],
)
def test_an_end_that_takes_too_long_is_incomplete_only_where_something_is_not_committed(
    running: bool | None, finished: bool, failed: bool, unsaved: bool
) -> None:
    attempts = Planned(deploying=False)
    if running is not None:
        attempts.runner = cast("Any", SimpleNamespace(is_running=running, is_finished=finished))
    attempts._failed = AttemptFailed("the storage is full") if failed else None
    assert attempts.unsaved is unsaved
    assert attempts.saved is bool(running and finished)


@pytest.mark.parametrize(("error", "code"), [(Superseded("by another one"), 5), (PipelineStopped("a bad record"), 4)])
def test_a_jvm_that_is_gone_hides_no_error_that_a_new_daemon_would_meet_again(error: TidegateError, code: int) -> None:
    """Its code says: start again. A superseded daemon would take the pipeline back from the newer one."""
    attempts = Planned(deploying=False)
    attempts._host.spark.jvm_alive = False  # type: ignore[misc]  # a property elsewhere
    attempts.error = error
    with pytest.raises(type(error)) as told:
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    assert told.value.exit_code == code
    attempts = Planned(deploying=False)
    attempts._host.spark.jvm_alive = False  # type: ignore[misc]  # as above
    with pytest.raises(JvmDied):
        attempts._decide_restart(AttemptFailed("a slot was lost"), 0, 0)


def test_what_a_recovery_has_still_to_commit_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that do not answer, say, until the grace is over: code 6, and not that everything is committed."""
    attempts = Planned(deploying=False)
    attempts._settings = cast(
        "Any", SimpleNamespace(slots=SimpleNamespace(transaction_timeout_ms=1), restarts=_quick())
    )
    seen: list[bool] = []

    async def recover(*_arguments: object, **_more: object) -> None:
        seen.append(attempts.unsaved)
        raise PipelineStopped("the topic is gone")

    async def nothing_left(*_arguments: object, verified: bool) -> str:
        assert not verified
        seen.append(attempts.unsaved)
        return ""

    monkeypatch.setattr("tidegate.daemon.supervisor.recover", recover)
    monkeypatch.setattr("tidegate.daemon.supervisor.release_transactions", nothing_left)
    with pytest.raises(PipelineStopped):
        asyncio.run(Supervisor._run_attempt(attempts))
    assert seen == [True, True]
    assert not attempts.unsaved


class Recovering(Planned):
    """Recovers at once, and would start an attempt once Spark is open."""

    recovered = False
    _run_attempt = Supervisor._run_attempt

    async def _recover(self, _timeout_ms: int) -> Any:
        self.recovered = True
        return None


def test_no_attempt_begins_before_spark_is_open_and_its_error_ends_the_daemon() -> None:
    """With a local master Spark starts while the first recovery runs."""
    attempts = Recovering(deploying=True)
    attempts._settings = cast(
        "Any", SimpleNamespace(restarts=SETTINGS, slots=SimpleNamespace(transaction_timeout_ms=1))
    )
    opened = PipelineStopped("Spark could not be started")

    async def wait_open() -> None:
        assert attempts.recovered
        raise opened

    attempts._host = cast("Any", SimpleNamespace(spark=SimpleNamespace(jvm_alive=True), wait_open=wait_open))
    with pytest.raises(PipelineStopped) as ended:
        asyncio.run(asyncio.wait_for(attempts.run(), PATIENCE_S))
    assert ended.value is opened
    assert attempts.runner is None
