"""Texts to columns: whole, or the groups of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import polars as pl
from typing_extensions import override

from tidegate.formats.columns import read_utf8
from tidegate.formats.contract import Columns, Decoded, Decoder, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.java_regex import derive_rust_regex
from tidegate.formats.kinds.text import LINE
from tidegate.formats.text_values import TextColumns

_SHOWN_MAX: Final = 40
_BEGINNINGS_MAX: Final = 64
_LINE_END: Final = r"\r?\n\z"


class _Texts(NamedTuple):
    """The texts of a batch without their line ends, their rows, and the other records."""

    column: pl.Series
    rows: Sequence[int]
    failures: list[RecordFailure]


class WholeTextDecoder(Decoder):
    """Decodes each value to the column `value`, if that is read."""

    def __init__(self, output: Columns) -> None:
        self._read = bool(output)

    @override
    def decode(self, messages: Messages) -> Decoded:
        texts = _read_texts(messages.values)
        if not self._read:
            return Decoded(pl.DataFrame(height=len(texts.rows)), texts.failures)
        return Decoded(texts.column.to_frame(), texts.failures)


class PatternDecoder(Decoder):
    """Decodes the named groups of a pattern that matches the whole text."""

    def __init__(self, pattern: str, null: str | None, declared: Columns, output: Columns) -> None:
        self._translation = derive_rust_regex(pattern, columns=True)
        self._groups = pl.col(LINE).str.extract_groups(rf"\A({self._translation.pattern})\z")
        self._names = [name for name, _ in declared]
        self._null = null
        self._columns = TextColumns(declared, output, lambda _, name: f"the group `{name}`")

    @override
    def decode(self, messages: Messages) -> Decoded:
        texts = _read_texts(messages.values)
        groups = texts.column.to_frame().select_seq(self._groups).to_series().struct.unnest()
        failures, rows = texts.failures, texts.rows
        unmatched = groups[groups.columns[0]].is_null()  # the group around the whole pattern
        if unmatched.any():
            bad = unmatched.arg_true().to_list()
            failures = [*failures, *self._explain(texts.column.gather(bad), [rows[index] for index in bad])]
            failures.sort(key=lambda one: one.row)
            groups = groups.filter(~unmatched)
            rows = [row for row, failed in zip(rows, unmatched, strict=True) if not failed]
        found = groups.select(self._names)
        if self._null is not None:
            found = found.select(pl.when(pl.all() != self._null).then(pl.all()))
        return self._columns.convert([found[name] for name in self._names], rows, failures)

    @cached_property
    def _beginnings(self) -> list[tuple[str, str]]:
        """Patterns for the first parts of the pattern, more each time, and what follows them; empty: the end."""
        parts = self._translation.parts
        step = -(-len(parts) // _BEGINNINGS_MAX)
        ends = [*range(0, len(parts), step), len(parts)]
        return [
            (
                rf"\A({''.join(text for _, text in parts[:end])})",
                "".join(written for written, _ in parts[end : end + step]),
            )
            for end in ends
        ]

    def _explain(self, texts: pl.Series, rows: Sequence[int]) -> list[RecordFailure]:
        """Returns the failures of texts that the pattern does not match: how many of its parts do, and to where."""
        if not self._translation.parts:  # a choice
            reason = "no branch of the pattern matches"
            return [_mismatch(row, f"{reason} {_shown(text)}") for row, text in zip(rows, texts, strict=True)]
        reached = pl.DataFrame([texts.str.contains(one).alias(str(at)) for at, (one, _) in enumerate(self._beginnings)])
        counts = reached.select(pl.sum_horizontal(pl.all())).to_series().to_list()
        failures = []
        for row, text, count in zip(rows, texts, counts, strict=True):
            beginning, expected = self._beginnings[count - 1]
            matched = pl.Series([text]).str.extract(beginning)[0] or ""
            place = f"at character {len(matched) + 1}, {_shown(text[len(matched) :])}"
            wanted = f"`{expected[:_SHOWN_MAX]}`" if expected else "the end"
            failures.append(_mismatch(row, f"the pattern expects {wanted} {place}"))
        return failures


def _mismatch(row: int, message: str) -> RecordFailure:
    return RecordFailure(row, FailureKind.PATTERN_MISMATCH, message)


def _shown(text: str) -> str:
    if not text:
        return "where the text ends"
    return f"in {text[:_SHOWN_MAX]!r}" + ("..." if len(text) > _SHOWN_MAX else "")


def _read_texts(values: Sequence[bytes | None]) -> _Texts:
    """Reads values as texts; those of no value or in another encoding are failures."""
    texts, errors = read_utf8(pl.Series(LINE, values, dtype=pl.Binary))
    rows: Sequence[int] = range(len(values))
    failures = [_failure(row, errors.get(row)) for row in texts.is_null().arg_true()]
    if failures:
        rows = texts.is_not_null().arg_true().to_list()
        texts = texts.drop_nulls()
    if texts.str.ends_with("\n").any():
        texts = texts.str.replace(_LINE_END, "")
    return _Texts(texts, rows, failures)


def _failure(row: int, error: UnicodeDecodeError | None) -> RecordFailure:
    if error is None:
        return RecordFailure(row, FailureKind.NULL_VALUE, "a tombstone has no text")
    return RecordFailure(row, FailureKind.NOT_UTF8, f"the text is not UTF-8: {error.reason} at byte {error.start}")
