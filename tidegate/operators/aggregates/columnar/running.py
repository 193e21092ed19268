"""Running totals of a batch over columns: in C where its results are certain to be those of `Aggregate.run`.

`run` is the definition. It computes all other aggregates, all rows that C leaves over, and everything where there is no
C library.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Final, NamedTuple

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.expressions.bounds import BATCH_BYTES_MAX
from tidegate.formats.columns import make_column, plain_values, polars_type
from tidegate.native.library import loaded
from tidegate.native.running import NativeTotals, TotalDeclaration, TotalFunction, TotalInput
from tidegate.operators.aggregates.contract import (
    Aggregate,
    AggregateField,
    Numbers,
    argument_type,
    blank,
    derive_choice,
)
from tidegate.operators.runtime import BatchTooLarge

OVERFLOW: Final = "a running sum leaves the range of bigint"
_REAL: Final = frozenset({"float", "double"})
_WHOLE: Final = frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz"})
"""Types that C holds as a double or as an int64."""
_TEXT: Final = frozenset({"string", "binary"})


class KeyedRows(NamedTuple):
    """The rows of a batch with their keys."""

    frame: pl.DataFrame
    numbers: pl.Series
    """UInt32: the number of each row's key."""


class Accumulators(NamedTuple):
    """The accumulators of the keys of a batch, with one value per key."""

    exist: pl.Series
    """Boolean. A key that does not exist has NULLs in all columns and begins with the zero of each aggregate."""
    columns: Sequence[pl.Series]
    """The fields of all aggregates, one after the other."""


class RunningTotals:
    """The aggregates of a step."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._parts: list[_Part] = []
        place = 0
        for aggregate in aggregates:
            end = place + len(aggregate.fields)
            self._parts.append(_Part(aggregate, slice(place, end)))
            place = end
        library = loaded()
        self._in_c = [] if library is None else [one for part in self._parts if (one := _find_native(part))]
        self._in_python = [part for part in self._parts if part not in [one.part for one in self._in_c]]
        self._native = None if library is None else NativeTotals(library.free, [one.declare() for one in self._in_c])

    def add(self, rows: KeyedRows, totals: Accumulators) -> tuple[list[pl.Series], list[pl.Series]]:
        """Returns the result of each aggregate after each row, and the accumulators after all rows.

        Raises OverflowError for a sum that leaves the range of its type. Raises BatchTooLarge: a large text of a total
        may be in the results of many rows, each of which is a copy once it is written.
        """
        results: dict[str, pl.Series] = {}
        columns = list(totals.columns)
        room = _Room(rows.frame.height)
        if self._native is not None and self._in_c:
            added = [one.add(rows.frame, totals) for one in self._in_c]
            moved = self._native.run(rows.numbers, len(totals.exist), added)
            fields = iter(moved.fields)
            for one, sent, result, left in zip(self._in_c, added, moved.results, moved.left, strict=True):
                own = [next(fields) for _ in sent.fields]
                found, columns[one.part.place] = one.finish(result, own, rows, totals, left)
                results[one.part.name] = found
                if one.part.kind.kind in _TEXT:
                    room.take(_text_size(found))
        plain = PlainKeys(rows.numbers.to_list(), totals.exist.to_list()) if self._in_python else PlainKeys([], [])
        for part in self._in_python:
            values, accumulators = part.run(rows.frame, plain, totals.columns[part.place])
            if part.kind.kind in _TEXT:
                room.take(sum(map(len, filter(None, values))))
            results[part.name] = _column(part.name, part.kind, values)
            columns[part.place] = part.columns_of(accumulators)
        return [results[part.name] for part in self._parts], columns

    def result_bytes_max(self, rows: KeyedRows, totals: Accumulators) -> int:
        """Returns a bound for the texts of results that holds for any subset of the rows: each of them is from a total
        or from the batch.
        """
        size = 0
        for part in self._parts:
            if part.kind.kind in _TEXT:
                longest = max(map(len, filter(None, part.aggregate.read(rows.frame))), default=0)
                stored = plain_values(totals.columns[part.place][0])
                sizes = [max(longest, len(value or "")) for value in stored]
                size += sum(sizes[number] for number in rows.numbers.to_list())
        return size

    def last_rows(self, numbers: pl.Series, keys: int) -> pl.Series:
        """Returns the last row of each key, in order. `numbers` has the number of each row's key."""
        if self._native is not None:
            return self._native.last_rows(numbers, keys)
        last = dict(zip(numbers.to_list(), range(len(numbers)), strict=True))
        return pl.Series(sorted(last.values()), dtype=pl.UInt32)


