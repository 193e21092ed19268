"""The demo's daemon: `tidegate run` as a user would start it, in its own process, watched through `/status`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tidegate.config.load import VARIABLE as SITE_VARIABLE
from tidegate.daemon.status import PipelineState, Status
from tidegate.errors import TidegateError
from tidegate.spark.work_directory import find_slots, is_alive

POLL_S: Final = 0.05
HTTP_TIMEOUT_S: Final = 5.0
LOG_TAIL_CHARACTERS: Final = 3000
_DIRECT: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Bypasses proxies, which cannot reach this machine's own addresses."""
_ADDRESS: Final = re.compile(r"metrics and probes on (http://[^\s\"]+)")


class DemoFailed(TidegateError):
    """A part of the demo failed, or a result was not as required."""

    code = "demo-failed"
    exit_code = 1


class DemoDaemon:
    """One run of the pipeline file. `watch` is called with every status received while waiting."""

    def __init__(self, file: Path, environ: Mapping[str, str], log: Path, watch: Callable[[Status], None]) -> None:
        self._command = [sys.executable, "-m", "tidegate", "run", str(file)]
        own = {name: value for name, value in os.environ.items() if name != SITE_VARIABLE}
        self._environ = {**own, **environ}  # the demo uses its own broker, or that of KAFKA_BOOTSTRAP
        self._log = log
        self._watch = watch
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process in its own session.

        Ctrl-C in the terminal is for the demo, which stops the daemon cleanly.
        """
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._environ,
                start_new_session=True,
            )  # fmt: skip

    def status(self) -> Status | None:
        """Returns `/status`, or None while nothing listens."""
        address = _ADDRESS.search(self._log.read_text(encoding="utf-8", errors="replace"))
        if address is None:
            return None
        try:
            with _DIRECT.open(f"{address[1]}/status", timeout=HTTP_TIMEOUT_S) as answer:
                return msgspec.json.decode(answer.read(), type=Status)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return None

    def wait_for(self, condition: Callable[[Status], bool], what: str, timeout_s: float) -> Status:
        """Waits until the status meets the condition.

        Raises DemoFailed if the daemon ends first, or after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None:
                self._watch(status)
                if condition(status):
                    return status
            if self._running.poll() is not None:
                raise DemoFailed(f"the daemon ended before {what}:\n{self.tail()}")
            time.sleep(POLL_S)
        raise DemoFailed(f"{what} took more than {timeout_s:.0f} s; the daemon's log ends with:\n{self.tail()}")

    def kill_slot(self) -> int:
        """Kills one slot process with SIGKILL and returns its pid.

        Raises DemoFailed unless it was alive before and gone afterwards.
        """
        slots = find_slots(self._running.pid)
        if not slots:
            raise DemoFailed("there is no slot process below the daemon to kill")
        victim = slots[0]
        os.kill(victim, signal.SIGKILL)
        deadline = time.monotonic() + HTTP_TIMEOUT_S
        while is_alive(victim):
            if time.monotonic() > deadline:
                raise DemoFailed(f"slot process {victim} survived SIGKILL")
            time.sleep(POLL_S / 10)
        return victim

    def recover(self, before: Status, killed_at: float, timeout_s: float) -> float:
        """Returns the seconds from the kill to the first completed checkpoint of the next attempt.

        `killed_at` is from time.time().
        """
        attempt = self.wait_for(lambda now: now.attempt > before.attempt, "a new attempt after the kill", timeout_s)
        last = attempt.last_checkpoint.id if attempt.last_checkpoint is not None else 0

        def completed(now: Status) -> bool:
            checkpoint = now.last_checkpoint
            return now.state is PipelineState.RUNNING and checkpoint is not None and checkpoint.id > last

        status = self.wait_for(completed, "a checkpoint of the new attempt", timeout_s)
        assert status.last_checkpoint is not None
        if status.restarts <= before.restarts:
            raise DemoFailed("the daemon did not count the restart: the kill had no effect")
        return time.time() - status.last_checkpoint.age_seconds - killed_at

    def terminate(self, timeout_s: float) -> int:
        """Sends SIGTERM and returns the exit code."""
        self._running.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float) -> int:
        """Waits until the daemon has ended by itself and returns the exit code."""
        deadline = time.monotonic() + timeout_s
        while (code := self._running.poll()) is None:
            if time.monotonic() > deadline:
                raise DemoFailed(f"the daemon has not ended within {timeout_s:.0f} s:\n{self.tail()}")
            status = self.status()
            if status is not None:
                self._watch(status)
            time.sleep(POLL_S)
        return code

    def tail(self) -> str:
        """Returns the end of the log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-LOG_TAIL_CHARACTERS:]

    def close(self) -> None:
        """Ends the daemon in any case, together with everything that Spark started."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(HTTP_TIMEOUT_S)
            return
        self._process.kill()
        self._process.wait(HTTP_TIMEOUT_S)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start() comes first"
        return self._process
