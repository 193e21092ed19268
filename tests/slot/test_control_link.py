"""The slot's end of the control connection: without the thread that serves it nobody watches the lease."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tidegate.slot.control_link import ControlLink
from tidegate.task.messages import LENGTH, Heartbeat, Stopped
from tidegate.task.report import SlotReport

PATIENCE_S = 30.0
PIPE_BYTES = 1 << 16
"""That a pipe holds."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> queue.SimpleQueue[str]:
    """Why the process would have ended itself."""
    reasons: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(ControlLink, "_end_process", staticmethod(reasons.put))
    return reasons


@pytest.fixture
def daemon() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def serve(daemon: socket.socket, heartbeat: Callable[[], Heartbeat]) -> tuple[ControlLink, socket.socket]:
    link = ControlLink("127.0.0.1", daemon.getsockname()[1], lambda: None, PATIENCE_S)
    other, _ = daemon.accept()
    link.start(heartbeat, PATIENCE_S, PATIENCE_S)
    return link, other


def test_a_slot_whose_heartbeat_fails_ends_itself(daemon: socket.socket, ended: queue.SimpleQueue[str]) -> None:
    def broken() -> Heartbeat:
        raise RuntimeError("dictionary changed size during iteration")

    link, other = serve(daemon, broken)
    with other:
        assert ended.get(timeout=PATIENCE_S) == (
            "the control thread failed: RuntimeError: dictionary changed size during iteration"
        )
        link.close(PATIENCE_S)


def test_a_slot_that_is_sent_what_no_daemon_sends_ends_itself(
    daemon: socket.socket, ended: queue.SimpleQueue[str]
) -> None:
    link, other = serve(daemon, lambda: Heartbeat(0, SlotReport(), {}))
    with other:
        other.sendall(LENGTH.pack(3) + b"\xc1\xc1\xc1")
        assert ended.get(timeout=PATIENCE_S).startswith("the control thread failed: DecodeError: ")
        link.close(PATIENCE_S)


def test_a_link_closes_although_its_thread_has_not_come_to_what_it_was_given(
    daemon: socket.socket, ended: queue.SimpleQueue[str]
) -> None:
    """A daemon that reads nothing: the slot's own end was hidden by a `BlockingIOError`."""
    busy, goes_on = threading.Event(), threading.Event()

    def heartbeat() -> Heartbeat:
        busy.set()
        assert goes_on.wait(PATIENCE_S)
        return Heartbeat(0, SlotReport(), {})

    link, other = serve(daemon, heartbeat)
    with other:
        assert busy.wait(PATIENCE_S)
        for _ in range(PIPE_BYTES + 1):
            link.send(Stopped())
        link.close(0.0)
        goes_on.set()
    assert ended.empty()
