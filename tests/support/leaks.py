"""Fails a test that leaks a Kafka client, thread, socket, open file or process, and names what it leaked.

Otherwise a leak fails another test: the garbage collector closes a forgotten socket with a ResourceWarning wherever it
happens to run. After every test, what the process holds is therefore compared with what it held before. What appears
while a fixture of a wider scope is set up belongs to that fixture, and must be gone when the fixture has ended.

Only if something is left does the comparison wait for what is ending and run the garbage collector. A failed test is
not compared, because its traceback keeps its variables alive.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import pytest

from tests.support.holdings import NOTHING, Holdings, Observer, without_those_of
from tests.waiting import wait_until

ENDING_S: Final = 60.0
"""How long a stopped thread or a killed process may take to end, also on a busy machine."""
COLLECT_S: Final = 0.2
"""How long to wait before running the garbage collector, which may take as long itself."""
CLIENT_LOG: Final = re.compile(r"^%[0-7]\|[\d.]+\|[A-Z_]+\|.*", re.MULTILINE)
"""A line that librdkafka writes to standard error if its log is not redirected."""
FAILED: Final = pytest.StashKey[bool]()


class LeakCheck:
    """A pytest plugin."""

    def __init__(self, ending_s: float = ENDING_S) -> None:
        self.ending_s = ending_s
        self._observer = Observer()
        self._known: Holdings | None = None
        """What was held after the last test."""
        self._newest: Holdings = NOTHING
        """What was held when it was last looked at."""
        self._of_fixtures: dict[Any, Holdings] = {}
        self._has_failed = False
        """True after a test has failed: what the garbage collector finds from then on may be its variables."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        if self._known is None:
            self._known = self._observer.read()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Attributes what appears during the setup of a fixture of a wider scope to that fixture."""
        if fixturedef.scope == "function":
            return (yield)
        fixturedef.addfinalizer(partial(self._release, fixturedef))  # the first finalizer added is the last one run
        before = self._observer.read()
        made = yield
        self._of_fixtures[fixturedef] = self._read_new(before)
        return made

    def _release(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Raises Failed if the fixture has ended but what it held is still there."""
        own = self._of_fixtures.pop(fixturedef, NOTHING)
        self._require_nothing(f"fixture {fixturedef.argname} ({fixturedef.scope})", lambda: own & self._observer.read())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Runs around all other teardowns."""
        before, self._known = self._known or NOTHING, None
        try:
            yield
            if not item.stash.get(FAILED, False):
                self._require_nothing(item.nodeid, lambda: self._read_new(before))
                self._known = self._newest  # most tests leave nothing: a second reading would cost as much again
        finally:
            self._known = self._observer.read() if self._known is None else self._known

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Remembers failures, and fails a test whose output contains log lines of librdkafka."""
        report = yield
        lines = CLIENT_LOG.findall(report.capstdout + report.capstderr) if call.when == "teardown" else []
        if report.passed and lines:
            report.outcome = "failed"
            report.longrepr = "\n".join((f"{item.nodeid}: a Kafka client wrote its log to the output:", *lines))
        item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
        self._has_failed |= report.failed
        return report

    def _read_new(self, before: Holdings) -> Holdings:
        held = before.union(*self._of_fixtures.values())
        self._newest = self._observer.read()
        new = self._newest - held
        return without_those_of(held, new) if new else new

    def _require_nothing(self, who: str, read: Callable[[], Holdings]) -> None:
        """Raises Failed if something is left."""
        if not read():
            return
        forgotten: list[str] = []
        with suppress(AssertionError):
            wait_until(lambda: not read(), "nothing leaks", COLLECT_S)
        if read():
            with collected(forgotten):
                gc.collect()
            with suppress(AssertionError):
                wait_until(lambda: not read(), "nothing leaks", self.ending_s)
        left = sorted({holding.describe() for holding in read()})
        if self._has_failed:
            forgotten.clear()
        if left or forgotten:
            pytest.fail("\n  ".join((f"{who} leaks:", *left, *forgotten)), pytrace=False)


@contextmanager
def collected(into: list[str]) -> Iterator[None]:
    """Appends the warnings of the garbage collector to the list within the block."""
    kept = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: into.append(str(unraisable.exc_value))
    try:
        yield
    finally:
        sys.unraisablehook = kept
