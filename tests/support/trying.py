"""Tries expressions in the test process: a child process would load Polars for every file read, 0.3 s each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self
from unittest import mock

from tidegate.checks import pipeline_file
from tidegate.checks.pipeline_file import ExpressionCheck
from tidegate.expressions.expression import Expression


class TriedHere(ExpressionCheck):
    """An expression check without a child process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Does nothing: there is no child to end."""

    def _try(self, expressions: Sequence[Expression]) -> list[str]:
        from tidegate.expressions.compiled.probe import find_problem

        return [find_problem(expression) for expression in expressions]


@contextmanager
def tried_here() -> Iterator[None]:
    """Replaces the expression check within the block."""
    with mock.patch.object(pipeline_file, "ExpressionCheck", TriedHere):
        yield
