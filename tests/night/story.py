"""What every story of a night has: dice, time, counts of what was done, and the check at its end.

A story is a function that takes a `Night` and returns its `Result`. What it plans (`least`) must have happened, what it
waits for has a deadline, and what it starts is a context that ends it. Its faults end early enough for the check.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.support.daemon_process import DaemonProcess
from tests.support.rig import Rig
from tidegate.dev.demo.verify import read_topic

FAULTS_SHARE: Final = 0.8
"""Of a story's seconds; the rest is for its end."""
OUTPUT_S: Final = 300.0
MARKER: Final = re.compile(r"The marker is written now")
CAUSE: Final = re.compile(r"attempt failed after [\d.]+ s: (.*?)(?:; another one |\",\"|$)", re.MULTILINE)
CAUSES_MAX: Final = 20
TRACE: Final = "Traceback (most recent call last)"


class Result(msgspec.Struct, kw_only=True):
    """One line of the table. No problem: passed."""

    story: str
    seed: int
    seconds: float = 0.0
    done: dict[str, int | float] = {}
    """What really happened, counted where it happened."""
    expected: int = 0
    """Records of all outputs together, as the three below."""
    seen: int = 0
    missing: int = 0
    duplicate: int = 0
    out_of_order: int = 0
    wrong: int = 0
    markers: int = 0
    """Transaction markers that the daemons have written in place of a coordinator."""
    slowest_recovery_s: float = 0.0
    causes: list[str] = []
    """Why attempts have ended, the first of them."""
    drawn: str = ""
    """What the seed has chosen, where a story is one of many."""
    problems: list[str] = []
    kept: str = ""
    """The directory of a story with problems: logs, checkpoints, and what the brokers have on disk."""


class Night:
    """One story under way; `place` is a directory of its own, `scale` 1.0 in a night of full length.

    `outage_s`: how long the story `clusters` takes a cluster away, if not just longer than a short transaction lives.
    """

    def __init__(
        self, story: str, seed: int, seconds: float, place: Path, scale: float = 1.0, outage_s: float | None = None
    ) -> None:
        self.outage_s = outage_s
        self.seed, self.seconds, self.place, self.scale = seed, seconds, place, scale
        self.dice = random.Random(f"{seed} {story}")
        self.result = Result(story=story, seed=seed)
        self._began = time.monotonic()
        self._least: dict[str, int] = {}

    def least(self, what: str, count: int = 1) -> None:
        """Plan something: fewer of it are a problem."""
        self._least[what] = count

    def count(self, what: str, more: float = 1) -> None:
        """Something has happened."""
        self.result.done[what] = round(self.result.done.get(what, 0) + more, 1)

    def rounds(self, least: int = 1) -> Iterator[int]:
        """1, 2, 3 ... while there is time for faults, and `least` rounds in any case."""
        number = 0
        while number < least or time.monotonic() - self._began < self.seconds * FAULTS_SHARE:
            number += 1
            yield number

    def pause(self, low: float, high: float) -> float:
        """Let a seeded time pass; it is what a story is about, and waits for nothing."""
        drawn = self.dice.uniform(low, high)
        threading.Event().wait(drawn)
        return drawn

    @contextmanager
    def recovery(self) -> Iterator[None]:
        """The block is a recovery; the slowest is in the table."""
        began = time.monotonic()
        yield
        self.result.slowest_recovery_s = max(self.result.slowest_recovery_s, round(time.monotonic() - began, 1))

    def problem(self, text: str) -> None:
        """Note what must not be."""
        self.result.problems.append(text[:1500])

    def wait_more(self, rig: Rig, count: int = 100) -> None:
        """Wait until as many more orders become visible; else what a fresh reader sees is in the failure.

        A reader may be blocked for minutes after a broker that it had asked has gone: librdkafka asks again late.
        """
        topic = rig.topic["totals"]
        try:
            rig.outputs.wait_more(topic, count, OUTPUT_S)
        except AssertionError as late:
            fresh = sum(map(len, read_topic(rig.broker.bootstrap, topic)))
            known = f"{rig.outputs.count(topic)} orders seen by the old reader, {fresh} records by a fresh one"
            raise AssertionError(f"{late}; {known}; {rig.outputs.errors}") from late

    def finish(self, rig: Rig, daemon: DaemonProcess) -> Result:
        """All output is there, the daemon ends with 0 and leaves nothing, both outputs are exact."""
        try:
            rig.wait_output(OUTPUT_S)
        except AssertionError as late:
            self.problem(f"output: {late}")
        code = daemon.terminate()
        if code != 0:
            self.problem(f"SIGTERM: exit code {code}: {daemon.text()[-1000:]}")
        try:
            rig.assert_clean()
        except AssertionError as left:
            self.problem(f"temporary files are left: {left}")
        self.read_logs(rig)
        for verdict in rig.verdicts():
            self.result.expected += verdict.expected
            self.result.seen += verdict.found
            self.result.missing += verdict.lost
            self.result.duplicate += verdict.doubled
            self.result.out_of_order += verdict.out_of_order
            self.result.wrong += verdict.wrong
            if not (verdict.expected and verdict.exact):
                self.problem(f"output is not exact: {msgspec.to_builtins(verdict)}")
        return self.close()

    def read_logs(self, rig: Rig) -> None:
        """What all daemons of the story have logged."""
        for path in sorted({daemon.log for daemon in rig.daemons}):
            text = path.read_text(encoding="utf-8", errors="replace")
            self.result.markers += len(MARKER.findall(text))
            causes = CAUSE.findall(text)
            self.count("attempts failed", len(causes))
            self.result.causes = [*self.result.causes, *(cause[:300] for cause in causes)][:CAUSES_MAX]
            if TRACE in text:
                self.problem(f"{path.name}: a traceback: {text[text.index(TRACE) :][:1000]}")
        if self.result.markers:
            self.problem(f"{self.result.markers} transaction markers were written by the daemon")

    def close(self) -> Result:
        """The result, with the seconds so far, and with a problem for everything planned that did not happen."""
        self.result.seconds = round(time.monotonic() - self._began, 1)
        for what, least in self._least.items():
            done: Any = self.result.done.get(what, 0)
            if done < least:
                self.problem(f"a planned fault did not happen: {what}: {done} of {least}")
        self._least.clear()
        return self.result
