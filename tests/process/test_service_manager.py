"""Messages to a service manager, over a real datagram socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidegate.process.logs import set_secrets
from tidegate.process.service_manager import ServiceManager, open_service_manager


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(address)
        one.settimeout(10)
        yield one


def received(one: socket.socket) -> list[str]:
    return one.recv(4096).decode().splitlines()


def opened(address: str, **more: str) -> ServiceManager:
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_PID": "1", **more}
    manager = open_service_manager(environ)
    assert manager is not None
    assert environ == {}, "no child may speak for the daemon"
    return manager


@pytest.mark.parametrize("abstract", [False, True])
def test_ready_stopping_and_the_state_are_sent_once(tmp_path: Path, abstract: bool) -> None:
    path = f"{tmp_path}/notify"
    with listening("\0" + path if abstract else path) as one:
        manager = opened("@" + path if abstract else path)
        manager.look(0.0, "starting", ready=False, stopping=False)
        assert received(one) == ["STATUS=starting"]
        manager.look(1.0, "starting", ready=False, stopping=False)
        manager.look(2.0, "running", ready=True, stopping=False)
        assert received(one) == ["READY=1", "STATUS=running"]
        manager.look(3.0, "waiting: no broker\nanswers", ready=True, stopping=False)
        assert received(one) == ["STATUS=waiting: no broker answers"]
        manager.look(4.0, "stopping", ready=False, stopping=True)
        assert received(one) == ["STOPPING=1", "STATUS=stopping"]
        manager.look(5.0, "finished", ready=False, stopping=True)
        assert received(one) == ["STATUS=finished"]


def test_the_state_has_no_secrets(tmp_path: Path) -> None:
    """`systemctl status` shows it to everybody."""
    path = f"{tmp_path}/notify"
    set_secrets(["s3cret-word"])
    try:
        with listening(path) as one:
            opened(path).look(0.0, f"restarting: {'x' * 180} s3cret-word", ready=False, stopping=False)
            assert "s3" not in received(one)[0]
    finally:
        set_secrets([])


def test_what_ends_before_it_was_seen_running_was_ready(tmp_path: Path) -> None:
    path = f"{tmp_path}/notify"
    with listening(path) as one:
        opened(path).look(0.0, "finished", ready=False, stopping=True)
        assert received(one) == ["READY=1", "STOPPING=1", "STATUS=finished"]


def test_the_watchdog_hears_three_times_in_its_time(tmp_path: Path) -> None:
    path = f"{tmp_path}/notify"
    with listening(path) as one:
        manager = opened(path, WATCHDOG_USEC="3000000")
        manager.look(0.0, "running", ready=True, stopping=False)
        assert received(one) == ["READY=1", "STATUS=running", "WATCHDOG=1"]
        manager.look(0.9, "running", ready=True, stopping=False)
        manager.look(1.0, "running", ready=True, stopping=False)
        assert received(one) == ["WATCHDOG=1"]


def test_nobody_listens_and_the_daemon_continues(tmp_path: Path) -> None:
    opened(f"{tmp_path}/gone").look(0.0, "running", ready=True, stopping=False)


@pytest.mark.parametrize("address", ["", "relative", "vsock:1:2"])
def test_without_a_socket_there_is_no_manager(address: str) -> None:
    assert open_service_manager({"NOTIFY_SOCKET": address}) is None


def test_a_reason_with_a_path_that_is_not_utf_8_is_sent_as_far_as_it_can_be(tmp_path: Path) -> None:
    """Where it could not be, the daemon showed no more signs of life."""
    path = f"{tmp_path}/notify"
    with listening(path) as one:
        opened(path).look(0.0, "failed: /tmp/\udcff is full", ready=False, stopping=False)
        assert received(one) == ["STATUS=failed: /tmp/? is full"]
