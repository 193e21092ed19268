"""A daemon as a user runs it: `tidegate run FILE` in a process of its own, with its log in a file."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from tests.support.processes import find_descendants, find_executors, find_slots, kill
from tests.waiting import PATIENCE_S, wait_until

PHASES: Final = {
    "daemon up": r"metrics and probes on",
    "spark up": r"^Spark .* offers",
    "noticed": r"attempt failed after",
    "restored": r"attempt \d+ (restores|starts)",
    "deployed": r"slot \d+ .* is deployed",
    "running": r"attempt \d+ is running",
    "committed": r"checkpoint \d+ completed .* commits",
}
"""Phases of a recovery and the log lines that mark them."""
COMPLETED: Final = re.compile(r'^tidegate_checkpoints_total\{[^}]*result="completed"[^}]*\} (\S+)', re.MULTILINE)


class DaemonProcess:
    """Starts, observes and kills a daemon. The HTTP port is read from the log."""

    def __init__(
        self, pipeline: Path, log: Path, environ: dict[str, str] | None = None, command: Sequence[str] = ()
    ) -> None:
        self.pipeline = pipeline
        self.log = log
        self._command = [sys.executable, *(command or ("-m", "tidegate", "run")), str(pipeline)]
        self.environ = {**os.environ, **(environ or {})}
        self.process: subprocess.Popen[bytes] | None = None
        self.transactional = True
        """True if its checkpoints report how many records they commit."""
        self._log_from = 0

    def start(self) -> DaemonProcess:
        """Spawns the daemon and returns immediately."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                self._command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=self.environ,
                start_new_session=True,
            )
        return self

    @property
    def pid(self) -> int:
        """The pid of the daemon's Python process."""
        assert self.process is not None
        return self.process.pid

    def text(self) -> str:
        """Returns the log since the last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self._log_from)
            return file.read().decode(errors="replace")

    def wait_for(self, pattern: str, timeout_s: float = PATIENCE_S) -> re.Match[str]:
        """Waits for the first match of a pattern in the log; fails with the log's tail if the daemon ends before."""
        found: list[re.Match[str]] = []

        def look() -> bool:
            found.extend(re.finditer(pattern, self.text()))
            return bool(found)

        self._wait_log(look, repr(pattern), timeout_s)
        return found[0]

    def _wait_log(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Waits for a condition, checked whenever the log has grown. Fails when the daemon has ended."""
        seen = -1

        def look() -> bool:
            nonlocal seen
            assert self.process is not None
            ended = self.process.poll() is not None
            size = self.log.stat().st_size
            if size == seen and not ended:
                return False
            seen = size
            if condition():
                return True
            self.assert_alive()
            return False

        wait_until(look, f"{what} ({self.log})", timeout_s)

    def assert_alive(self) -> None:
        """Fails with the log's tail if the daemon has ended."""
        assert self.process is not None
        assert self.process.poll() is None, f"daemon ended with {self.process.returncode}:\n{self.text()[-4000:]}"

    def wait_running(self, timeout_s: float = PATIENCE_S) -> DaemonProcess:
        """Waits until an attempt runs."""
        self.wait_for(r"attempt \d+ is running", timeout_s)
        return self

    def wait_attempt(self, after: int, timeout_s: float = PATIENCE_S) -> int:
        """Waits until an attempt with a number above `after` runs and has committed records; returns its number."""

        def found() -> int:
            running = [int(number) for number in re.findall(r"attempt (\d+) is running", self.text())]
            return running[-1] if running and running[-1] > after else 0

        self._wait_log(lambda: found() > 0, f"an attempt after {after} runs", timeout_s)
        self.wait_committed(timeout_s)
        return found()

    def wait_committed(self, timeout_s: float = PATIENCE_S) -> None:
        """Waits until a checkpoint with records has completed in the newest attempt."""

        def look() -> bool:
            newest = re.split(r"attempt \d+ is running", self.text())[-1]
            commits = r"commits (?!0 )" if self.transactional else r"commits 0 "
            return re.search(rf"checkpoint \d+ completed .* {commits}", newest) is not None

        self._wait_log(look, "a checkpoint with records", timeout_s)

    @property
    def attempt(self) -> int:
        """The newest attempt that ran."""
        return int(re.findall(r"attempt (\d+) is running", self.text())[-1])

    def phases(self, mark: int, since: float) -> dict[str, float]:
        """Returns the seconds from `since` (seconds since 1970) to the phases of
        a recovery, from the log after `mark`.
        """
        found: dict[str, float] = {}
        text = self.text()[mark:]
        for line in text[: text.rfind("\n") + 1].splitlines():  # the last line may be incomplete
            if not line.startswith("{"):
                continue
            entry = json.loads(line)
            at = datetime.fromisoformat(entry["time"]).timestamp() - since
            for what, pattern in PHASES.items():
                if re.search(pattern, entry["message"]):
                    found.setdefault(what, round(at, 2))
        return found

    def completed_checkpoints(self) -> int:
        """Returns the number of checkpoints since the last start from the metrics; the log leaves out idle ones."""
        found = COMPLETED.search(self.http("/metrics")[1])
        return 0 if found is None else round(float(found.group(1)))

    def wait_checkpoints(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        """Waits until `count` more checkpoints have completed."""
        target = self.completed_checkpoints() + count

        def look() -> bool:
            self.assert_alive()
            return self.completed_checkpoints() >= target

        wait_until(look, f"{count} more checkpoints ({self.log})", timeout_s)

    def http(self, path: str) -> tuple[int, str]:
        """Sends a GET to the daemon's own server."""
        port = self.wait_for(r"http://127\.0\.0\.1:(\d+)").group(1)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def status(self) -> dict[str, object]:
        """Returns the JSON of /status."""
        found: dict[str, object] = json.loads(self.http("/status")[1])
        return found

    def wait_read(self) -> None:
        """Waits until slots have read everything now in the topics, as shown by a lag measured a second after this
        call.
        """
        begun = time.monotonic()

        def look() -> bool:
            found = self.status()
            age_s = found["lag_age_seconds"]
            return found["lag_records"] == 0 and isinstance(age_s, float) and age_s + 1 < time.monotonic() - begun

        wait_until(look, "everything is read")

    def slots(self) -> list[int]:
        """Returns the pids of the slot processes."""
        return find_slots(self.pid)

    def executors(self) -> list[int]:
        """Returns the pids of the executor JVMs."""
        return find_executors(self.pid)

    def kill(self) -> list[int]:
        """Kills the daemon's Python process with SIGKILL; returns the pids that must end by themselves."""
        below = [process.pid for process in find_descendants(self.pid)]
        kill(self.pid)
        assert self.process is not None
        self.process.wait(PATIENCE_S)
        return below

    def terminate(self, timeout_s: float = PATIENCE_S) -> int:
        """Sends SIGTERM and returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Waits until the daemon ends by itself and returns the exit code."""
        assert self.process is not None
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"daemon did not end within {timeout_s} s:\n{self.text()[-4000:]}") from None

    def destroy(self) -> None:
        """Kills all processes in whatever state they are."""
        if self.process is not None and self.process.poll() is None:
            below = self.kill()
            for pid in below:
                kill(pid)
