"""Runs the chosen cases of a file, and writes what came out into it if asked to."""

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
    """Of all chosen cases, in the order of the file."""

    results: tuple[CaseResult, ...]
    left_out: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether all of them have passed."""
        return all(result.passed for result in self.results)


def choose_cases(cases: Sequence[CaseSettings], names: Sequence[str], pattern: str | None) -> list[CaseSettings]:
    """Those with one of the names, and with the pattern in their name, whatever its case."""
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
    """All of them, one after the other."""
    started = time.perf_counter()
    runner = CaseRunner(loaded, plan, parallelism)
    results = []
    for case in chosen:
        results.append(runner.run(case))
        on_result(results[-1])
    return RunOutcome(tuple(results), len(loaded.settings.tests) - len(chosen), time.perf_counter() - started)


def write_output(file: Path, environ: Mapping[str, str], loaded: LoadedPipeline, results: Sequence[CaseResult]) -> int:
    """Put what came out into the cases whose records differ; how many those were. Raises UpdateRefused, OSError."""
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
    """Whether the text is still the same pipeline, with the same cases but for what those `changed` expect."""
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
    """By sink what is to be written; nothing for a case that fails otherwise."""
    if expects_nothing(result.case):
        return dict(result.output)
    return {failure.sink: result.output[failure.sink] for failure in result.failures if _can_update(failure)}


def _can_update(failure: CaseFailure) -> bool:
    return bool(failure.sink) and not failure.by_restart
