"""The error that parsing and typing raise: what is wrong with an expression, and where."""

from __future__ import annotations

from tidegate.errors import TidegateError


def with_article(kind: object) -> str:
    """Adds the indefinite article: `a bigint`, `an int`."""
    return f"{'an' if str(kind)[:1] in 'aeiou' else 'a'} {kind}"


class ExpressionError(TidegateError):
    """An expression that Tidegate rejects. `line` and `column` are 1-based within the text of the expression."""

    code = "expression"
    exit_code = 2
    retriable = False

    def __init__(self, problem: str, *, line: int, column: int, remedy: str) -> None:
        super().__init__(
            f"{line}:{column}: {problem}; {remedy}", problem=problem, line=line, column=column, remedy=remedy
        )
        self.problem = problem
        self.line = line
        self.column = column
        self.remedy = remedy


class ExpressionRefusal(Exception):
    """An `ExpressionError` before its text is known: raised with an offset, and never leaves the package."""

    def __init__(self, start: int, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.start = start
        self.problem = problem
        self.remedy = remedy

    def within(self, text: str) -> ExpressionError:
        """Returns the error with line and column in `text`."""
        before = text[: self.start]
        line = before.count("\n") + 1
        column = self.start - (before.rfind("\n") + 1) + 1
        return ExpressionError(self.problem, line=line, column=column, remedy=self.remedy)
