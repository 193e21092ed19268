"""The expressions of a file, tried in a child process before anything starts (`expressions/compiled/probe.py`).

The child loads Polars while the file is read, so on two cores it costs 0.2 s of CPU and next to no time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from tidegate.checks.schemas import Ask, resolve_schemas
from tidegate.checks.user_code_check import check_user_code
from tidegate.config.errors import ConfigErrors, Problem
from tidegate.config.load import LoadedPipeline, read_pipeline
from tidegate.expressions.expression import Expression
from tidegate.plan.build import Checked, check_pipeline
from tidegate.plan.graph import Plan

PROBE: Final = "tidegate.expressions.compiled.probe"
TIME_LIMIT_S: Final = 120.0
_REMEDY: Final = "write it otherwise: `tidegate docs expressions` says what is supported"


class ExpressionCheck:
    """The child process; it ends with the `with` block at the latest."""

    def __enter__(self) -> Self:
        # -P: nothing in the current directory may stand for a module.
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

    def check(self, loaded: LoadedPipeline) -> Checked:
        """As `check_pipeline`, with what trying the expressions has found. Once."""
        checked = check_user_code(loaded, check_pipeline(loaded))
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
        """What is wrong with each, or with all of them together."""
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


def plan_file(path: Path, environ: Mapping[str, str], ask: Ask = Ask.COPY) -> tuple[LoadedPipeline, Plan]:
    """Settings and plan of a file. Raises ConfigErrors with every problem, of shape and of meaning, in one run."""
    with ExpressionCheck() as expressions:
        loaded = resolve_schemas(read_pipeline(path, environ), ask)
        checked = expressions.check(loaded)
    if checked.plan is None:
        raise ConfigErrors(checked.problems)
    return loaded, checked.plan


def check_file(
    path: Path, environ: Mapping[str, str], ask: Ask = Ask.COPY
) -> tuple[LoadedPipeline | None, tuple[Problem, ...]]:
    """Every problem and warning of a file, without touching a broker; and the file, if it could be read.

    Raises RegistryAway where the registry is asked.
    """
    with ExpressionCheck() as expressions:
        try:
            loaded = resolve_schemas(read_pipeline(path, environ), ask)
            checked = expressions.check(loaded)
        except ConfigErrors as error:
            return None, error.problems
    return loaded, (*checked.problems, *checked.warnings)
