"""Typing rules of functions of the matches of a regular expression."""

from __future__ import annotations

import re

from tidegate.datatypes import INT, STRING, DataType
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal
from tidegate.expressions.functions.core import Argument, Function, Resolve, Site, check_count
from tidegate.expressions.functions.text import fixed_pattern

_PLACES = re.compile(r"\\[AzbB]")
"""Parts of a translated pattern that depend on the text around a match."""


def _of_pattern(name: str, result: DataType) -> Resolve:
    """Types a function of a text and a pattern that cannot match the empty string and has no `$`."""

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
        pattern, _ = fixed_pattern(site, arguments[1], nullable=False, ends=False)
        return Call(name, (site.text(arguments[0]), pattern), result)

    return resolve


def _extract_all(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 3)
    group = site.fixed_integer(arguments[2]) if len(arguments) == 3 else Literal(1, INT)
    number = int(group.value or 0) if isinstance(group, Literal) else 0
    pattern, found = fixed_pattern(site, arguments[1], nullable=False, ends=False)
    if not 0 <= number <= found.groups:
        raise ExpressionRefusal(
            arguments[1].start,
            f"the pattern has {found.groups} groups, so no group {number}",
            "add brackets or ask for group 0",
        )
    if number and _PLACES.search(found.pattern):
        raise ExpressionRefusal(
            arguments[1].start,
            rf"`^`, `\b` and the like are not supported in `{site.function}` with a group",
            "ask for group 0, or write the characters around it",
        )
    return Call("regexp_extract_all", (site.text(arguments[0]), pattern, group), DataType("array", element=STRING))


FUNCTIONS = (
    Function(
        "regexp_extract_all",
        "text",
        "regexp_extract_all(s, pattern [, group])",
        "A group (default 1) of every match, an array.",
        _extract_all,
    ),
    Function(
        "regexp_count",
        "text",
        "regexp_count(s, pattern)",
        "How many matches there are.",
        _of_pattern("regexp_count", INT),
    ),
    Function(
        "regexp_substr",
        "text",
        "regexp_substr(s, pattern)",
        "The first match; NULL when there is none.",
        _of_pattern("regexp_substr", STRING),
    ),
    Function(
        "regexp_instr",
        "text",
        "regexp_instr(s, pattern)",
        "The place of the first match from 1, 0 when there is none.",
        _of_pattern("regexp_instr", INT),
    ),
)
