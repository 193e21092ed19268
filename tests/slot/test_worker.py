"""A slot from its deployment to its end, without its sockets."""

from __future__ import annotations

import queue
import selectors
import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from polars.exceptions import PanicException

from tests.task.fakes import ATTEMPT
from tests.task.restarts import SETTINGS
from tests.task.topologies import filter_node, plan_of, sink_node, source_node, vertex
from tidegate.ids import SlotIndex
from tidegate.slot.deployment import Deployment
from tidegate.slot.worker import SlotProcess, Waker
from tidegate.task.messages import Deploy, DriverMessage, EndTap, SlotFailed, Stop, Stopped, TapRows

PLAN = plan_of(1, [vertex(source_node("read", children=(1,)), filter_node("pass", children=(2,)), sink_node("write"))])


class Nothing:
    """Link and transport at once: keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def start(self, *_arguments: Any) -> None:
        """No thread."""

    def close(self, *_arguments: Any) -> None:
        """No sockets."""


class Failing(SlotProcess):
    """Meets this when it builds its subtasks."""

    error: BaseException

    def _forward_logs(self, level: int) -> None:
        """The logs stay here."""

    def _make_deployment(self) -> Deployment:
        raise self.error


@pytest.mark.parametrize("kind", [RuntimeError, PanicException, SystemExit])
def test_whatever_ends_a_slot_is_reported(kind: type[BaseException]) -> None:
    """Polars panics, and a module of the user's may call `sys.exit`: neither is an Exception."""
    link = Nothing()
    selector = selectors.DefaultSelector()
    deploy = Deploy(ATTEMPT, SlotIndex(0), "", PLAN, (), SETTINGS, {}, (), ())
    slot = Failing(deploy, cast("Any", link), cast("Any", Nothing()), selector, Waker(selector))
    slot.error = kind("a bug")
    slot.serve()
    selector.close()
    failed, stopped = link.sent
    assert isinstance(failed, SlotFailed)
    assert failed.message == f"{kind.__name__}: a bug"
    assert stopped == Stopped()


def test_a_slot_that_restores_for_long_is_not_taken_for_a_stuck_loop() -> None:
    """Its loop turns when the state is there: until then runtime.start_timeout is the limit, and nothing else."""
    selector = selectors.DefaultSelector()
    deploy = Deploy(ATTEMPT, SlotIndex(0), "", PLAN, (), SETTINGS, {}, (), ())
    slot = SlotProcess(deploy, cast("Any", Nothing()), cast("Any", Nothing()), selector, Waker(selector))
    slot._clock = cast("Any", SimpleNamespace(monotonic=lambda: time.monotonic() + 500))
    assert slot._heartbeat().loop_age_ms == 0
    slot._deployment = cast("Any", SimpleNamespace(loop=SimpleNamespace(turn=lambda: False)))
    slot._transport = cast("Any", SimpleNamespace(pump=lambda: False))
    slot._turn()
    slot._deployment = None
    slot._clock = cast("Any", SimpleNamespace(monotonic=lambda: time.monotonic() + 1000))
    assert slot._heartbeat().loop_age_ms >= 500_000
    selector.close()


def test_a_slot_reports_that_what_it_was_forked_from_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has been as long as a slot may be silent; after a short stop nothing is reported."""
    states = iter("S" + "T" * 9 + "S" + "T" * 10)
    monkeypatch.setattr("tidegate.slot.worker.read_state", lambda _pid: next(states))
    selector = selectors.DefaultSelector()
    settings = msgspec.structs.replace(SETTINGS, heartbeat_interval_ms=1000, lease_ms=10_000)
    deploy = Deploy(ATTEMPT, SlotIndex(0), "", PLAN, (), settings, {}, (), ())
    link = Nothing()
    slot = SlotProcess(deploy, cast("Any", link), cast("Any", Nothing()), selector, Waker(selector))
    for _ in range(20):
        slot._heartbeat()
        assert link.sent == []
    slot._heartbeat()
    selector.close()
    (failed,) = link.sent
    assert isinstance(failed, SlotFailed)
    assert (failed.code, failed.retriable) == ("fork-server-frozen", True)
    assert failed.message.endswith("has been frozen (SIGSTOP) for 10 s (runtime.heartbeat_timeout); it is replaced")


def test_a_slot_begins_and_ends_taps_as_ordered() -> None:
    link, selector, done = Nothing(), selectors.DefaultSelector(), list[DriverMessage]()
    deploy = Deploy(ATTEMPT, SlotIndex(0), "", PLAN, (), SETTINGS, {}, (), ())
    slot = SlotProcess(deploy, cast("Any", link), cast("Any", Nothing()), selector, Waker(selector))
    orders: list[DriverMessage] = [TapRows(1, (), 10, 1000), EndTap(1), Stop()]
    cast("Any", link).orders = queue.SimpleQueue()
    for order in orders:
        cast("Any", link).orders.put(order)
    slot._deployment = cast("Any", SimpleNamespace(loop=SimpleNamespace(on_tap=done.append, on_tap_end=done.append)))
    slot._take_orders()
    selector.close()
    assert done == orders[:2]
