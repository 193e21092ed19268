"""Checks a pipeline file without brokers: its schemas, its plan, and its expressions and user code in child processes.

Expressions are tried by `expressions/compiled/probe.py`, whose process loads Polars while the file is read: on two
cores it costs 0.2 s of CPU and almost no elapsed time. User code is imported by `user_code/probe.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from tidegate.checks.schemas import Ask, resolve_schemas
from tidegate.checks.user_code import resolve_code
from tidegate.config.errors import ConfigErrors, Problem
from tidegate.config.load import LoadedPipeline, read_pipeline
from tidegate.expressions.expression import Expression
from tidegate.plan.build import CheckedPipeline, check_pipeline
from tidegate.plan.graph import Plan

PROBE: Final = "tidegate.expressions.compiled.probe"
TIME_LIMIT_S: Final = 120.0
_REMEDY: Final = "write it otherwise: `tidegate docs expressions` says what is supported"


class ExpressionCheck:
    """The child process that tries expressions; it ends with the `with` block at the latest."""

    def __enter__(self) -> Self:
        # -P: no file in the current directory may shadow a module.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", PROBE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "POLARS_MAX_THREADS": "1"},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._child:
            self._child.kill()

    def check(self, loaded: LoadedPipeline) -> CheckedPipeline:
        """Check the pipeline, and try its expressions. May be called once."""
        checked = check_pipeline(loaded)
        tried = self._try([one.expression for one in checked.expressions])
        if isinstance(tried, str):
            found = [loaded.problem(("steps",), tried, _REMEDY)]
        else:
            found = [
                loaded.problem_inside(one.path, one.text, 1, 1, problem, _REMEDY)
                for one, problem in zip(checked.expressions, tried, strict=True)
                if problem
            ]
        return replace(checked, plan=None, problems=tuple(sorted({*checked.problems, *found}))) if found else checked

    def _try(self, expressions: Sequence[Expression]) -> list[str] | str:
        """Try the expressions. Return a problem or an empty text for each of them, or one problem for all."""
        if not expressions:
            return []
        try:
            answer, said = self._child.communicate(msgspec.json.encode(expressions), TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            return f"trying the expressions has not ended within {TIME_LIMIT_S:g} s"
        if self._child.returncode:
            last = (said.decode(errors="replace").splitlines() or [""])[-1]
            return f"trying the expressions ended with code {self._child.returncode}: {last}"
        return msgspec.json.decode(answer, type=list[str])


def read_checked(read: Callable[[], LoadedPipeline], ask: Ask = Ask.COPY) -> tuple[LoadedPipeline, CheckedPipeline]:
    """Read a pipeline with its schemas and user code, and check it. Raises ConfigErrors if it cannot be read at all."""
    with ExpressionCheck() as expressions:
        loaded = resolve_code(resolve_schemas(read(), ask))
        return loaded, expressions.check(loaded)


def plan_file(path: Path, environ: Mapping[str, str], ask: Ask = Ask.COPY) -> tuple[LoadedPipeline, Plan]:
    """Read a file into settings and a plan. Raises ConfigErrors with all problems of the file at once."""
    loaded, checked = read_checked(lambda: read_pipeline(path, environ), ask)
    if checked.plan is None:
        raise ConfigErrors(checked.problems)
    return loaded, checked.plan


def check_file(
    path: Path, environ: Mapping[str, str], ask: Ask = Ask.COPY
) -> tuple[LoadedPipeline | None, tuple[Problem, ...]]:
    """Find all problems and warnings of a file without asking a broker. Returns the file as well, if it could be read.

    Raises RegistryUnavailable if the registry is asked.
    """
    try:
        loaded, checked = read_checked(lambda: read_pipeline(path, environ), ask)
    except ConfigErrors as error:
        return None, error.problems
    return loaded, (*checked.problems, *checked.warnings)