class _Room:
    """What the texts of the results of a batch may take. A single row has as much as it needs."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._bytes = BATCH_BYTES_MAX

    def take(self, size: int) -> None:
        """Raises BatchTooLarge."""
        self._bytes -= size
        if self._bytes < 0 and self._rows > 1:
            raise BatchTooLarge(f"results of {self._rows} rows have more than {BATCH_BYTES_MAX} bytes")


class PlainKeys(NamedTuple):
    """The keys of rows as plain values."""

    numbers: Numbers
    exist: Sequence[bool]
    """For each key."""


class _Part:
    """One aggregate of a step, in Python."""

    def __init__(self, aggregate: Aggregate, place: slice) -> None:
        self.aggregate = aggregate
        self.name = aggregate.name
        self.kind = aggregate.call.type
        self.place = place
        """Where its fields are among those of all aggregates."""
        self.choice = derive_choice(aggregate.call)

    def run(
        self, frame: pl.DataFrame, keys: PlainKeys, columns: Sequence[pl.Series]
    ) -> tuple[list[Any], list[list[Any]]]:
        """Adds rows with `Aggregate.run`. Returns the result after each row, and the new accumulators."""
        named = zip(self.aggregate.fields, columns, strict=True)
        own = [_with_zero(plain_values(column), field, keys.exist) for field, column in named]
        values = self.aggregate.read(frame)
        if self.choice is None:
            return self.aggregate.run(keys.numbers, values, own), own
        return run_counted(self.aggregate, keys.numbers, values, own, self.choice.derive_mask(frame).to_list()), own

    def columns_of(self, accumulators: Sequence[Sequence[Any]]) -> list[pl.Series]:
        """Returns the columns of its fields."""
        named = zip(self.aggregate.fields, accumulators, strict=True)
        return [_column(field.suffix, field.type, values) for field, values in named]


class _NativePart:
    """One aggregate of a step in C, over doubles and int64s. Python adds the rows that C leaves over."""

    def __init__(self, part: _Part, function: TotalFunction) -> None:
        self.part = part
        self.function = function
        self.fields = part.aggregate.fields
        kinds = [field.type.kind for field in self.fields]
        self._storage = [None if kind in _TEXT else pl.Float64() if kind in _REAL else pl.Int64() for kind in kinds]
        """For each field its type in C. A sum that does not fit into doubles is in a field that C does not have."""
        self._needs_existence = function is TotalFunction.FIRST and len(self.fields) == 1
        """Whether it depends on the existence of a key whether this is the first row that counts."""

    def declare(self) -> TotalDeclaration:
        """Returns the declaration of the total for C."""
        aggregate = self.part.aggregate
        takes_null = aggregate.takes_null and not aggregate.call.ignore_nulls
        count = sum(storage is not None for storage in self._storage) + self._needs_existence
        return TotalDeclaration(aggregate.name, self.function, self._storage[0] == pl.Float64(), takes_null, count)

    def add(self, frame: pl.DataFrame, totals: Accumulators) -> TotalInput:
        """Returns what C adds to what."""
        stored = list(zip(totals.columns[self.part.place], self._storage, strict=True))
        fields = [_cast(column, storage) for column, storage in stored if storage is not None]
        if self._needs_existence:
            fields.append(totals.exist.cast(pl.Int64))
        excluded = [column for column, storage in stored if storage is None and column.null_count() < len(column)]
        arguments = self.part.aggregate.arguments
        argument = frame[arguments[0]] if arguments else None
        if argument is not None and self.function is not TotalFunction.COUNT:
            argument = _cast(argument, self._storage[0])
        return TotalInput(argument, self.condition(frame), excluded[0] if excluded else None, fields)

    def condition(self, frame: pl.DataFrame) -> pl.Series | None:
        """Returns the column of FILTER."""
        choice = self.part.choice
        return frame[choice.condition] if choice is not None and choice.condition else None

    def finish(
        self, result: pl.Series, fields: Sequence[pl.Series], rows: KeyedRows, totals: Accumulators, left: Sequence[int]
    ) -> tuple[pl.Series, list[pl.Series]]:
        """Returns the results and the accumulators after C has added all rows except those in `left`."""
        moved = iter(fields)
        columns = [
            column if storage is None else _cast(next(moved), polars_type(field.type))
            for column, storage, field in zip(totals.columns[self.part.place], self._storage, self.fields, strict=True)
        ]
        result = _cast(result, polars_type(self.part.kind))
        if not left:
            return result, columns
        numbers: dict[int, int] = {}
        plain = [numbers.setdefault(key, len(numbers)) for key in rows.numbers[left].to_list()]
        keys = list(numbers)
        there = PlainKeys(plain, totals.exist[keys].to_list())
        values, accumulators = self.part.run(rows.frame[left], there, [column[keys] for column in columns])
        replaced = zip(columns, self.part.columns_of(accumulators), strict=True)
        return (
            _replaced(result, left, _column(self.part.name, self.part.kind, values)),
            [_replaced(column, keys, others) for column, others in replaced],
        )


class _PickingPart(_NativePart):
    """`first` or `last` of values of any type. C picks places: those of keys are before those of rows."""

    def __init__(self, part: _Part, function: TotalFunction) -> None:
        super().__init__(part, function)
        self._storage[0] = pl.Int64()

    @override
    def add(self, frame: pl.DataFrame, totals: Accumulators) -> TotalInput:
        keys, (_, *seen) = len(totals.exist), totals.columns[self.part.place]
        places = pl.int_range(keys + frame.height, eager=True)
        picked = places[keys:]
        aggregate = self.part.aggregate
        if aggregate.call.ignore_nulls:
            picked = blank(picked, frame[aggregate.arguments[0]].is_null())
        begun = seen or ([totals.exist] if self.function is TotalFunction.FIRST else [])
        return TotalInput(picked, self.condition(frame), None, [places[:keys], *(one.cast(pl.Int64) for one in begun)])

    @override
    def finish(
        self, result: pl.Series, fields: Sequence[pl.Series], rows: KeyedRows, totals: Accumulators, left: Sequence[int]
    ) -> tuple[pl.Series, list[pl.Series]]:
        stored, *seen = totals.columns[self.part.place]
        values = pl.concat([stored, rows.frame[self.part.aggregate.arguments[0]]], rechunk=True)
        moved = [one.cast(pl.Boolean) for one, _ in zip(fields[1:], seen, strict=False)]
        first = values[fields[0].cast(pl.UInt32)]
        return values[result.cast(pl.UInt32)].alias(self.part.name), [first, *moved]


def _find_native(part: _Part) -> _NativePart | None:
    """Returns the form of an aggregate in C, if there is one."""
    function, call = part.aggregate.native_function, part.aggregate.call
    if function is None or any(argument.type.kind == "void" for argument in call.arguments):
        return None
    if function is TotalFunction.COUNT or argument_type(call).kind in _REAL | _WHOLE:
        return _NativePart(part, function)
    return _PickingPart(part, function) if function in (TotalFunction.FIRST, TotalFunction.LAST) else None


def _text_size(texts: pl.Series) -> int:
    sizes = texts.str.len_bytes() if texts.dtype == pl.String else texts.bin.size()
    return int(sizes.sum())


def run_counted(
    aggregate: Aggregate, numbers: Numbers, values: Sequence[Any], columns: list[list[Any]], mask: Sequence[bool]
) -> list[Any]:
    """Runs `Aggregate.run` for the rows that count according to `mask`. Other rows leave the result unchanged."""
    results = aggregate.results(list(zip(*columns, strict=True)))
    moved = iter(aggregate.run(list(compress(numbers, mask)), list(compress(values, mask)), columns))
    found: list[Any] = []
    for number, counts in zip(numbers, mask, strict=True):
        if counts:
            results[number] = next(moved)
        found.append(results[number])
    return found


def _with_zero(values: list[Any], field: AggregateField, exist: Sequence[bool]) -> list[Any]:
    if field.zero is None:
        return values
    return [field.zero if value is None and not there else value for value, there in zip(values, exist, strict=True)]


def _cast(column: pl.Series, dtype: Any) -> pl.Series:
    return column if column.dtype == dtype else column.cast(dtype)


def _replaced(column: pl.Series, places: Sequence[int], values: pl.Series) -> pl.Series:
    """Returns the column with other values at these places."""
    return column.clone().scatter(list(places), values)


def _column(name: str, kind: DataType, values: Sequence[Any]) -> pl.Series:
    """Returns a column of results. Raises OverflowError for a sum that does not fit its type."""
    try:
        return make_column(name, kind, values)
    except TypeError as error:  # Polars raises this for an integer that does not fit, which saves a check per row
        if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
            raise OverflowError(OVERFLOW) from error
        raise
