"""Lists what this process holds: open files, sockets, threads including those of Kafka clients, and processes it
started.

Cheap enough to run after every test: a few listings of /proc. Linux only.
"""

from __future__ import annotations

import gc
import os
import resource
import selectors
import socket
import stat
import sys
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidegate.dev.broker.server import reserved
from tidegate.spark.work_directory import OsProcess, read_processes

MARK: Final = "PYTEST_STARTED_BY"
"""The environment variable that identifies the processes of a test run after their parent has ended."""
LENT: Final = "for a peer: "
"""Prefix of the names of threads that a test's server runs for one connection, which its peer ends."""
lent_sockets: Final[weakref.WeakSet[socket.socket]] = weakref.WeakSet()
"""The sockets of such connections. A server that is not closed leaks its listening socket."""
KEPT: Final = ("pytest_timeout ", "tidegate-broker-spawner", LENT)
"""Prefixes of the names of threads that no test leaks. pytest-timeout stops its own after the test, and the thread that
starts brokers lives as long as the process.
"""
HELPER: Final[Any] = resource_tracker._resource_tracker
"""The resource tracker of multiprocessing. It starts its process with the first pool or child and keeps it, and a pipe
to it, as long as the interpreter lives.
"""
CLIENT: Final = "rdk:main"
"""The name of a thread that each librdkafka client has exactly once. The client starts and ends others as needed."""


class Descriptor(NamedTuple):
    """An open file, socket or pipe. The inode distinguishes it from an earlier one with the same number."""

    number: int
    device: int
    inode: int
    is_file: bool
    """False for a pipe or socket."""

    def describe(self) -> str:
        """Returns the ends of a socket or the path of a file."""
        with suppress(OSError), _opened(self.number) as twin:
            return f"socket {twin.getsockname()} {_read_peer(twin)}"
        return f"open file {_read_target(self.number)}"

    def read_port(self, *, listening: bool = False) -> int | None:
        """Returns the local port, or None if it is not a TCP socket, or does not listen although `listening` is set."""
        with suppress(OSError), _opened(self.number) as twin:
            if twin.family in (socket.AF_INET, socket.AF_INET6) and (not listening or _listens(twin)):
                return int(twin.getsockname()[1])
        return None


class ClientThread(NamedTuple):
    """The main thread of a librdkafka client, which Python does not know."""

    number: int

    def describe(self) -> str:
        """Returns the kind of client; nothing else is known."""
        return "Kafka client of confluent_kafka"


class Child(NamedTuple):
    """A process that this one started, or a descendant of one whose parent has ended."""

    pid: int

    def describe(self) -> str:
        """Returns the command line."""
        process = read_processes().get(self.pid)
        return f"process {self.pid}: {process.command if process and process.command else 'ended, not waited for'}"


class PythonThread(NamedTuple):
    """A thread that Python started."""

    thread: threading.Thread

    def describe(self) -> str:
        """Returns the thread's name and its current function."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        place = f", in {frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})" if frame else ""
        return f"thread {self.thread.name}{place}"


Holding = Descriptor | ClientThread | Child | PythonThread
Holdings = frozenset[Holding]
NOTHING: Final[Holdings] = frozenset()


class Observer:
    """Reads what this process holds, without reading again what cannot have changed."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self._names: dict[int, str] = {}
        self._children: frozenset[Child] = frozenset()
        self._started: object = None
        os.environ[MARK] = self._mark

    def read(self) -> Holdings:
        """Returns what is held now."""
        return NOTHING.union(_read_descriptors(), _read_threads(), self._read_client_threads(), self._read_children())

    def _read_client_threads(self) -> Iterator[ClientThread]:
        """Reads a name again as long as it may be inherited: a thread has that of its creator until it sets its own."""
        known = {number: name for number, name in self._names.items() if name != CLIENT}
        self._names = {number: known.get(number) or _read_name(number) for number in _list_numbers("task")}
        return (ClientThread(number) for number, name in self._names.items() if name == CLIENT)

    def _read_children(self) -> frozenset[Child]:
        """Reads the table of all processes only after one was started or has ended."""
        pids = _read_pids()
        started = (pids, resource.getrusage(resource.RUSAGE_CHILDREN))
        if started != self._started or any(child.pid not in pids for child in self._children):
            self._started = started
            found = find_children(read_processes(), os.getpid(), self._is_marked)
            self._children = frozenset(Child(pid) for pid in found if pid != HELPER._pid)
        return self._children

    def _is_marked(self, pid: int) -> bool:
        try:
            return f"{MARK}={self._mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to another user
            return False


