"""Tests the leak check on a pytest run in which each kind of leak is planted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec
import pytest

from tests.support.holdings import CLIENT, MARK, ClientThread, Observer, find_children
from tidegate.spark.work_directory import OsProcess

CONFTEST: Final = """
import json
import pytest
from tests.support.leaks import LeakCheck

CHECK = LeakCheck()

def pytest_configure(config):
    config.pluginmanager.register(CHECK)

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    CHECK.ending_s = 60.0 if item.name.startswith("test_clean") else 0.0

def pytest_runtest_logreport(report):
    line = [report.nodeid.rpartition("::")[2], report.when, report.outcome, str(report.longrepr)]
    with open("reports", "a") as file:
        print(json.dumps(line), file=file)
"""
PLANTED: Final = r"""
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from tests.waiting import wait_until

KEPT = []
STARTED = []
accepted = []
WAITS = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture(scope="session", autouse=True)
def end_processes():
    yield
    for pid in STARTED:
        os.kill(pid, signal.SIGKILL)


def bound():
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    return made


def client():
    from tests.support import clients
    return clients.producer({"bootstrap.servers": "127.0.0.1:1"})


def waiting_thread(name):
    event = threading.Event()
    thread = threading.Thread(target=event.wait, name=name, daemon=True)
    thread.start()
    return event, thread


@pytest.fixture(scope="module")
def holds_everything():
    event, thread = waiting_thread("of the module")
    with bound(), client(), open(__file__), subprocess.Popen(WAITS, stdin=subprocess.PIPE):
        yield
    event.set()


@pytest.fixture(scope="module")
def serves():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server
        for one in accepted:
            one.close()


class Selecting(threading.Thread):
    def __init__(self):  # as kafka-python's, which opens sockets when it needs them
        super().__init__(daemon=True)
        self._selector = selectors.DefaultSelector()
        self._ends = [*socket.socketpair()]
        self._selector.register(self._ends[0], selectors.EVENT_READ)

    def run(self):
        self._selector.select()

    def connect(self):
        for end in socket.socketpair():
            self._ends.append(end)
            self._selector.register(end, selectors.EVENT_READ)

    def close(self):
        self._ends[1].send(b"x")
        self.join()
        self._selector.close()
        for end in self._ends:
            end.close()


@pytest.fixture(scope="module")
def selects():
    selecting = Selecting()
    selecting.start()
    yield selecting
    selecting.close()


@pytest.fixture(scope="session")
def made_late():
    with bound():
        yield


@pytest.fixture(scope="module")
def forgetful():
    KEPT.append(bound())
    yield


@pytest.fixture
def ends_later():
    event, thread = waiting_thread("ends later")
    yield
    event.set()


def test_clean_nothing(): pass
def test_clean_first_that_asks(holds_everything): pass
def test_clean_second_that_asks(holds_everything): pass
def test_clean_asks_in_the_middle(request): request.getfixturevalue("made_late")

def test_clean_connection_to_what_a_fixture_serves(serves):
    with socket.create_connection(serves.getsockname()):
        accepted.append(serves.accept()[0])

def test_clean_thread_of_a_fixture_opens_another_socket(selects): selects.connect()
def test_clean_ends_later(ends_later): pass
def test_clean_client_without_references(): client()
def test_clean_helper_of_multiprocessing(): resource_tracker.ensure_running()

def test_socket_in_a_cycle():
    circle = [bound()]
    circle.append(circle)

def test_socket(): KEPT.append(bound())
def test_clean_after_a_leak(): pass

def test_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        KEPT.append(socket.create_connection(server.getsockname()))
        server.accept()[0].close()

def test_file(tmp_path): KEPT.append(open(tmp_path / "kept", "w"))
def test_thread(): waiting_thread("forgotten")
def test_socket_next_to_the_thread(selects): KEPT.append(bound())
def test_client(): KEPT.append(client())

