"""The `Value` states of a step that processes batches: a column of values, by key.

While user code runs, a state is a column with the values of all keys of its rows, read at once when it is first used.
What is written changes only this column. It reaches the state after the call, or is forgotten if the call has failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Final, NoReturn

import polars as pl
from typing_extensions import override

from tidegate.config.fields.ttl import Ttl
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.python.running.frames import FrameConverter
from tidegate.operators.kinds.python.running.scope import RunningScope
from tidegate.operators.kinds.python.running.values import converter_of
from tidegate.python import Value
from tidegate.state.base import Key, KeyedState
from tidegate.user_code.describe import DeclaredState

_PLACE: Final = "__tidegate_place"


class BatchKeys:
    """The distinct keys of the rows that user code is called with."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: the key columns."""
        self._names = names
        self._rows: list[pl.Series] = []
        """The key columns of the rows."""
        self._distinct: list[pl.Series] = []
        self._times: list[pl.Series] = []
        self._moments: tuple[list[int], list[int]] | None = None
        self.given = pl.DataFrame()
        """The keys in order of their first appearance, for user code, which may change the frame."""
        self.keys: list[Key] = []
        """The same keys as state has them."""
        self._places: pl.Series | None = None
        """The key of each row, as its place among the keys. None: not needed so far."""

    def begin(self, rows: pl.DataFrame, times: list[pl.Series]) -> None:
        """Takes the keys of the rows of a call. `times` has their event times if a state needs them."""
        self._rows = [rows.get_column(name) for name in self._names]
        if len(self._rows) == 1:
            self._distinct = [self._rows[0].unique(maintain_order=True)]
        else:
            self._distinct = pl.DataFrame(self._rows).unique(maintain_order=True).get_columns()
        self._times, self._moments = times, None
        self.given = pl.DataFrame(self._distinct)
        self.keys = _plain(self._distinct)
        self._places = None

    def find(self, keys: object) -> pl.Series | None:
        """Returns the place of the key of each row of a frame with the key columns; None if it has all keys in order.

        Raises TypeError for anything else, and ValueError for a key that no row of the call has.
        """
        if not isinstance(keys, pl.DataFrame):
            raise TypeError(f"keys are a polars.DataFrame with the key columns, not {type(keys).__name__}")
        for name in self._names:
            if name not in keys.columns:
                raise TypeError(f"the frame of keys has no key column `{name}`")
        found = [keys.get_column(name) for name in self._names]
        if _are_equal(found, self._distinct):
            return None
        if _are_equal(found, self._rows):
            if self._places is None:
                self._places = self._join(found)
            return self._places
        for column, own in zip(found, self._rows, strict=True):
            if column.dtype != own.dtype:
                raise TypeError(f"`{own.name}` of the keys is pl.{column.dtype!r}, and the key is pl.{own.dtype!r}")
        places = self._join(found)
        if places.null_count():
            other = pl.DataFrame(found).filter(places.is_null()).row(0)
            raise ValueError(f"{other!r} is not the key of a row of this call, and only their state can be used")
        return places

    def event_times(self) -> tuple[list[int], list[int]]:
        """Returns, for each key, the time that its first row has reached (`RunningScope.reached_ms`), and the latest
        time of its rows.
        """
        if self._moments is None:
            self._moments = self._derive_moments()
        return self._moments

    def _derive_moments(self) -> tuple[list[int], list[int]]:
        grouped = (
            pl.DataFrame([*self._rows, *self._times])
            .group_by(self._names, maintain_order=True)
            .agg((pl.col(TIME) + pl.col(BEHIND)).first().alias(BEHIND), pl.col(TIME).max())
        )
        return grouped[BEHIND].to_list(), grouped[TIME].to_list()

    def _join(self, keys: list[pl.Series]) -> pl.Series:
        numbered = pl.DataFrame(self._distinct).with_row_index(_PLACE)
        joined = pl.DataFrame(keys).join(numbered, on=self._names, how="left", maintain_order="left", nulls_equal=True)
        return joined.get_column(_PLACE)


def _plain(columns: list[pl.Series]) -> list[Key]:
    values = list(map(plain_values, columns))
    return values[0] if len(values) == 1 else list(zip(*values, strict=True))


def _are_equal(one: list[pl.Series], other: list[pl.Series]) -> bool:
    return all(column.equals(own, check_dtypes=True) for column, own in zip(one, other, strict=True))


