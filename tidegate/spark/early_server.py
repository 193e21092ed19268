"""The fork server that a daemon starts before anything else, for slots on its own machine (ADR 66)."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
from collections.abc import Iterator

from tidegate.slot.fork_guard import start_server


class EarlyServer:
    """A process that only imports modules, until Spark takes it over. It ends with this process, or with `close`."""

    def __init__(self) -> None:
        self.address = f"tidegate-{secrets.token_hex(8)}"
        """The address for `fork_guard.EARLY_SERVER`."""
        self._process: subprocess.Popen[bytes] | None = None
        # Spark's workers run with both variables.
        environment = {"PYTHONHASHSEED": "0", **os.environ, "PYTHONSAFEPATH": "1"}
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as listening:  # otherwise a guard starts one
            listening.bind(f"\0{self.address}")
            listening.listen()
            self._process = start_server(listening, subprocess.DEVNULL, environment)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def early_server() -> Iterator[EarlyServer]:
    """Starts a server and ends it."""
    server = EarlyServer()
    try:
        yield server
    finally:
        server.close()
