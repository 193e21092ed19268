"""The tokens of an expression's text with their offsets, as Spark's lexer splits it, and their constants."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from decimal import Decimal

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    DOUBLE,
    FLOAT,
    INT,
    MAX_PRECISION,
    SMALLINT,
    TINYINT,
    DataType,
)
from tidegate.expressions.decimal_types import decimal_of_literal
from tidegate.expressions.errors import ExpressionRefusal, with_article
from tidegate.expressions.syntax_tree import Constant

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


_TOKEN = re.compile(
    r"""
      (?P<blank>    \s+ | --[^\r\n]* | /\*.*?\*/ )
    | (?P<raw>      [rR] (?: '[^']*' | "[^"]*" ) )
    | (?P<binary>   [xX] '[^']*' )
    | (?P<string>   ' (?: [^'\\] | \\. )* ' | " (?: [^"\\] | \\. )* " )
    | (?P<quoted>   ` (?: [^`] | `` )* ` )
    | (?P<number>   [0-9]+ \. [0-9]* (?: [eE][+-]?[0-9]+ )? \w*
                  | [0-9]+ (?: [eE][+-]?[0-9]+ )? (?: BD | [LSYDF] )? (?!\w) )
    | (?P<name>     \w [^\s()\[\]{}&^:,.\-=><%!|+;/\\*~?@#$'"`]* )
    | (?P<operator> (?!/\*) (?: <=> | === | !== | [=!<>]= | => | =< | <> | -> | :: | \|\| | && | [^'"`] ) )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
"""A name may begin with a digit, and contains any character that is not a sign, so that invisible ones are found."""


def derive_tokens(text: str) -> list[Token]:
    """Returns all tokens of `text`, followed by one of kind `end`.

    Raises ExpressionRefusal if the text is too long, or contains a quote that is never closed or a character outside
    the grammar.
    """
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ExpressionRefusal(
            0,
            f"the expression has {len(text):,} characters, and {MAX_TEXT_CHARACTERS:,} are allowed",
            "split it into two steps",
        )
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            what, end = ("comment", "*/") if text[at] == "/" else (f"quote {text[at]}", text[at])
            raise ExpressionRefusal(at, f"the {what} is never closed", f"close it with {end}")
        if found.lastgroup != "blank":
            tokens.append(_token(str(found.lastgroup), found[0], at))
        at = found.end()
    return [*_join_strings(text, tokens), Token("end", "", len(text.rstrip()), len(text))]


def _token(kind: str, source: str, start: int) -> Token:
    end = start + len(source)
    match kind:
        case "string":
            body = source[1:-1]
            _refuse_no_character(body, start + 1)
            return Token("string", unescape(body), start, end, _lost_escape(body))
        case "raw":
            return Token("string", source[2:-1], start, end)
        case "binary":
            return Token("binary", source[2:-1], start, end)
        case "quoted":
            return Token("quoted", source[1:-1].replace("``", "`"), start, end)
    _refuse_invisible(source, start)
    return Token(kind, source, start, end)


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


_DECIMAL = DataType("decimal")
_NUMBER_SUFFIXES = {"L": BIGINT, "S": SMALLINT, "Y": TINYINT, "D": DOUBLE, "F": FLOAT, "BD": _DECIMAL}
_GREATEST = {"float": Decimal(2**128 - 2**104), "double": Decimal(2**1024 - 2**971)}
"""The greatest values of the floating-point types."""
MAX_DIGITS = 1_000
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?")
"""Limits the exponent to as many digits as any type needs: written out, a greater number would exhaust the memory."""
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def number_literal(token: Token, start: int, *, negative: bool = False) -> Constant:
    """Returns `5`, `5L`, `1.5` (a decimal), `1e3`, `1.5D` ... as a constant of the type that Spark gives it.

    Raises ExpressionRefusal for an unknown suffix, or a number that does not fit the type of its suffix.
    """
    if len(token.text) > MAX_DIGITS:
        raise ExpressionRefusal(start, f"the number has more than {MAX_DIGITS:,} characters", "use a smaller number")
    text = ("-" if negative else "") + token.text
    digits = text.rstrip("LlSsYyDdFfBb")
    suffix = text[len(digits) :].upper()
    if suffix not in _NUMBER_SUFFIXES and suffix:
        raise ExpressionRefusal(start, f"`{text}` is not a number", "use the suffix L, S, Y, D, F or BD")
    if not _NUMBER.fullmatch(digits):
        raise ExpressionRefusal(
            start, f"`{text}` is not a number", "write it as 5, 1.5 or 1e3, with an exponent below 10000"
        )
    kind = _NUMBER_SUFFIXES.get(suffix)
    if kind is None and "e" in digits.lower():
        kind = DOUBLE
    if kind is None and "." in digits:
        kind = _DECIMAL
    if kind is None:
        kind = next((k for k in (INT, BIGINT) if _fits(int(digits), k)), _DECIMAL)
    if kind in (DOUBLE, FLOAT):
        if abs(Decimal(digits)) > _GREATEST[kind.kind]:
            raise ExpressionRefusal(start, f"`{text}` does not fit into {kind}", "use a smaller number")
        return Constant(start, float(digits), kind)
    if kind is _DECIMAL:
        return _decimal_literal(start, text, Decimal(digits))
    if not digits.lstrip("-").isdigit() or not _fits(int(digits), kind):
        raise ExpressionRefusal(start, f"`{text}` is not {with_article(kind)}", "choose a wider type")
    return Constant(start, int(digits), kind)


def _decimal_literal(start: int, text: str, number: Decimal) -> Constant:
    kind = decimal_of_literal(number)
    if kind is None:
        raise ExpressionRefusal(
            start,
            f"`{text}` has more than {MAX_PRECISION} digits, the maximum of a decimal",
            "write `1.5D` for a double",
        )
    return Constant(start, format(number or number.copy_abs(), "f"), kind)  # Java's decimals have no negative zero


def _fits(value: int, kind: DataType) -> bool:
    return -(1 << (_BITS[kind.kind] - 1)) <= value < 1 << (_BITS[kind.kind] - 1)


def binary_literal(token: Token) -> Constant:
    """Returns the bytes of `x'4142'` as hexadecimal text. Raises ExpressionRefusal for other text."""
    digits = token.text if len(token.text) % 2 == 0 else "0" + token.text
    try:
        bytes.fromhex(digits)
    except ValueError as error:
        raise ExpressionRefusal(token.start, f"x'{token.text}' is not hexadecimal", "use 0-9 and A-F") from error
    return Constant(token.start, digits.lower(), BINARY)


class TokenReader:
    """The operations on tokens that are independent of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def peek(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def _after(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self.peek
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def unexpected(self, wanted: str) -> ExpressionRefusal:
        """Returns the refusal of the next token."""
        token = self.peek
        what = "the expression ends too early" if token.kind == "end" else f"unexpected `{token.text}`"
        return ExpressionRefusal(token.start, what, wanted)

    def _word(self, *words: str) -> bool:
        """Reads the next token if it is one of these keywords, and returns whether it was."""
        if self.peek.kind == "name" and self.peek.text.lower() in words:
            self._next()
            return True
        return False

    def _is_word(self, ahead: int, *words: str) -> bool:
        token = self._after(ahead)
        return token.kind == "name" and token.text.lower() in words

    def _sign(self, *signs: str) -> Token | None:
        if self.peek.kind == "operator" and self.peek.text in signs:
            return self._next()
        return None

    def _expect(self, sign: str) -> Token:
        token = self._sign(sign)
        if token is None:
            raise self.unexpected(f"expected `{sign}`")
        return token

    def _expect_word(self, word: str) -> None:
        if not self._word(word):
            raise self.unexpected(f"expected {word.upper()}")
