"""Words that the project does not use in prose: each with what to write instead, and where it is right all the same.

Prose is what people read: comments, docstrings and texts in Python, everything in the other files. Names in code are
not checked, nor what stands in braces or backticks.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final, NamedTuple


class Word(NamedTuple):
    """A pattern, what to write instead, and the phrases in which it is right."""

    pattern: str
    instead: str
    right: str = ""


WORDS: Final = (
    Word(
        r"\bbehind\b",
        "`after`, `past` or `later`",
        r"behind (?:a|an|the) (?:\S+ )?(?:proxy|partition|flag|load balancer)s?\b"
        r"|\b(?:lag|lags|lagging|fall|falls|falling|far) behind|\b(?:is|are|be|seconds?|old) behind\b"
        r"|leaves? (?:\S+ )?\S+ behind",
    ),
    Word(
        r"\b(?:told|tells?|telling)\b",
        "`report`, `log`, `say`, `notify` or `name`",
        r"\b(?:tell\w*|told) .{0,40}\bapart\b|\btold apart\b|\bstor(?:y|ies) \S*\s?\S*\s?told\b",
    ),
    Word(r"\b(?:the|its|their|a) begin\b", "`the start` or `the beginning`"),
    Word(r"\bwants?\b", "`needs`, `requires`, `expects` or `asks for`"),
    Word(r"\bno way into\b", "`cannot connect to`"),
    Word(r"\b(?:go|goes|going|went|gone) on (?:from|with|behind|after|to)\b", "`continue`"),
    Word(r"\b(?:states?|pipelines?|attempts?) (?:go|goes) on\b", "`continue`"),
    Word(r"\banew\b", "`again` or `from the start`", r"begin[-_]anew"),
    Word(r"\bst(?:and|ands|anding|ood) still\b", "`is blocked`, `stops` or `hangs`"),
    Word(r"\bbelongs? into\b", "`belongs in`"),
)

_CODE: Final = re.compile(r"\{[^{}\n]*\}|`[^`\n]*`")


def check_prose(text: str, words: tuple[Word, ...] = WORDS) -> list[str]:
    """Words of the list in a Markdown, YAML or other text."""
    return [each for number, line in enumerate(text.splitlines(), 1) for each in _judge(number, line, words)]


def check_python_prose(text: str, words: tuple[Word, ...] = WORDS) -> list[str]:
    """Words of the list in the comments, docstrings and texts of a Python file."""
    return [each for number, line in _read_prose(text) for each in _judge(number, line, words)]


def _read_prose(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, _CODE.sub("", line)


def _judge(number: int, line: str, words: tuple[Word, ...]) -> Iterator[str]:
    for word in words:
        rest = re.sub(word.right, "", line, flags=re.IGNORECASE) if word.right else line
        for found in re.finditer(word.pattern, rest, re.IGNORECASE):
            yield f"line {number}: `{found[0]}`: write {word.instead}"
