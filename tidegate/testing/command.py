"""Runs the chosen cases of a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from tidegate.config.cases import CaseSettings
from tidegate.config.load import LoadedPipeline
from tidegate.plan.graph import Plan
from tidegate.testing.cases import CaseResult, CaseRunner


class RunOutcome(msgspec.Struct, frozen=True):
    """The results of all chosen cases, in file order."""

    results: tuple[CaseResult, ...]
    left_out: int
    seconds: float

    @property
    def passed(self) -> bool:
        """True if all of them have passed."""
        return all(result.passed for result in self.results)


def choose_cases(cases: Sequence[CaseSettings], names: Sequence[str], pattern: str | None) -> list[CaseSettings]:
    """Chooses the cases with one of the names and with the pattern in their name, ignoring upper and lower case."""
    return [
        case
        for case in cases
        if (not names or case.name in names) and (pattern is None or pattern.casefold() in case.name.casefold())
    ]


def run_cases(
    loaded: LoadedPipeline,
    plan: Plan,
    chosen: Sequence[CaseSettings],
    parallelism: int | None,
    on_result: Callable[[CaseResult], None],
) -> RunOutcome:
    """Runs the chosen cases one after the other."""
    started = time.perf_counter()
    runner = CaseRunner(loaded, plan, parallelism)
    results = []
    for case in chosen:
        results.append(runner.run(case))
        on_result(results[-1])
    return RunOutcome(tuple(results), len(loaded.settings.tests) - len(chosen), time.perf_counter() - started)