def without_those_of(owners: Holdings, holdings: Holdings) -> Holdings:
    """Returns the holdings that the owners cannot have opened since.

    Owners may have opened connections to a listening socket of theirs, and descriptors that a thread of theirs selects
    from (a kafka-python client reconnects). If there is another Kafka client, they may also have opened pipes and
    sockets that Python does not know.
    """
    ports = {one.read_port(listening=True) for one in owners if isinstance(one, Descriptor) and not one.is_file} - {
        None
    }
    clients = any(isinstance(one, ClientThread) for one in owners)
    awaited = {number for one in owners if isinstance(one, PythonThread) for number in _read_awaited(one.thread)}
    known = {one.fileno() for one in gc.get_objects() if isinstance(one, socket.socket)} if clients else set()

    def is_theirs(one: Holding) -> bool:
        if not isinstance(one, Descriptor) or one.is_file:
            return False
        return one.number in awaited or one.read_port() in ports or (clients and one.number not in known)

    return frozenset(one for one in holdings if not is_theirs(one))


def find_children(table: Mapping[int, OsProcess], own: int, is_marked: Callable[[int], bool]) -> Iterator[int]:
    """Yields the children of process `own`, and the marked processes that are not below it because their parent has
    ended.
    """
    for pid, process in table.items():
        if process.parent == own or (own not in _walk_up(table, pid) and is_marked(pid)):
            yield pid


def _walk_up(table: Mapping[int, OsProcess], pid: int) -> Iterator[int]:
    """Yields the process, its parent and so on. A table that was read while processes ended may contain cycles."""
    seen: set[int] = set()
    while pid in table and pid not in seen:
        seen.add(pid)
        yield pid
        pid = table[pid].parent


def _list_numbers(kind: str) -> list[int]:
    return [int(name) for name in os.listdir(f"/proc/self/{kind}")]  # noqa: PTH208  Path takes three times as long


def _read_descriptors() -> Iterator[Descriptor]:
    excepted = {HELPER._fd, *reserved, *(one.fileno() for one in lent_sockets)}
    for number in _list_numbers("fd"):
        try:
            status = os.fstat(number)
        except OSError:  # the descriptor of the listing itself
            continue
        # An epoll or eventfd has no type. Native libraries keep theirs for good, as the broker keeps its ports.
        if stat.S_IFMT(status.st_mode) and number not in excepted:
            other = stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)
            yield Descriptor(number, status.st_dev, status.st_ino, not other)


def _read_threads() -> Iterator[PythonThread]:
    for thread in threading.enumerate():
        # A dummy represents a native thread that once called Python, and remains after that has ended.
        if not isinstance(thread, threading._DummyThread) and not thread.name.startswith(KEPT):
            yield PythonThread(thread)


def _read_awaited(thread: threading.Thread) -> Iterator[int]:
    """Yields the descriptors in selectors of the objects whose methods the thread is executing."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        owner = frame.f_locals.get("self")
        for selector in (owner, getattr(owner, "_selector", None)):
            if isinstance(selector, selectors.BaseSelector):
                # None if the selector is closed; the thread may change it concurrently
                yield from [key.fd for key in tuple((selector.get_map() or {}).values())]
        frame = frame.f_back


def _read_name(thread: int) -> str:
    try:
        return Path(f"/proc/self/task/{thread}/comm").read_text().strip()
    except OSError:  # it has ended
        return ""


def _read_pids() -> frozenset[int]:
    """Returns the children of all Python threads; those of an ended thread belong to the main thread."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return frozenset()
    found: set[int] = set()
    for thread in threading.enumerate():
        with suppress(OSError):  # it has ended
            found.update(map(int, Path(f"/proc/self/task/{thread.native_id}/children").read_text().split()))
    return frozenset(found)


def _read_target(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return "that was closed meanwhile"


@contextmanager
def _opened(number: int) -> Iterator[socket.socket]:
    """Opens a second descriptor of a socket. Raises OSError for other descriptors."""
    copy = os.dup(number)
    try:
        twin = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with twin:
        yield twin


def _listens(one: socket.socket) -> bool:
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _read_peer(connection: socket.socket) -> str:
    try:
        return f"connected to {connection.getpeername()}"
    except OSError:
        return "not connected"
