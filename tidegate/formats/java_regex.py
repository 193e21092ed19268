r"""Translation of Java's regular expressions to the dialect of Rust's `regex`, which Polars runs. Pure.

Syntax whose meaning differs is rewritten (`.` and line ends, ASCII classes, case folding, `$`). Constructs that Rust
does not have (look-around, back-references, possessive quantifiers, matches between surrogates ...) are rejected by
name. Source: java.util.regex.Pattern and docs.rs/regex.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

LINE_END = r"[\n\r\x{85}\x{2028}\x{2029}]"
_NOT_LINE_END = r"[^\n\r\x{85}\x{2028}\x{2029}]"
_CLASSES = {
    "d": "0-9", "w": "a-zA-Z_0-9", "s": r" \t\n\x0b\x0c\r",
    "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9", "Upper": "A-Z", "Lower": "a-z", "XDigit": "0-9a-fA-F",
    "Punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e", "Space": r" \t\n\x0b\x0c\r", "Blank": r" \t",
}  # fmt: skip
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_QUANTIFIER = re.compile(r"[*+?]|\{(\d+)(,(\d*))?\}")
_JAVA_GROUP = re.compile(r"\?<([a-zA-Z][a-zA-Z0-9]*)>")
_COLUMN_GROUP = re.compile(r"\?<([a-zA-Z_][a-zA-Z0-9_]*)>")
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_MAX_REPEAT = 1000
_MAX_STEPS = 100_000
"""Nested repetitions multiply. Rust's `regex` accepts at most 10 MiB of steps, and matching examines each step for
every character of the text."""
_MAX_COLUMN_STEPS = 10_000
_WIDE_STEPS = 20
"""The measured number of steps of a class of nearly all characters, each of which has one to four bytes in UTF-8."""

_CLOSE_CLASS = r"close it with `]`, or write '\\[' for the character"


class RegexRefused(Exception):
    """A pattern that cannot be run with Java's meaning. The text names the part. `remedy` is a replacement if one is
    known, written as in SQL text, which has two backslashes for one.
    """

    def __init__(self, part: str, remedy: str = "") -> None:
        super().__init__(part)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated pattern. `nullable`: it can match the empty string; `ends`: it uses `$`; `groups`: the number of
    capturing groups; `ending`: the groups that contain `$` and may match one more line end than in Java; `names`: those
    of named groups, in order; `parts`: what follows each other in the pattern, as written and translated, if it is not
    a choice.
    """

    pattern: str
    nullable: bool
    ends: bool
    groups: int
    ending: frozenset[int]
    names: tuple[str, ...] = ()
    parts: tuple[tuple[str, str], ...] = ()


def derive_rust_regex(pattern: str, *, columns: bool = False) -> Translation:
    """Translates a whole pattern.

    `columns`: it takes every record apart, so it may have fewer steps, and names of groups may have underscores.

    Raises RegexRefused for a construct that Rust's `regex` lacks, or a syntax error.
    """
    reader = _Reader(pattern, _COLUMN_GROUP if columns else _JAVA_GROUP)
    found = reader.alternation()
    if reader.rest:
        raise RegexRefused("unmatched `)`", r"open its group with `(`, or write '\\)' for the character")
    most = _MAX_COLUMN_STEPS if columns else _MAX_STEPS
    if found.steps > most:
        raise RegexRefused(f"repetitions that multiply to more than {most:,} steps")
    ending, parts = frozenset(reader.ending), tuple(reader.parts if reader.branches == 1 else ())
    return Translation(found.text, found.nullable, found.ends, reader.groups, ending, tuple(reader.names), parts)


class _Part(NamedTuple):
    """Translated text, whether it can match the empty string, its number of engine steps, and whether it uses `$`."""

    text: str
    nullable: bool
    steps: int = 1
    ends: bool = False


def _count(digits: str | None) -> int:
    """Returns the number, or one above the limit if it is too large: Python converts only some thousand digits."""
    known = (digits or "").lstrip("0")
    return int(known or 0) if len(known) <= len(str(_MAX_REPEAT)) else _MAX_REPEAT + 1


