"""The tokens of an expression's text with their offsets, from the tokenizer of sqlglot's Spark dialect.

Only the tokenizer is used. The parser of sqlglot rewrites what it reads (CAST becomes TRY_CAST, NVL and IFNULL become
COALESCE, ELEMENT_AT becomes a subscript) and gives some operators a precedence that differs from Spark's. `syntax.py`
therefore has its own grammar.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as RawToken
from sqlglot.tokenizer_core import TokenType

from tidegate.expressions.errors import ExpressionRefusal

MAX_TEXT_CHARACTERS = 10_000
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_KEPT_MEANING = frozenset("\\'\"`0nrt%_")
"""Characters that may follow a backslash in a pattern: `\\b` would be a backspace there, not a word boundary."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A token. `kind` is name, quoted (in backticks), number, string, binary, operator or end; `text` is unescaped."""

    kind: str
    text: str
    start: int
    end: int  # offset after the last character
    lost: str = ""
    r"""The first escape of a string that is only its letter, such as `\d`."""


class _Expressions(Spark):
    """Spark's dialect without commands: after an initial command, sqlglot reads the rest of the text as one string."""

    class Tokenizer(Spark.Tokenizer):
        """The tokenizer without commands."""

        COMMANDS: ClassVar[set[TokenType]] = set()


@cache
def _tokenizer() -> Spark:
    return _Expressions()


def derive_tokens(text: str) -> list[Token]:
    """Returns all tokens of `text`, followed by one of kind `end`.

    Raises ExpressionRefusal if the text is too long, or contains a quote that is never closed or a character outside
    the grammar.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ExpressionRefusal(
            0, f"the expression has {len(text)} characters, more than {MAX_TEXT_CHARACTERS}", "split the step"
        )
    try:
        raw = _tokenizer().tokenize(text)
    except TokenError as error:
        start = _unclosed_quote(text)
        if start is None:
            raise ExpressionRefusal(
                0, "the expression cannot be split into words", "check quotes and comments"
            ) from error
        raise ExpressionRefusal(
            start, f"the quote {text[start]} is never closed", f"close it with {text[start]}"
        ) from error
    tokens: list[Token] = []
    for token in raw:
        if tokens and token.start < tokens[-1].end:
            continue  # sqlglot reads the suffix of 5L as a cast: the number token already contains it
        tokens.append(_token(text, token))
    return [*_join_strings(text, tokens), Token("end", "", len(text.rstrip()), len(text))]


def _token(text: str, raw: RawToken) -> Token:
    source = text[raw.start : raw.end + 1]
    kind = "operator"
    value = source
    match raw.token_type:
        case TokenType.NUMBER:
            kind = "number"
        case TokenType.STRING:
            _refuse_no_character(source[1:-1], raw.start + 1)
            kind, value = "string", unescape(source[1:-1])
            return Token(kind, value, raw.start, raw.end + 1, _lost_escape(source[1:-1]))
        case TokenType.RAW_STRING:
            kind, value = "string", source[2:-1]
        case TokenType.HEX_STRING:
            kind, value = "binary", raw.text
        case TokenType.IDENTIFIER:
            kind, value = "quoted", raw.text
        case _ if source[0].isalpha() or source[0] == "_" or (source[0].isdigit() and raw.token_type is TokenType.VAR):
            kind = "name"
            _refuse_invisible(source, raw.start)
    return Token(kind, value, raw.start, raw.end + 1)


def _refuse_invisible(name: str, start: int) -> None:
    """Rejects invisible characters, which come from copied text and make a name look like another column."""
    for index, character in enumerate(name):
        if not character.isprintable():
            raise ExpressionRefusal(start + index, f"the invisible character U+{ord(character):04X}", "remove it")


def _refuse_no_character(body: str, start: int) -> None:
    """Rejects escapes beyond the last character, which a Windows path contains by accident."""
    for match in _ESCAPE.finditer(body) if "\\U" in body else ():
        if match[2] is not None and int(match[2], 16) > sys.maxunicode:
            what = f"there is no character `{match[0]}`; the last one is U+10FFFF"
            raise ExpressionRefusal(start + match.start(), what, r"write `\\` for a backslash")


def _lost_escape(body: str) -> str:
    for match in _ESCAPE.finditer(body) if "\\" in body else ():
        if match[4] is not None and match[4] not in _KEPT_MEANING:
            return match[0]
    return ""


def _join_strings(text: str, tokens: list[Token]) -> list[Token]:
    """Joins adjacent string literals: `'it''s'` contains a quote (Spark 4), and `'a' 'b'` is ab."""
    joined: list[Token] = []
    for token in tokens:
        if token.kind == "string" and joined and joined[-1].kind == "string":
            last = joined[-1]
            quote = text[token.start] if last.end == token.start and text[last.end - 1] == text[token.start] else ""
            lost = last.lost or token.lost
            joined[-1] = Token("string", last.text + quote + token.text, last.start, token.end, lost)
        else:
            joined.append(token)
    return joined


def unescape(body: str) -> str:
    r"""Resolves the escapes of a Spark string literal: `\n`, octal, `\u0041`. `\%` and `\_` keep their backslash."""

    def one(match: re.Match[str]) -> str:
        four, eight, octal, other = match.groups()
        if four or eight:
            return chr(int(four or eight, 16))
        return chr(int(octal, 8)) if octal else _ESCAPES.get(other, other)

    if "\\" not in body:
        return body
    plain = _ESCAPE.sub(one, body)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # a pair of \u escapes is one character


def _unclosed_quote(text: str) -> int | None:
    opened: int | None = None
    index = 0
    while index < len(text):
        character = text[index]
        if opened is None:
            opened = index if character in "'\"`" else None
        elif character == "\\" and text[opened] != "`":
            index += 1
        elif character == text[opened]:
            opened = None
        index += 1
    return opened
