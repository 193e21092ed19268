"""Runs the chosen cases of a file, and writes their output to it on request."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from tidegate.config.cases import CaseSettings
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.config.models import PipelineSettings
from tidegate.plan.graph import Plan
from tidegate.testing.cases import CaseFailure, CaseResult, CaseRunner, expects_nothing
from tidegate.testing.compare import Record
from tidegate.testing.update import UpdateRefused, update_text

_BOM = "\ufeff"


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


def write_output(file: Path, environ: Mapping[str, str], loaded: LoadedPipeline, results: Sequence[CaseResult]) -> int:
    """Writes the output into the cases whose records differ.

    Returns the number of these cases. Raises UpdateRefused, OSError.
    """
    changes = {
        loaded.settings.tests.index(result.case): (result.case, wanted)
        for result in results
        if (wanted := _changed(result))
    }
    if changes:
        text = file.read_bytes().decode()
        mark = _BOM if text.startswith(_BOM) else ""
        updated = update_text(text.removeprefix(_BOM), changes)
        if not _is_same_but_expected(loaded, updated, environ, changes):
            raise UpdateRefused("its text cannot be edited safely: write the records by hand")
        file.write_bytes((mark + updated).encode())
    return len(changes)


def _is_same_but_expected(
    loaded: LoadedPipeline, updated: str, environ: Mapping[str, str], changed: Collection[int]
) -> bool:
    """Returns whether the text is the same pipeline with the same cases, except for what the `changed` ones expect."""
    try:
        again = parse_pipeline(updated, loaded.file, environ)
    except ConfigErrors:
        return False
    if again.problems or len(again.settings.tests) != len(loaded.settings.tests):
        return False
    before, after = (_without_expected(settings, changed) for settings in (loaded.settings, again.settings))
    return before == after and all(again.settings.tests[index].expect for index in changed)


def _without_expected(settings: PipelineSettings, changed: Collection[int]) -> PipelineSettings:
    tests = [
        case.model_copy(update={"expect": {}}) if index in changed else case
        for index, case in enumerate(settings.tests)
    ]
    return settings.model_copy(update={"tests": tests})


def _changed(result: CaseResult) -> dict[str, list[Record]]:
    """Returns the records to write by sink. A case that fails for another reason has none."""
    if expects_nothing(result.case):
        return dict(result.output)
    return {failure.sink: result.output[failure.sink] for failure in result.failures if _can_update(failure)}


def _can_update(failure: CaseFailure) -> bool:
    return bool(failure.sink) and not failure.by_restart
