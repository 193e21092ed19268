"""Remarks on valid expressions that probably do not mean what was intended. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tidegate.expressions.errors import ExpressionError, ExpressionRefusal
from tidegate.expressions.syntax import derive_syntax
from tidegate.expressions.syntax_tree import Apply, Arrow, CastTo, Constant, Member, Syntax

GROUP = re.compile(r"\\([0-9])")
"""The group syntax of other engines in a replacement. In Spark's `regexp_replace` it is the digit itself."""


def find_remarks(text: str) -> tuple[ExpressionError, ...]:
    """Returns remarks with position and remedy; none if the text is not an expression."""
    try:
        return tuple(remark.within(text) for remark in _remarks(derive_syntax(text)))
    except (ExpressionRefusal, RecursionError):
        return ()


def _remarks(tree: Syntax) -> Iterator[ExpressionRefusal]:
    match tree:
        case Member(base=inner) | CastTo(operand=inner) | Arrow(body=inner):
            yield from _remarks(inner)
        case Apply(function=function, arguments=arguments):
            if function == "regexp_replace" and len(arguments) == 3 and isinstance(arguments[2], Constant):
                yield from _groups(arguments[2])
            for argument in arguments:
                yield from _remarks(argument)


def _groups(replacement: Constant) -> Iterator[ExpressionRefusal]:
    found = GROUP.search(f"{replacement.value}") or GROUP.search(replacement.lost)
    if found:
        problem = f"`{found[0]}` in a replacement is the text `{found[1]}`, not a group"
        yield ExpressionRefusal(replacement.start, problem, f"write `${found[1]}` for the group")