class BatchValue(Value[Any]):
    """One state, as user code sees it while a batch is processed. NULL is no value."""

    def __init__(self, declared: DeclaredState, state: KeyedState[Any], keys: BatchKeys, scope: RunningScope) -> None:
        self._name = declared.name
        self._kind = declared.type
        default = declared.default
        if default is not None:
            default = converter_of(declared.name, declared.type)(default)
        self._default = None if default is None else make_column(self._name, self._kind, [default])
        self._converter = FrameConverter(((self._name, self._kind),), "or declare the state with another type")
        self._state = state
        self._keys = keys
        self._scope = scope
        self._ttl = declared.ttl
        self._values: pl.Series | None = None
        """The value of each key of the call. None: not read yet."""
        self._ends: list[int | None] = []
        """With a `ttl`: when the values that have been read end."""
        self._written: pl.Series | None = None
        """Which values the call has written. None: none of them."""

    # -- for user code -------------------------------------------------------------------------------------------------

    @override
    def get_many(self, keys: pl.DataFrame) -> pl.Series:
        self._scope.check()
        places = self._keys.find(keys)
        values = self._read()
        if self._default is not None and values.null_count():
            values = values.zip_with(values.is_not_null(), self._default.new_from_index(0, len(values)))
        return values.clone() if places is None else values.gather(places)

    @override
    def set_many(self, keys: pl.DataFrame, values: pl.Series) -> None:
        self._scope.check()
        places = self._keys.find(keys)
        if not isinstance(values, pl.Series):
            raise TypeError(f"values are a polars.Series, not {type(values).__name__}")
        if len(values) != keys.height:
            raise ValueError(f"there are {len(values)} values for {keys.height} keys")
        converted, unfit = self._converter.convert(values.to_frame(self._name))
        for reason in unfit.values():
            raise ValueError(reason)
        self._write(places, converted.get_column(self._name))

    @override
    def clear_many(self, keys: pl.DataFrame) -> None:
        self._scope.check()
        self._write(self._keys.find(keys), self._nothing(keys.height))

    @override
    def get(self) -> Any:
        _refuse_single()

    @override
    def set(self, value: Any) -> None:
        _refuse_single()

    @override
    def clear(self) -> None:
        _refuse_single()

    @override
    def take(self) -> Any:
        _refuse_single()

    # -- for the runtime -----------------------------------------------------------------------------------------------

    def keep(self) -> int:
        """Ends a call: writes to the state what it has written. Returns the number of values."""
        values, written = self._values, self._written
        if values is None or written is None:
            self.undo()
            return 0
        keys, ends = self._keys.keys, self._new_ends()
        count = len(values)
        self.undo()
        kept = written & values.is_not_null()
        if not kept.all():
            removed = (written & values.is_null()).to_list()
            self._state.delete_many(list(compress(keys, removed)))
            kept_list = kept.to_list()
            count = sum(written.to_list())
            keys, values = list(compress(keys, kept_list)), values.filter(kept)
            ends = None if ends is None else list(compress(ends, kept_list))
        if keys:
            plain = plain_values(values)
            self._state.put_many(keys, zip(plain, strict=True) if ends is None else zip(plain, ends, strict=True))
        return count

    def undo(self) -> None:
        """Forgets what the call has written."""
        self._values = self._written = None

    def _read(self) -> pl.Series:
        if self._values is None:
            stored = self._state.get_many(self._keys.keys)
            if self._ttl is not None:
                moments = self._moments(self._ttl)[0]
                stored = [
                    None if entry is None or (entry[1] is not None and moment > entry[1]) else entry
                    for entry, moment in zip(stored, moments, strict=True)
                ]
                self._ends = [None if entry is None else entry[1] for entry in stored]
            values = [None if entry is None else entry[0] for entry in stored]
            self._values = make_column(self._name, self._kind, values)
        return self._values

    def _moments(self, ttl: Ttl) -> tuple[list[int], list[int]]:
        """Returns the times at which values are read, and those from which their `ttl` counts if they are written."""
        if not ttl.processing:
            return self._keys.event_times()
        now = [self._scope.wall_ms] * len(self._keys.keys)
        return now, now

    def _new_ends(self) -> list[int] | None:
        """Returns when values that are written end: not earlier than before, whatever row writes them."""
        ttl = self._ttl
        if ttl is None:
            return None
        ends = [moment + ttl.time_ms for moment in self._moments(ttl)[1]]
        return [end if before is None or before < end else before for end, before in zip(ends, self._ends, strict=True)]

    def _write(self, places: pl.Series | None, values: pl.Series) -> None:
        if places is None:
            if self._ttl is not None:
                self._read()
            self._values = values
            self._written = pl.Series([True]).new_from_index(0, len(values))
            return
        count = len(self._keys.keys)
        now = pl.int_range(count, eager=True).scatter(places, pl.int_range(count, count + len(values), eager=True))
        self._values = pl.concat([self._read(), values]).gather(now)
        written = now >= count
        self._written = written if self._written is None else self._written | written

    def _nothing(self, height: int) -> pl.Series:
        return make_column(self._name, self._kind, [None]).new_from_index(0, height)


def _refuse_single() -> NoReturn:
    raise RuntimeError("a batch has rows of several keys: use `get_many(keys)`, `set_many(keys, values)`, `clear_many`")
