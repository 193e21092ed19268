"""The cases of pipeline files as tests of pytest: `pytest --tidegate orders.yaml`, or `tidegate_files` in its settings.

pytest loads this module in every environment that has Tidegate, so it imports the rest only where files are collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

if TYPE_CHECKING:
    from tidegate.api.pipeline import Case, CaseReport

_FILES = pytest.StashKey[frozenset[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option and the setting."""
    parser.getgroup("tidegate").addoption(
        "--tidegate",
        action="append",
        default=[],
        metavar="FILE",
        help="run the cases in `tests:` of this pipeline file, like a path among the arguments (repeatable)",
    )
    parser.addini("tidegate_files", "pipeline files, or patterns for them, whose cases are tests", "linelist", [])


def pytest_configure(config: pytest.Config) -> None:
    """Adds the files to what is collected: those of the option always, those of the setting unless paths are given."""
    chosen = [config.invocation_params.dir / name for name in config.getoption("tidegate")]
    named = list(_named(config))
    config.stash[_FILES] = frozenset(path.resolve() for path in (*chosen, *named))
    given = config.args_source is config.ArgsSource.ARGS
    if chosen and not given:
        config.args = []
    wanted = chosen if chosen or given else named
    below = [(config.invocation_params.dir / arg).resolve() for arg in config.args]
    for path in dict.fromkeys(wanted):
        if not any(path.resolve().is_relative_to(folder) for folder in below):
            config.args.append(str(path))


def _named(config: pytest.Config) -> Iterator[Path]:
    """Yields the files of the setting, whose paths are relative to pytest's settings."""
    folder = config.rootpath if config.inipath is None else config.inipath.parent
    for pattern in config.getini("tidegate_files"):
        found = sorted(folder.glob(pattern))
        if not found:
            raise pytest.UsageError(f"tidegate_files: there is no {pattern} in {folder}")
        yield from found


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collects a pipeline file that was named; no other."""
    files = parent.config.stash.get(_FILES, frozenset())
    if not files or file_path.resolve() not in files:
        return None
    return PipelineFile.from_parent(parent, path=file_path)


class PipelineFile(pytest.File):
    """A pipeline file. A file with problems cannot be collected, and the error lists them."""

    @override
    def collect(self) -> Iterator[pytest.Item]:
        from tidegate.api.pipeline import load
        from tidegate.errors import TidegateError

        try:
            pipeline = load(self.path)
        except TidegateError as error:
            raise self.CollectError(error.message) from error
        if not pipeline.cases:
            remedy = "`tidegate docs testing` shows how to write some"
            raise self.CollectError(f"{self.path} has no `tests:`; {remedy}")
        for case in pipeline.cases:
            yield CaseItem.from_parent(self, name=case.name, case=case)


class CaseFailed(Exception):
    """A case has failed; never leaves this module."""

    def __init__(self, report: CaseReport) -> None:
        super().__init__(report.text)
        self.report = report


class CaseItem(pytest.Item):
    """A case."""

    def __init__(self, *, case: Case, **others: Any) -> None:
        super().__init__(**others)
        self.case = case

    @override
    def runtest(self) -> None:
        report = self.case.run()
        if not report.passed:
            raise CaseFailed(report)

    @override
    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CaseFailed):
            return f"{self.path}:{self.case.line}: {excinfo.value.report.text}"
        return super().repr_failure(excinfo)

    @override
    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.line - 1, self.name