def test_process():
    KEPT.append(subprocess.Popen([*WAITS, "forgotten"], stdin=subprocess.PIPE))
    STARTED.append(KEPT[-1].pid)

def test_process_that_ended():
    with open(os.devnull) as nothing:
        KEPT.append(subprocess.Popen(["true"], stdin=nothing))
    os.waitid(os.P_PID, KEPT[-1].pid, os.WEXITED | os.WNOWAIT)

def test_orphan():
    script = "sleep 600 >/dev/null & echo $!"
    STARTED.append(int(subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=True).stdout))
    command = Path(f"/proc/{STARTED[-1]}/comm")  # while the process becomes `sleep`, its environment cannot be read
    wait_until(lambda: command.read_text() == "sleep\n", "the process sleeps")

def test_log(): os.write(2, b"%3|1.5|FAIL|rdkafka#producer-1| [thrd:a]: a: Connection refused\n")

def test_fails():
    left = bound()
    assert left is None

def test_clean_after_a_failure(): pass
def test_last(forgetful): pass
"""
LEFT: Final = {
    "test_socket": r"test_socket leaks:\n  socket \('127\.0\.0\.1', \d+\) not connected",
    "test_connection": r"socket \('127\.0\.0\.1', \d+\) connected to \('127\.0\.0\.1', \d+\)",
    "test_socket_in_a_cycle": r"unclosed <socket\.socket .*'127\.0\.0\.1'",
    "test_socket_next_to_the_thread": r"socket \('127\.0\.0\.1', \d+\) not connected",
    "test_file": r"open file /.*/kept",
    "test_thread": r"thread forgotten, in Condition\.wait",
    "test_client": r"Kafka client of confluent_kafka",
    "test_process": r"process \d+: .*python.* forgotten",
    "test_process_that_ended": r"process \d+: ended, not waited for",
    "test_orphan": r"process \d+: sleep 600",
    "test_log": r"a Kafka client wrote its log to the output:\n%3\|1\.5\|FAIL\|",
    "test_last": r"fixture forgetful \(module\) leaks:\n  socket",
}


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """Returns the failures of the planted run, by test and phase."""
    place = tmp_path_factory.mktemp("planted")
    (place / "conftest.py").write_text(CONFTEST)
    (place / "test_planted.py").write_text(PLANTED)
    (place / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTEST_ADDOPTS": ""}
    ran = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    lines = (place / "reports").read_text().splitlines()
    reports = [msgspec.json.decode(line, type=tuple[str, str, str, str]) for line in lines]
    return {(test, when): text for test, when, outcome, text in reports if outcome == "failed"}


@pytest.mark.slow
@pytest.mark.parametrize("test", LEFT)
def test_the_test_that_leaks_fails_and_names_what_it_left(test: str, failures: dict[tuple[str, str], str]) -> None:
    assert re.search(LEFT[test], failures[test, "teardown"])


@pytest.mark.slow
def test_no_other_test_fails(failures: dict[tuple[str, str], str]) -> None:
    assert failures.keys() == {*((test, "teardown") for test in LEFT), ("test_fails", "call")}


def test_a_thread_that_a_client_has_just_created_is_no_client_once_it_has_set_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then it has the name of the client's main thread, which created it."""
    monkeypatch.setenv(MARK, os.environ[MARK])
    observer, ended = Observer(), threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        name = Path(f"/proc/self/task/{thread.native_id}/comm")
        name.write_text(CLIENT)
        assert ClientThread(thread.native_id or 0) in observer.read()
        name.write_text("rdk:broker1")
        assert ClientThread(thread.native_id or 0) not in observer.read()
    finally:
        ended.set()
        thread.join()


def test_children_are_those_of_this_process_and_what_it_started_whose_parent_has_ended() -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1, 21: 20, 30: 1, 40: 41, 41: 40}
    table = {pid: OsProcess(pid, parent, "S", "") for pid, parent in parents.items()}
    assert list(find_children(table, 10, {11, 12, 20}.__contains__)) == [11, 20]
