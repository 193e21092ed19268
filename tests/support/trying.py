"""Tries expressions and describes user code in the test process: a child process takes 0.3 s for every file read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self
from unittest import mock

from tests.support.user_code import describe_modules
from tidegate.checks import pipeline_file
from tidegate.checks.pipeline_file import ExpressionCheck, Found
from tidegate.expressions.expression import Expression
from tidegate.user_code.probe import ProbeRequest


class TriedHere(ExpressionCheck):
    """An expression check without a child process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: there is no child to end."""

    def _try(self, expressions: Sequence[Expression]) -> list[str]:
        from tidegate.expressions.compiled.probe import find_problem

        return [find_problem(expression) for expression in expressions]


def _probe_here(request: ProbeRequest) -> Found:
    return describe_modules(request.references, request.modules, tuple(map(Path, request.wheels)))


@contextmanager
def tried_here() -> Iterator[None]:
    """Replaces both checks within the block."""
    with (
        mock.patch.object(pipeline_file, "ExpressionCheck", TriedHere),
        mock.patch.object(pipeline_file, "probe", _probe_here),
    ):
        yield
