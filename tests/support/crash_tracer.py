"""Runs a function in a process of its own and makes one of its durable system calls fail.

Durable calls change what a directory contains after a power cut or a kill: creating, writing, syncing, linking,
renaming, removing. Reads of its files can also be made to fail. Calls are counted from the moment the child calls
`begin()`, in all its threads, and only on paths below the directory.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tests.support import ptrace

_WALL: Final = 0x40000000
_SYSCALL_STOP: Final = signal.SIGTRAP | 0x80
_AT_FDCWD: Final = -100
_PATH_BYTES_MAX: Final = 4096
_O_CREAT: Final = os.O_CREAT | os.O_TRUNC
FAILED: Final = 70
"""Exit code of a child whose function raised; the traceback is in `told`."""

# name -> (index of the directory's descriptor or None, index of the path); for links and renames, of the new name
_PATHS: Final[dict[str, tuple[int | None, int]]] = {
    "open": (None, 0), "creat": (None, 0), "openat": (0, 1), "truncate": (None, 0), "mkdir": (None, 0),
    "mkdirat": (0, 1), "rmdir": (None, 0), "unlink": (None, 0), "unlinkat": (0, 1), "rename": (None, 1),
    "renameat": (2, 3), "renameat2": (2, 3), "link": (None, 1), "linkat": (2, 3), "symlink": (None, 1),
    "symlinkat": (1, 2),
}  # fmt: skip
_READS: Final = frozenset({"read", "pread64", "getdents64"})
WRITES: Final = frozenset({"write", "pwrite64", "writev", "pwritev", "pwritev2"})
GROWS: Final = WRITES | {"open", "openat", "creat", "mkdir", "mkdirat", "link", "linkat", "rename", "renameat",
                         "renameat2", "fallocate", "symlink", "symlinkat"}  # fmt: skip
"""Calls that a full disk can reject."""


class Call(msgspec.Struct, frozen=True):
    """One call on a path below the directory."""

    name: str
    path: str
    """Relative to the directory."""
    durable: bool
    """False for a read."""

    def __str__(self) -> str:
        return f"{self.name} {self.path}"


class Action(StrEnum):
    """What happens at the chosen call."""

    KILL_BEFORE = "killed before"
    KILL_AFTER = "killed after"
    KILL_HALF = "killed after half of"
    FAIL = "fails once"
    FAIL_FOR_GOOD = "fails from then on"


class Fault(msgspec.Struct, frozen=True):
    """A fault: `action` at call number `at` (from 0). `error` is the errno of actions that fail."""

    at: int
    action: Action
    error: int = 0


class Traced(msgspec.Struct):
    """The observed behaviour of a child."""

    calls: list[Call] = []
    told: str = ""
    killed: bool = False
    exit_code: int = -1
    hit: Call | None = None
    """The call at which the fault happened; None if it did not happen."""


Wanted = Callable[[Call], bool]
Observe = Callable[[Call | None, str], None]
"""Called when the child begins (None) and after every counted call, while the child
is stopped, with its output so far.
"""


def is_durable(call: Call) -> bool:
    """Returns whether a call is durable, which are the calls counted by default."""
    return call.durable


class Child:
    """The handle that the traced function receives."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def begin(self) -> None:
        """Starts counting calls; until then the child runs freely."""
        ptrace.trace_me()
        os.kill(os.getpid(), signal.SIGSTOP)

    def tell(self, line: str) -> None:
        """Sends a line to the parent. It has arrived when this returns, whatever happens next."""
        os.write(self._descriptor, f"{line}\n".encode())


def run(
    root: Path,
    work: Callable[[Child], None],
    fault: Fault | None = None,
    counted: Wanted = is_durable,
    observe: Observe | None = None,
) -> Traced:
    """Forks, runs `work`, traces it and injects the fault. Raises TracingUnavailable."""
    process, reader = _fork(work)
    os.set_blocking(reader, False)
    tracer = _Tracer(process, root.resolve(), fault, counted, reader, observe)
    try:
        tracer.follow()
        tracer.listen()
    finally:
        os.close(reader)
    if not tracer.begun:
        raise ptrace.TracingUnavailable(f"the child ended before it could be traced:\n{tracer.found.told}")
    return tracer.found


def run_free(work: Callable[[Child], None]) -> Traced:
    """Forks and runs `work` without tracing. It may kill itself and may print any amount."""
    process, reader = _fork(work)
    with os.fdopen(reader, "rb") as told:
        found = Traced(told=told.read().decode())
    _, status = os.waitpid(process, 0)
    found.killed = os.WIFSIGNALED(status)
    found.exit_code = os.waitstatus_to_exitcode(status)
    return found


