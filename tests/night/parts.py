"""What stories share that write the input of a pipeline in parts, each while another daemon runs.

In each part a slot is killed, and at its end the daemon, except for the last one.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

from tests.night.story import TRACE, Night
from tests.support.daemon_process import DaemonProcess
from tests.support.join_oracle import compare
from tests.support.processes import kill
from tests.support.rig import restored_checkpoint
from tests.waiting import wait_until

Chunk = TypeVar("Chunk")


class Campaign(Generic[Chunk]):
    """One pipeline under test. As a context manager, it ends the daemon in any case."""

    prefix = ""
    """Before what is counted, in a story of several pipelines."""

    def __init__(self, night: Night, parts: Sequence[Sequence[Chunk]], output_s: float) -> None:
        self.night, self.parts, self.output_s = night, parts, output_s
        self.daemon: DaemonProcess | None = None

    def make_daemon(self, number: int) -> DaemonProcess:
        """Returns a daemon, not started."""
        raise NotImplementedError

    def write(self, chunks: Sequence[Chunk]) -> None:
        """Writes a part of the input, at the rate of the story."""
        raise NotImplementedError

    def count_rows(self, output: str) -> int:
        """Returns the number of committed records of an output."""
        raise NotImplementedError

    def play(self) -> None:
        """Writes all input."""
        for number, chunks in enumerate(self.parts):
            daemon = self.begin(number)
            writer = self.start_writing(chunks)
            daemon.wait_committed()
            self.night.pause(1.0, 5.0)
            self.kill_slot(daemon)
            self.night.pause(1.0, 3.0)
            if number < len(self.parts) - 1:
                self.kill_daemon(daemon)
            self.join(writer)

    def begin(self, number: int) -> DaemonProcess:
        """Starts a daemon. All but the first one must restore a checkpoint."""
        daemon = self.daemon = self.make_daemon(number)
        with self.night.recovery():
            daemon.start().wait_running()
        if number:
            restored_checkpoint(daemon.text())
            self.count("restores")
        return daemon

    def start_writing(self, chunks: Sequence[Chunk]) -> threading.Thread:
        """Writes a part of the input on a thread of its own."""
        writer = threading.Thread(target=self.write, args=(chunks,), daemon=True)
        writer.start()
        return writer

    def join(self, writer: threading.Thread) -> None:
        """Waits until a part of the input is written."""
        writer.join(self.output_s)
        assert not writer.is_alive(), "the writer hangs"

    def kill_slot(self, daemon: DaemonProcess) -> None:
        """Kills a slot and waits for a checkpoint of the next attempt, which may have nothing to commit."""
        with self.night.recovery():
            attempt = daemon.attempt
            assert kill(self.night.dice.choice(daemon.slots())), "the slot was gone before the kill"
            self.count("slots killed")

            def runs_again() -> bool:
                daemon.assert_alive()
                return daemon.attempt > attempt

            wait_until(runs_again, f"an attempt after {attempt} runs")
            daemon.wait_checkpoints(1)

    def kill_daemon(self, daemon: DaemonProcess) -> None:
        """Kills a daemon and reads its log."""
        daemon.kill()
        self.count("daemons killed")
        self.read_log(daemon)

    def finish(self, wanted: Mapping[str, int]) -> DaemonProcess:
        """Waits until the outputs have this many records, and ends the daemon."""
        daemon = self.daemon
        assert daemon is not None

        def complete() -> bool:
            daemon.assert_alive()
            return all(self.count_rows(name) >= count for name, count in wanted.items())

        try:
            wait_until(complete, f"{wanted} rows in the outputs", self.output_s)
        except AssertionError as missing:
            self.night.problem(str(missing))
        if (code := daemon.terminate()) != 0:
            self.night.problem(f"SIGTERM: exit code {code}: {daemon.text()[-1000:]}")
        self.read_log(daemon)
        return daemon

    def note(self, name: str, expected: Counter[Any], found: Counter[Any]) -> None:
        """Compares an output with what is expected of it."""
        difference, result = compare(expected, found), self.night.result
        result.expected += expected.total()
        result.seen += found.total()
        result.missing += difference.lost
        result.duplicate += difference.doubled
        result.wrong += difference.unexpected
        self.night.count(f"rows of {name}", found.total())
        if difference or not expected:
            self.night.problem(f"{self.prefix}{name}: {difference}")

    def count(self, what: str, more: int = 1) -> None:
        """Counts something that happened."""
        self.night.count(f"{self.prefix}{what}", more)

    def read_log(self, daemon: DaemonProcess) -> None:
        """Notes a traceback in the log of a daemon."""
        text = daemon.text()
        if TRACE in text:
            self.night.problem(f"{daemon.log.name}: {text[text.index(TRACE) :][:1000]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.daemon is not None:
            self.daemon.destroy()
