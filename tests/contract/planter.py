"""A pytest plugin for a session of its own: plants one mutant after another and runs the quick tests that name its
line.

Only tests that are not marked slow and need no broker count. The first failing test is enough. Each test that has
noticed a mutant is run again without any mutant, and must pass. `test_coverage.py` starts the session and reads the
report. To run it by hand for two lines:

    python -m pytest -p tests.contract.planter -p no:randomly --contract-lines C19,F24 tests
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Collection
from pathlib import Path

import msgspec
import pytest
from hypothesis import Phase, settings

from tests.contract.mutants import MUTANTS
from tests.contract.planting import Mutant, MutantLost, planted

ID = re.compile(r"(?<![A-Za-z0-9])([FBCWS]\d\d)(?![A-Za-z0-9])")
BROKERS = frozenset({"broker", "own_broker", "topics"})
"""Fixtures that start a broker."""


class Noticed(msgspec.Struct):
    """The result for one mutant."""

    mutant: Mutant
    by: str = ""
    """The test that failed; empty if none did."""
    problem: str = ""
    """Why it could not be planted."""
    tests: int = 0
    """Number of quick tests that name the line."""


class Report(msgspec.Struct):
    """The results of one session."""

    noticed: list[Noticed]
    failing: list[str]
    """Tests that also fail without a mutant."""


def find_faults(report: Report, covered: Collection[str]) -> list[str]:
    """Returns faults in the planted mutants and their results, one sentence each."""
    planted_lines = {each.mutant.line for each in report.noticed}
    faults = [f"{line}: covered, but without a mutant" for line in sorted(set(covered) - planted_lines)]
    for each in report.noticed:
        if each.problem:
            faults.append(each.problem)
        elif not each.by:
            faults.append(f"{each.mutant}: none of the {each.tests} quick tests that name the line has noticed")
    return [*faults, *(f"{test} fails without a mutant, too" for test in report.failing)]


def ids_in(name: str) -> set[str]:
    """Returns the lines that a test's name contains: `test_C20_C21_handles_are_cleaned`."""
    return set(ID.findall(name.replace("_", " "))) if name.startswith("test_") else set()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("contract")
    group.addoption("--contract-report", default=os.devnull, help="where the report goes")
    group.addoption("--contract-lines", default="", help="lines whose mutants are planted; all by default")


def pytest_configure(config: pytest.Config) -> None:
    """Makes hypothesis generate the same examples every time, without shrinking or remembering failures."""
    settings.register_profile("planted", deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    settings.load_profile("planted")
    config.pluginmanager.register(Planter(config), "planter")


class Planter:
    """The session: selects the tests that count and loops over the mutants."""

    def __init__(self, config: pytest.Config) -> None:
        self._report = Path(config.getoption("--contract-report"))
        chosen = config.getoption("--contract-lines")
        self._lines = set(chosen.split(",")) if chosen else {mutant.line for mutant in MUTANTS}
        self._failed = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._counts(item)]

    def _counts(self, item: pytest.Item) -> bool:
        slow = item.get_closest_marker("slow") is not None
        return not slow and not BROKERS & set(getattr(item, "fixturenames", ())) and bool(self._lines & _ids_of(item))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Runs all mutants. The garbage of a planted failure is collected before the next mutant, never during it."""
        gc.freeze()
        gc.disable()
        noticed = [self._hunt(session, mutant) for mutant in MUTANTS if mutant.line in self._lines]
        by = {each.by for each in noticed}
        failing = [item.nodeid for item in session.items if item.nodeid in by and self._fails(item)]
        self._report.write_bytes(msgspec.json.encode(Report(noticed, failing)))
        return True

    def _hunt(self, session: pytest.Session, mutant: Mutant) -> Noticed:
        items = [item for item in session.items if mutant.line in _ids_of(item)]
        found = Noticed(mutant, tests=len(items))
        try:
            with planted(mutant):
                found.by = next((item.nodeid for item in items if self._fails(item)), "")
        except MutantLost as lost:
            found.problem = str(lost)
        gc.collect()
        return found

    def _fails(self, item: pytest.Item) -> bool:
        self._failed = False
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        return self._failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed


def _ids_of(item: pytest.Item) -> set[str]:
    return ids_in(getattr(item, "originalname", None) or item.name)