def _fork(work: Callable[[Child], None]) -> tuple[int, int]:
    """Starts a child that runs `work`; returns its pid and the descriptor of its output."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.close(reader)
        _serve(work, writer)
    os.close(writer)
    return process, reader


def _serve(work: Callable[[Child], None], writer: int) -> None:
    child, code = Child(writer), 0
    try:
        work(child)
    except BaseException:  # noqa: BLE001  must not leave the fork; the parent reports it
        child.tell(traceback.format_exc())
        code = FAILED
    os._exit(code)


class _Tracer:
    def __init__(
        self,
        process: int,
        root: Path,
        fault: Fault | None,
        counted: Wanted,
        reader: int,
        observe: Observe | None,
    ) -> None:
        self.found = Traced()
        self.begun = False
        self._process = process
        self._root = root
        self._fault = fault
        self._counted = counted
        self._reader = reader
        self._observe = observe
        self._observed: dict[int, Call] = {}
        self._registers = ptrace.registers()
        self._results: dict[int, int] = {}
        self._dying: set[int] = set()

    def follow(self) -> None:
        """Traces the child until all its threads are gone."""
        _, status = os.waitpid(self._process, _WALL | os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._on_gone(status)
            return
        self.begun = True
        ptrace.set_options(self._process)
        if self._observe is not None:
            self._observe(None, "")
        ptrace.run_to_next_call(self._process)
        while True:
            thread, status = os.waitpid(-1, _WALL)
            if os.WIFSTOPPED(status):
                self._on_stop(thread, status)
            elif thread == self._process:  # the kernel reports it last, after its threads
                self._on_gone(status)
                return

    def listen(self) -> None:
        """Reads the child's output; a pipe holds more than any child prints."""
        try:
            self.found.told += os.read(self._reader, 1 << 16).decode()
        except BlockingIOError:
            return

    def _on_gone(self, status: int) -> None:
        self.found.killed = os.WIFSIGNALED(status)
        self.found.exit_code = os.waitstatus_to_exitcode(status)

    def _on_stop(self, thread: int, status: int) -> None:
        number = os.WSTOPSIG(status)
        if number == _SYSCALL_STOP:
            stop = ptrace.read_stop(thread)
            if stop is not None:
                (self._on_entry if stop.entering else self._on_exit)(thread, stop)
            ptrace.run_to_next_call(thread)
        else:  # the first stop of a new thread, and events, are not signals of the program
            ptrace.run_to_next_call(thread, 0 if number in (signal.SIGSTOP, signal.SIGTRAP) else number)

    def _on_entry(self, thread: int, stop: ptrace.Stop) -> None:
        call = self._call(thread, stop)
        if call is None or not self._counted(call):
            return
        number = len(self.found.calls)
        self.found.calls.append(call)
        if self._observe is not None:
            self._observed[thread] = call
        fault = self._fault
        if fault is None or number < fault.at or (number > fault.at and fault.action is not Action.FAIL_FOR_GOOD):
            return
        if number > fault.at and not self._may_fail(call, fault.error):
            return
        self.found.hit = self.found.hit or call
        match fault.action:
            case Action.KILL_BEFORE:
                self._registers.skip(thread)
                os.kill(self._process, signal.SIGKILL)
            case Action.KILL_AFTER:
                self._dying.add(thread)
            case Action.KILL_HALF:
                self._registers.set_argument(thread, 2, stop.arguments[2] // 2)
                self._dying.add(thread)
            case Action.FAIL | Action.FAIL_FOR_GOOD:
                self._registers.skip(thread)
                self._results[thread] = -fault.error

    @staticmethod
    def _may_fail(call: Call, error: int) -> bool:
        return error != errno.ENOSPC or call.name in GROWS  # ENOSPC: a full disk still permits removing files

    def _on_exit(self, thread: int, _stop: ptrace.Stop) -> None:
        if thread in self._dying:
            os.kill(self._process, signal.SIGKILL)
        elif thread in self._results:
            self._registers.set_result(thread, self._results.pop(thread))
        elif self._observe is not None and thread in self._observed:
            self.listen()
            self._observe(self._observed.pop(thread), self.found.told)

    def _call(self, thread: int, stop: ptrace.Stop) -> Call | None:
        name = self._registers.calls.get(stop.number)
        if name is None:
            return None
        path = self._path(thread, name, stop.arguments)
        if path is None or not path.is_relative_to(self._root):
            return None
        durable = name not in _READS
        if name in ("open", "openat"):
            flags = stop.arguments[1 if name == "open" else 2]
            durable = bool(flags & _O_CREAT)
        return Call(name, path.relative_to(self._root).as_posix(), durable)

    def _path(self, thread: int, name: str, arguments: tuple[int, ...]) -> Path | None:
        """Returns the path that the call operates on, or None for pipes, sockets and closed files."""
        if name not in _PATHS:
            return self._descriptor(thread, arguments[0])
        folder, index = _PATHS[name]
        text = Path(os.fsdecode(self._text(thread, arguments[index])))
        if text.is_absolute():
            return text
        descriptor = _AT_FDCWD if folder is None else _signed(arguments[folder])
        base = self._link(thread, "cwd") if descriptor == _AT_FDCWD else self._descriptor(thread, descriptor)
        return None if base is None else base / text

    def _descriptor(self, thread: int, number: int) -> Path | None:
        return self._link(thread, f"fd/{_signed(number)}")

    @staticmethod
    def _link(thread: int, what: str) -> Path | None:
        try:
            return Path(f"/proc/{thread}/{what}").readlink()
        except OSError:
            return None

    @staticmethod
    def _text(thread: int, address: int) -> bytes:
        with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            found = b""
            while b"\0" not in found and len(found) < _PATH_BYTES_MAX:
                found += memory.read(256 - (address + len(found)) % 256)  # never across a page
        return found.split(b"\0", 1)[0]


def _signed(value: int) -> int:
    """Converts a register to the int that the call takes."""
    low = value & 0xFFFFFFFF
    return low - 2**32 if low >= 2**31 else low
