"""Regular expressions of Python that may take for ever, because Python tries all the ways in which they can match.

Expressions of a pipeline are no concern: Rust's engine, which runs them, takes a time in proportion to the text. What
remains is the pattern for names of topics, at most 249 characters each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_parser: Any = re._parser  # type: ignore[attr-defined]  # noqa: SLF001  the library has no name for it that stays
_REPEATS: Final = frozenset({_parser.MAX_REPEAT, _parser.MIN_REPEAT})
REPEATS_MAX: Final = 4
"""One after the other: a name of 249 characters is split in at most 160 million ways, which is seconds."""


def find_endless(pattern: str) -> str:
    """What in a valid pattern can take for ever; empty for one that cannot."""
    found = list(_repeats(_parser.parse(pattern)))
    if any(inside for _, inside in found):
        return "a repetition or a choice inside a repetition"
    if len(found) > REPEATS_MAX:
        return f"more than {REPEATS_MAX} repetitions"
    return ""


def _repeats(parsed: Any) -> Iterator[tuple[Any, bool]]:
    """Every repetition whose number is open; and whether there is a choice or another such inside."""
    for operation, argument in parsed:
        if operation in _REPEATS:
            low, high, body = argument
            if low == high:  # as if it were written so often
                for _ in range(min(high, REPEATS_MAX + 1)):
                    yield from _repeats(body)
                continue
            yield operation, high > 1 and (bool(list(_repeats(body))) or _chooses(body))
        for body in _bodies(operation, argument):
            yield from _repeats(body)


def _chooses(parsed: Any) -> bool:
    return any(
        operation is _parser.BRANCH or any(_chooses(body) for body in _bodies(operation, argument))
        for operation, argument in parsed
    )


def _bodies(operation: Any, argument: Any) -> list[Any]:
    """What is inside of what is no repetition."""
    if operation is _parser.BRANCH:
        return list(argument[1])
    if operation is _parser.SUBPATTERN:
        return [argument[-1]]
    if operation in (_parser.ASSERT, _parser.ASSERT_NOT):
        return [argument[1]]
    if operation is _parser.GROUPREF_EXISTS:
        return [body for body in argument[1:] if body is not None]
    return []