class _Reader:
    def __init__(self, pattern: str, named: re.Pattern[str]) -> None:
        self._named = named
        flags = _FLAGS.match(pattern)
        self._fold = self._dotall = False
        self._at = 0
        if flags:
            if set(flags[1]) - {"i", "s"}:
                raise RegexRefused(f"the flags `{flags[0]}`", "use (?i) and (?s) alone")
            self._fold, self._dotall = "i" in flags[1], "s" in flags[1]
            self._at = flags.end()
        self._pattern = pattern
        self.groups = 0
        self.names: list[str] = []
        self.branches = 0
        """The number of branches of the last choice that was read."""
        self.parts: list[tuple[str, str]] = []
        """The parts of the last sequence that was read: as written, and translated."""
        self.ending = set[int]()
        self._open: list[int] = []

    @property
    def rest(self) -> str:
        return self._pattern[self._at :]

    def _take(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def alternation(self) -> _Part:
        """Reads branches up to `)` or the end."""
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        self.branches = len(branches)
        return _Part(
            "|".join(branch.text for branch in branches),
            any(branch.nullable for branch in branches),
            sum(branch.steps for branch in branches),
            any(branch.ends for branch in branches),
        )

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        written: list[str] = []
        while self.rest and self.rest[0] not in "|)":
            start = self._at
            if self._take("$"):
                self.ending.update(self._open)
                parts.append(_Part(rf"(?:\r\n|{LINE_END})?\z", nullable=True, ends=True))
            else:
                parts.append(self._quantified())
            written.append(self._pattern[start : self._at])
            if parts[-1].ends and self.rest and self.rest[0] not in "|)":
                raise RegexRefused("`$` before the end of the pattern")
        self.parts = [(text, part.text) for text, part in zip(written, parts, strict=True)]
        return _Part(
            "".join(part.text for part in parts),
            all(part.nullable for part in parts),
            sum(part.steps for part in parts),
            any(part.ends for part in parts),
        )

    def _quantified(self) -> _Part:
        part = self._atom()
        quantifier = _QUANTIFIER.match(self._pattern, self._at)
        if quantifier is None:
            if self.rest.startswith("{"):
                raise RegexRefused("`{` that is not a quantifier", r"write '\\{'")
            return part
        if part.ends:
            raise RegexRefused("`$` in a group that is repeated")
        self._at = quantifier.end()
        least, most = _count(quantifier[1]), _count(quantifier[3])
        if max(least, most) > _MAX_REPEAT:
            raise RegexRefused(f"more than {_MAX_REPEAT} repetitions")
        optional = quantifier[0] in ("*", "?") or (quantifier[1] is not None and least == 0)
        lazy = self._take("?")
        if self.rest[:1] in ("+", "*", "?") and self.rest:
            raise RegexRefused("a possessive or doubled quantifier")
        text = part.text + quantifier[0] + "?" * lazy
        return _Part(text, part.nullable or optional, part.steps * max(least, most, 1))

    def _atom(self) -> _Part:
        character = self._pattern[self._at]
        self._at += 1
        if character == "(":
            return self._group()
        if character == "[":
            negated = self.rest.startswith("^")
            return _Part(self._class(), nullable=False, steps=_WIDE_STEPS if negated else 1)
        if character == "\\":
            return self._escape()
        if character == ".":
            return _Part(r"(?s:.)" if self._dotall else _NOT_LINE_END, nullable=False, steps=_WIDE_STEPS)
        if character == "^":
            return _Part(r"\A", nullable=True)
        if character in "*+?{":
            raise RegexRefused(
                f"`{character}` without anything to repeat", rf"for the character itself write '\\{character}'"
            )
        return _Part(self._literal(character), nullable=False)

    def _group(self) -> _Part:
        opening = "(?:"
        if self._take("?:"):
            pass
        elif named := self._named.match(self._pattern, self._at):
            self._at = named.end()
            self.groups += 1
            self.names.append(named[1])
            opening = f"(?P<{named[1]}>"
        elif self.rest.startswith("?"):
            raise RegexRefused(f"`({self.rest[:2]}` (look-around, an atomic group, or a flag inside the pattern)")
        else:
            self.groups += 1
            opening = "("
        outside = list(self._open)
        if opening != "(?:":
            self._open.append(self.groups)
        inner = self.alternation()
        self._open = outside
        if not self._take(")"):
            raise RegexRefused("a group that is not closed", r"close it with `)`, or write '\\(' for the character")
        return inner._replace(text=f"{opening}{inner.text})")

    def _literal(self, character: str) -> str:
        if self._fold and character.isalpha() and character.isascii():
            return f"[{character.lower()}{character.upper()}]"
        return character if character.isalnum() else f"\\x{{{ord(character):x}}}"

    def _escape(self) -> _Part:
        if not self.rest:
            raise RegexRefused("a backslash at the end")
        character = self._pattern[self._at]
        if character in "bB":
            self._at += 1
            return _Part(f"\\{character}", nullable=True)
        if character in "AZz":
            self._at += 1
            if character == "Z":
                raise RegexRefused(r"`\Z`", r"write '\\z'")
            return _Part(f"\\{character}", nullable=True)
        if self._take("Q"):
            quoted, _, _ = self.rest.partition("\\E")
            self._at = min(self._at + len(quoted) + 2, len(self._pattern))
            if len(quoted) != 1 and _QUANTIFIER.match(self._pattern, self._at):
                raise RegexRefused(r"a quantifier after \Q...\E")
            return _Part("".join(map(self._literal, quoted)), nullable=not quoted, steps=len(quoted))
        members = self._named_class()
        if members is not None:
            return _Part(f"[{members}]", nullable=False, steps=_WIDE_STEPS if members.startswith("[^") else 1)
        return _Part(self._literal(self._escaped_character()), nullable=False)

    def _named_class(self) -> str | None:
        r"""Returns the inside of `\d`, `\W`, `\p{Alpha}` as a class of Rust; None if no such class follows."""
        character = self._pattern[self._at]
        if character in "dws":
            self._at += 1
            return _CLASSES[character]
        if character in "DWS":
            self._at += 1
            return f"[^{_CLASSES[character.lower()]}]"
        named = re.compile(r"([pP])\{(\w+)\}").match(self._pattern, self._at)
        if named is None:
            return None
        if named[2] not in _CLASSES:
            raise RegexRefused(f"the class `\\{named[0]}`")
        if self._fold and named[2] in ("Upper", "Lower"):
            raise RegexRefused(f"`\\{named[0]}` together with (?i)")
        self._at = named.end()
        return f"[^{_CLASSES[named[2]]}]" if named[1] == "P" else _CLASSES[named[2]]

    def _escaped_character(self) -> str:
        character = self._pattern[self._at]
        for marker, pattern in (("x", r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}"), ("u", r"u([0-9a-fA-F]{4})")):
            code = re.compile(pattern).match(self._pattern, self._at) if character == marker else None
            if code is not None:
                self._at = code.end()
                value = int(next(group for group in code.groups() if group), 16)
                if value > 0x10FFFF or 0xD800 <= value < 0xE000:
                    raise RegexRefused(f"the character `\\{code[0]}`")
                return chr(value)
        self._at += 1
        if character.isalnum():
            if character not in _CONTROLS:
                raise RegexRefused(f"`\\{character}`" + (", a back-reference" if character.isdigit() else ""))
            return _CONTROLS[character]
        return character

    def _class(self) -> str:
        negated = self._take("^")
        members: list[str] = []
        while True:
            if not self.rest:
                raise RegexRefused("a class that is not closed", _CLOSE_CLASS)
            if self._take("]"):
                if not members:
                    raise RegexRefused("an empty class, or `]` as its first member", r"write '\\]'")
                return f"[{'^' * negated}{''.join(members)}]"
            if self.rest.startswith("&&") or self.rest.startswith("["):
                raise RegexRefused("classes inside a class")
            members.append(self._member())

    def _member(self) -> str:
        if self._take("\\"):
            if not self.rest:
                raise RegexRefused("a class that is not closed", _CLOSE_CLASS)
            members = self._named_class()
            if members is not None:
                return members
            first = self._escaped_character()
        else:
            first = self._pattern[self._at]
            self._at += 1
        if not self.rest.startswith("-") or self.rest[1:2] in ("]", ""):
            return self._span(first, first)
        self._at += 1
        if self.rest[0] == "[":
            raise RegexRefused("classes inside a class")
        last = self._pattern[self._at]
        self._at += 1
        if last == "\\":
            last = self._escaped_character()
        if last < first:
            raise RegexRefused(f"the range {first}-{last} is empty")
        return self._span(first, last)

    def _span(self, first: str, last: str) -> str:
        text = f"\\x{{{ord(first):x}}}-\\x{{{ord(last):x}}}" if first != last else f"\\x{{{ord(first):x}}}"
        if not self._fold:
            return text
        for low, high, shift in (("a", "z", -32), ("A", "Z", 32)):
            start, end = max(first, low), min(last, high)
            if start <= end:
                text += f"{chr(ord(start) + shift)}-{chr(ord(end) + shift)}"
        return text


def derive_rust_replacement(replacement: str, groups: int) -> str:
    r"""Translates Java's replacement text to Rust's: `$1`, `${name}`, `\$`. A literal `$` is doubled.

    Raises RegexRefused for a group that does not exist, a lone `$` or a backslash at the end.
    """
    parts: list[str] = []
    index = 0
    while index < len(replacement):
        character = replacement[index]
        index += 1
        if character == "\\":
            if index == len(replacement):
                raise RegexRefused("a backslash at its end", r"write '\\\\'")
            parts.append(replacement[index].replace("$", "$$"))
            index += 1
        elif character == "$":
            number = re.compile(r"\d+").match(replacement, index)
            if number is None or int(number[0][0]) > groups:
                raise RegexRefused("`$` without a group of that number", r"write '\\$'")
            digits = number[0][0]
            for digit in number[0][1:]:
                if int(digits + digit) > groups:
                    break
                digits += digit
            index += len(digits)
            parts.append(f"${{{digits}}}")
        else:
            parts.append(character)
    return "".join(parts)


def derive_like_regex(pattern: str, escape: str) -> str:
    """Translates a LIKE pattern to a Rust pattern for the whole text.

    Raises RegexRefused if the escape character precedes anything other than `%`, `_` or itself.
    """
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None or following not in ("%", "_", escape):
                raise RegexRefused(f"the escape character {escape} before {following or 'the end'}")
            parts.append(f"\\x{{{ord(following):x}}}")
        elif character in "%_":
            parts.append("(?s:.*)" if character == "%" else "(?s:.)")
        else:
            parts.append(f"\\x{{{ord(character):x}}}")
    return r"\A" + "".join(parts) + r"\z"
