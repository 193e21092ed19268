"""The few ptrace(2) calls that a syscall tracer needs, through ctypes: x86_64 and aarch64, Linux 5.3 and newer.

Reading is the same on every architecture (PTRACE_GET_SYSCALL_INFO). Only replacing a call, shortening it and setting
its result access registers, which `_X86_64` and `_Aarch64` do.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping
from typing import Final, Protocol

import msgspec

_TRACEME: Final = 0
_POKEUSER: Final = 6
_SYSCALL: Final = 24
_SETOPTIONS: Final = 0x4200
_GETREGSET: Final = 0x4204
_SETREGSET: Final = 0x4205
_GET_SYSCALL_INFO: Final = 0x420E
_OPTIONS: Final = 0x1 | 0x2 | 0x4 | 0x8 | 0x100000
"""TRACESYSGOOD, TRACEFORK, TRACEVFORK, TRACECLONE (threads are followed), EXITKILL (no process outlives the tracer)."""
_ENTRY: Final = 1
_EXIT: Final = 2
_INFO: Final = struct.Struct("=BxxxIQQ7Q")
_NO_CALL: Final = -1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class TracingUnavailable(Exception):
    """This environment does not let a process trace its own children; the text explains what to change."""


class Stop(msgspec.Struct, frozen=True):
    """A thread that is stopped before (`entering`) or after a call."""

    entering: bool
    number: int
    """The number of the call; known only before it."""
    arguments: tuple[int, ...]


class Registers(Protocol):
    """The operations that differ between architectures."""

    calls: Mapping[int, str]
    """Maps the numbers of calls that access files to their names."""

    def skip(self, thread: int) -> None:
        """Replaces a call, before it runs, by one that does nothing."""

    def set_result(self, thread: int, value: int) -> None:
        """Sets the result of a call after it; a negative value is an error."""

    def set_argument(self, thread: int, index: int, value: int) -> None:
        """Changes an argument of a call before it runs."""


class _X86_64:  # noqa: N801  the architecture's own name
    calls: Mapping[int, str] = {
        0: "read", 1: "write", 2: "open", 17: "pread64", 18: "pwrite64", 20: "writev", 74: "fsync", 75: "fdatasync",
        76: "truncate", 77: "ftruncate", 82: "rename", 83: "mkdir", 84: "rmdir", 85: "creat", 86: "link", 87: "unlink",
        88: "symlink", 217: "getdents64", 257: "openat", 258: "mkdirat", 263: "unlinkat", 264: "renameat",
        265: "linkat", 266: "symlinkat", 277: "sync_file_range", 285: "fallocate", 296: "pwritev", 306: "syncfs",
        316: "renameat2", 328: "pwritev2",
    }  # fmt: skip
    _ARGUMENTS: Final = (14, 13, 12, 7, 9, 8)  # rdi, rsi, rdx, r10, r8, r9 in user_regs_struct

    def skip(self, thread: int) -> None:
        self._poke(thread, 15, _NO_CALL)  # orig_rax

    def set_result(self, thread: int, value: int) -> None:
        self._poke(thread, 10, value)  # rax

    def set_argument(self, thread: int, index: int, value: int) -> None:
        self._poke(thread, self._ARGUMENTS[index], value)

    @staticmethod
    def _poke(thread: int, register: int, value: int) -> None:
        _ptrace(_POKEUSER, thread, 8 * register, value % 2**64)


class _Aarch64:
    calls: Mapping[int, str] = {
        34: "mkdirat", 35: "unlinkat", 36: "symlinkat", 37: "linkat", 38: "renameat", 45: "truncate",
        46: "ftruncate", 47: "fallocate", 56: "openat", 61: "getdents64", 63: "read", 64: "write", 66: "writev",
        67: "pread64", 68: "pwrite64", 70: "pwritev", 82: "fsync", 83: "fdatasync", 84: "sync_file_range",
        267: "syncfs", 276: "renameat2", 287: "pwritev2",
    }  # fmt: skip
    _GENERAL: Final = 1  # NT_PRSTATUS: x0 is the first of 34 words, and the first argument
    _CALL_NUMBER: Final = 0x404  # NT_ARM_SYSTEM_CALL

    def skip(self, thread: int) -> None:
        self._set(thread, self._CALL_NUMBER, ctypes.create_string_buffer(struct.pack("=i", _NO_CALL), 4))

    def set_result(self, thread: int, value: int) -> None:
        self._set_general(thread, 0, value)

    def set_argument(self, thread: int, index: int, value: int) -> None:
        self._set_general(thread, index, value)

    def _set_general(self, thread: int, index: int, value: int) -> None:
        buffer = ctypes.create_string_buffer(8 * 34)
        vector = _Vector(ctypes.addressof(buffer), len(buffer))
        _ptrace(_GETREGSET, thread, self._GENERAL, ctypes.addressof(vector))
        struct.pack_into("=q", buffer, 8 * index, value)
        self._set(thread, self._GENERAL, buffer)

    @staticmethod
    def _set(thread: int, kind: int, buffer: ctypes.Array[ctypes.c_char]) -> None:
        vector = _Vector(ctypes.addressof(buffer), len(buffer))
        _ptrace(_SETREGSET, thread, kind, ctypes.addressof(vector))


class _Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def registers() -> Registers:
    """Returns the registers of this architecture. Raises TracingUnavailable."""
    machine = platform.machine()
    if machine == "x86_64":
        return _X86_64()
    if machine == "aarch64":
        return _Aarch64()
    raise TracingUnavailable(f"system calls of {machine} are not known here: x86_64 and aarch64 are; add its numbers")


def trace_me() -> None:
    """Called in the child: lets the parent trace this thread and all that it starts from now on."""
    _ptrace(_TRACEME, 0, 0, 0)


def set_options(process: int) -> None:
    """Called in the parent, once the child has stopped for the first time."""
    _ptrace(_SETOPTIONS, process, 0, _OPTIONS)


def run_to_next_call(thread: int, signal_number: int = 0) -> None:
    """Lets a stopped thread run to the next start or end of a call; does nothing if the thread is gone."""
    try:
        _ptrace(_SYSCALL, thread, 0, signal_number)
    except ProcessLookupError:
        return


def read_stop(thread: int) -> Stop | None:
    """Returns where a thread has stopped, or None if it is gone or not at a call."""
    buffer = ctypes.create_string_buffer(_INFO.size)
    try:
        _ptrace(_GET_SYSCALL_INFO, thread, _INFO.size, ctypes.addressof(buffer))
    except ProcessLookupError:
        return None
    kind, _, _, _, number, *arguments = _INFO.unpack(buffer.raw)
    if kind == _ENTRY:
        return Stop(entering=True, number=number, arguments=tuple(arguments))
    return Stop(entering=False, number=-1, arguments=()) if kind == _EXIT else None


def _ptrace(request: int, thread: int, address: int, data: int) -> None:
    ctypes.set_errno(0)
    if _libc.ptrace(request, thread, address, data) >= 0:
        return
    number = ctypes.get_errno()
    if number == errno.ESRCH:
        raise ProcessLookupError(number, os.strerror(number))
    raise TracingUnavailable(
        f"ptrace request {request:#x} failed: {os.strerror(number)}; the crash points need Linux 5.3 or newer that "
        "lets a process trace its own children (in a container: seccomp profile or capability SYS_PTRACE; "
        "kernel.yama.ptrace_scope below 3)"
    )
