"""Python regular expressions that may take forever, because Python tries every way in which they can match.

Expressions of a pipeline are not affected: Rust's engine runs them in time proportional to the text. The only such
pattern is that of topic names, which have at most 249 characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

_parser: Any = re._parser  # type: ignore[attr-defined]  # noqa: SLF001  the library has no name for it that stays
_REPEATS: Final = frozenset({_parser.MAX_REPEAT, _parser.MIN_REPEAT})
REPEATS_MAX: Final = 4
"""Maximum number in sequence: a name of 249 characters can be split in up to 160 million ways, which takes seconds."""


def find_endless(pattern: str) -> str:
    """Returns what in a valid pattern can take forever; empty if nothing can."""
    found = list(_repeats(_parser.parse(pattern)))
    if any(inside for _, inside in found):
        return "a repetition or a choice inside a repetition"
    if len(found) > REPEATS_MAX:
        return f"more than {REPEATS_MAX} repetitions"
    return ""


def _repeats(parsed: Any) -> Iterator[tuple[Any, bool]]:
    """Yields every repetition without a fixed count, and whether it contains a choice or another such repetition."""
    for operation, argument in parsed:
        if operation in _REPEATS:
            low, high, body = argument
            if low == high:  # equivalent to writing it out
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
    """Returns the inner patterns of an operation that is not a repetition."""
    if operation is _parser.BRANCH:
        return list(argument[1])
    if operation is _parser.SUBPATTERN:
        return [argument[-1]]
    if operation in (_parser.ASSERT, _parser.ASSERT_NOT):
        return [argument[1]]
    if operation is _parser.GROUPREF_EXISTS:
        return [body for body in argument[1:] if body is not None]
    return []
