"""Values that are written as text, such as those of a delimited line, as columns of their types. Used in slots only.

A text either has exactly one value of the type or its record is bad: nothing is trimmed, rounded or cut to fit. The
only exceptions are those of JSON: a double is the nearest to the number, and a timestamp has six decimal places.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import polars as pl

from tidegate.datatypes import FLOAT_BOUND, DataType
from tidegate.formats.columns import make_decimals, make_series, polars_type
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.json.types import DOES_NOT_FIT, NUMBER, exact_decimal, read_local, read_moment, shown

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DIGITS_MAX: Final = 40
"""More than any integer of a column has, even with some zeros in front."""
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_FLOATING: Final = {"float": FLOAT_BOUND, "double": sys.float_info.max}
_BOOLEANS: Final = {"true": True, "false": False}
_WORDS: Final = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "Inf": float("inf"),
    "-Inf": float("-inf"),
}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LOCAL_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without time zone
_EPOCH_DAY: Final = _EPOCH.toordinal()
_MICROSECOND: Final = dt.timedelta(microseconds=1)

Convert = Callable[[str], Any]
"""Returns the value of a text, with dates and times as numbers. Raises ValueError with what was expected, and
OverflowError if no value of the type is as large or has as many digits.
"""


Texts = Sequence[str | None] | pl.Series
"""The texts of a column; None for NULL."""


def _whole(kind: DataType) -> Convert:
    bound = 1 << (_BITS[kind.kind] - 1)

    def convert(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError
        number = int(text) if len(text) <= _DIGITS_MAX else bound
        if not -bound <= number < bound:
            raise OverflowError
        return number

    return convert


def _boolean(text: str) -> bool:
    found = _BOOLEANS.get(text)
    if found is None:
        found = _BOOLEANS.get(text.lower())
    if found is None:
        raise ValueError
    return found


def _double(text: str) -> float:
    if not NUMBER.fullmatch(text):
        if text in _WORDS:
            return _WORDS[text]
        raise ValueError
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise OverflowError
    return number


def _float(text: str) -> float:
    number = _double(text)
    if abs(number) > FLOAT_BOUND and text not in _WORDS:
        raise OverflowError
    return number


def _decimal(kind: DataType) -> Convert:
    exact = exact_decimal(kind)

    def convert(text: str) -> Any:
        try:
            return exact(text)
        except ValueError as error:
            if DOES_NOT_FIT in str(error):
                raise OverflowError from error
            raise

    return convert


def _date(text: str) -> int:
    if not _DATE.fullmatch(text):
        raise ValueError
    return dt.date.fromisoformat(text).toordinal() - _EPOCH_DAY


def _timestamp(text: str) -> int:
    found = read_moment(text)
    return (found - (_LOCAL_EPOCH if found.tzinfo is None else _EPOCH)) // _MICROSECOND


def _timestamp_ntz(text: str) -> int:
    return (read_local(text) - _LOCAL_EPOCH) // _MICROSECOND


def _binary(text: str) -> bytes:
    return msgspec.convert(text, bytes)


_CONVERT: Final[Mapping[str, Convert]] = {
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "binary": _binary,
}


def text_converter(kind: DataType) -> Convert | None:
    """Returns the conversion of texts to values of a type; None for strings, which are the texts themselves."""
    if kind.kind in _BITS:
        return _whole(kind)
    return _decimal(kind) if kind.kind == "decimal" else _CONVERT.get(kind.kind)


class TextColumns:
    """Converts the texts of records to a frame with the columns `output`. All declared columns are checked."""

    def __init__(self, declared: Columns, output: Columns, place: Callable[[int, str], str], hint: str = "") -> None:
        """`place` returns where a value is, for messages, by the index and the name of its column.

        `hint` says what a text may be that is the name of its column.
        """
        self._hint = f"; {hint}" if hint else ""
        wanted = {name for name, _ in output}
        self._names = [name for name, _ in output]
        self._columns = [(at, name, kind, text_converter(kind)) for at, (name, kind) in enumerate(declared)]
        self._read = [one for one in self._columns if one[1] in wanted or one[3] is not None]
        self._place = place

    def convert(self, texts: Sequence[Texts], rows: Sequence[int], of: Sequence[RecordFailure]) -> Decoded:
        """Returns the frame, and the failures in order, among them those in `of`.

        :param texts: the texts of each declared column, one for each record.
        :param rows: the row of each of these records in the batch.
        :param of: the failures of the other records.
        """
        failures: dict[int, RecordFailure] = {}
        found: dict[str, pl.Series] = {}
        for at, name, kind, convert in self._read:
            values: Sequence[Any] | pl.Series = texts[at]
            if convert is not None:
                values = self._converted(at, name, kind, convert, texts[at], failures)
            if name in self._names:
                found[name] = _series(name, kind, values)
        frame = pl.DataFrame([found[name] for name in self._names]) if found else pl.DataFrame(height=len(rows))
        if not failures:
            return Decoded(frame, of)
        good = [index for index in range(len(rows)) if index not in failures]
        placed = [msgspec.structs.replace(one, row=rows[one.row]) for one in failures.values()]
        kept = frame[good] if found else pl.DataFrame(height=len(good))
        return Decoded(kept, sorted([*of, *placed], key=lambda one: one.row))

    def _converted(
        self,
        at: int,
        name: str,
        kind: DataType,
        convert: Convert,
        texts: Texts,
        failures: dict[int, RecordFailure],
    ) -> Sequence[Any] | pl.Series:
        """Returns the values of a column, None for a text that has none; its failure is added unless there is one."""
        certain = _cast_numbers(kind, texts)
        if certain is not None:
            return certain
        if isinstance(texts, pl.Series):
            texts = texts.to_list()
        try:
            return [None if text is None else convert(text) for text in texts]
        except (ValueError, OverflowError):
            values: list[Any] = []
        for index, text in enumerate(texts):
            try:
                values.append(None if text is None else convert(text))
            except (ValueError, OverflowError) as error:
                values.append(None)
                large = isinstance(error, OverflowError) and not isinstance(error, UnicodeError)
                failed = FailureKind.OUT_OF_RANGE if large else FailureKind.WRONG_TYPE
                reason = f"expected {kind}, got {shown(text)}" if not large else f"{shown(text)} {DOES_NOT_FIT}{kind}"
                reason += self._hint if text == name else ""
                failures.setdefault(index, RecordFailure(index, failed, f"{self._place(at, name)}: {reason}"))
        return values


def _cast_numbers(kind: DataType, texts: Texts) -> pl.Series | None:
    """Returns the numbers of a column, or None unless Polars reads every text, and reads it as the conversion would."""
    if kind.kind not in _BITS and kind.kind not in _FLOATING:
        return None
    column = texts if isinstance(texts, pl.Series) else pl.Series(texts, dtype=pl.String)
    found = column.cast(pl.Int64 if kind.kind in _BITS else pl.Float64, strict=False)
    if found.null_count() != column.null_count():
        return None
    if kind.kind in _BITS:
        bound = 1 << (_BITS[kind.kind] - 1)
        fits = found.is_between(-bound, bound - 1).all()
    else:
        fits = found.is_between(-_FLOATING[kind.kind], _FLOATING[kind.kind]).all()  # NaN and infinity have other texts
    return found.cast(polars_type(kind)) if fits else None


def _series(name: str, kind: DataType, values: Sequence[Any] | pl.Series) -> pl.Series:
    if isinstance(values, pl.Series):
        return values.alias(name)
    if kind.kind == "decimal":
        return make_decimals(name, kind, values)
    return make_series(name, polars_type(kind), values)
