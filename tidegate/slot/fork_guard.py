"""What an executor runs in place of `pyspark.daemon`: finds a fork server, and watches over it.

Slots are forked from a server that has imported their modules (`fork_server.py`). The daemon starts one on its own
machine before it does anything else, so that its imports are done when Spark is ready. Executors elsewhere, those of
another interpreter, and those whose server was killed do not find it: their guard starts one.

The guard hands its standard streams, which belong to Spark, to the server. It ends with the server, which Spark then
replaces, and kills a server that a signal has stopped (SIGSTOP), because Spark would wait for its answer without a
limit.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

FROZEN_S: Final = "TIDEGATE_FROZEN_S"
"""Environment variable: the seconds for which a server may be frozen, as long as a slot may be silent."""
EARLY_SERVER: Final = "TIDEGATE_FORK_SERVER"
"""Environment variable: the address of the server that the daemon has started."""
SERVER: Final = "tidegate.slot.fork_server"
POLL_S: Final = 0.5
FROZEN: Final = "T"
"""State of a process that a signal has stopped. A traced process and one that waits for a CPU have other states."""
REPORT_S: Final = 2.0
"""Seconds that the server is given beyond its limit, so that its slots can report before they are killed with it."""
IMPORT_S_MAX: Final = 60.0
"""How long the daemon's server may take until it has imported everything."""
PID: Final = struct.Struct("i")
_CREDENTIALS: Final = struct.Struct("3i")


def is_own(peer: socket.socket) -> bool:
    """Returns whether the other end belongs to this user. An address without a file is open to every user."""
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.geteuid())


def start_server(stdin: socket.socket, output: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts a server with this standard input: a socket that listens, or one that is connected. Raises OSError.

    The main thread has to call this, since the server dies with the thread that started it. `output` receives what it
    prints before Spark's streams are handed over.
    """
    return subprocess.Popen(
        [sys.executable, "-m", SERVER, str(os.getpid())],
        stdin=stdin.fileno(),
        stdout=output,
        stderr=output,
        env=environment,
        process_group=0,
    )


def hand_over(server: socket.socket) -> int:
    """Hands this process's streams, arguments and environment over; returns the server's process id.

    Raises OSError if the server is gone.
    """
    socket.send_fds(server, [b"\0"], [0, 1, 2])
    server.sendall(marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ))))  # noqa: PTH109 - quick to start
    server.shutdown(socket.SHUT_WR)
    answer = server.recv(PID.size, socket.MSG_WAITALL)
    if len(answer) < PID.size:
        raise ConnectionResetError("the fork server has ended")
    pid: int = PID.unpack(answer)[0]
    return pid


def take_over(guard: socket.socket) -> list[str]:
    """Takes over what `hand_over` sends, and answers it; returns the arguments. Raises OSError."""
    _, streams, _, _ = socket.recv_fds(guard, 1, 3)
    with guard.makefile("rb") as sent:
        arguments, directory, environment = marshal.loads(sent.read())  # noqa: S302 - from a process of this user
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    guard.sendall(PID.pack(os.getpid()))
    return list(arguments)


def reach_early_server() -> tuple[socket.socket, int] | None:
    """Hands over to the server that the daemon has started; None if there is none, or it is in use already."""
    address = os.environ.get(EARLY_SERVER)
    if not address:
        return None
    server = socket.socket(socket.AF_UNIX)
    try:
        server.settimeout(IMPORT_S_MAX)
        server.connect(f"\0{address}")
        if is_own(server):
            return server, hand_over(server)
    except OSError:
        pass  # it was used, or has ended
    server.close()
    return None


def hand_over_to_new_server() -> tuple[socket.socket, int]:
    """Starts a server and hands over to it. Raises OSError."""
    ours, theirs = socket.socketpair()
    with theirs:
        start_server(theirs, sys.stderr.fileno(), os.environ)
    return ours, hand_over(ours)


def read_state(pid: int) -> str:
    """Returns the state letter of `proc(5)`; empty if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - quick to start
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def watch(connection: socket.socket, server: int, limit_s: float) -> bool:
    """Returns when the server and its slots have ended: True if it was killed here after being frozen for too long.

    It counts how often the server was seen frozen: if the whole machine was suspended, that time does not count.
    """
    frozen_polls = 0
    while frozen_polls * POLL_S < limit_s + REPORT_S:
        if select.select([connection], [], [], POLL_S)[0]:
            return False
        frozen_polls = frozen_polls + 1 if read_state(server) == FROZEN else 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal.SIGKILL)
    return True


def main() -> None:
    """Runs the guard until the server has ended."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for others of the group
    connection, server = reach_early_server() or hand_over_to_new_server()
    limit_s = float(os.environ.get(FROZEN_S, "inf"))
    if watch(connection, server, limit_s):
        message = (
            f"process {server}, from which slots are forked, was frozen (SIGSTOP) for more than {limit_s:g} s: it is "
            "killed, and its slots with it; Spark starts another one"
        )
        print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
