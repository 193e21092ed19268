"""The `Value` states of a step that processes batches: a column of values, by key.

While user code runs, a state is a column with the values of all keys of its rows, read at once when it is first used.
What is written changes only this column. It reaches the state after the call, or is forgotten if the call has failed.
"""

from __future__ import annotations

from itertools import compress
from typing import Any, Final, NoReturn

import polars as pl
from typing_extensions import override

from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.kinds.python.running.frames import FrameConverter
from tidegate.operators.kinds.python.running.scope import RunningScope
from tidegate.operators.kinds.python.running.values import converter_of
from tidegate.operators.spec import Columns
from tidegate.python import Value
from tidegate.state.base import Key, KeyedState
from tidegate.user_code.describe import DeclaredState

_PLACE: Final = "__tidegate_place"


class BatchKeys:
    """The distinct keys of the rows that user code is called with."""

    def __init__(self, columns: Columns) -> None:
        """`columns`: the key columns."""
        self._names = [name for name, _ in columns]
        self._rows = self._distinct = pl.DataFrame()
        self.given = pl.DataFrame()
        """The keys in order of their first appearance, for user code, which may change the frame."""
        self.keys: list[Key] = []
        """The same keys as state has them."""
        self._places: pl.Series | None = None
        """The key of each row, as its place among the keys. None: not needed so far."""

    def begin(self, rows: pl.DataFrame) -> None:
        """Takes the keys of the rows of a call."""
        self._rows = rows[self._names]
        self._distinct = self._rows.unique(maintain_order=True)
        self.given = self._distinct.clone()
        self.keys = self._plain(self._distinct)
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
        found = keys[self._names]
        if found.equals(self._distinct):
            return None
        if found.equals(self._rows):
            if self._places is None:
                self._places = self._find(found)
            return self._places
        for name, kind in self._distinct.schema.items():
            if found.schema[name] != kind:
                raise TypeError(f"`{name}` of the keys is pl.{found.schema[name]!r}, and the key is pl.{kind!r}")
        places = self._find(found)
        if places.null_count():
            other = found.filter(places.is_null()).row(0)
            raise ValueError(f"{other!r} is not the key of a row of this call, and only their state can be used")
        return places

    def _find(self, frame: pl.DataFrame) -> pl.Series:
        numbered = self._distinct.with_row_index(_PLACE)
        joined = frame.join(numbered, on=self._names, how="left", maintain_order="left", nulls_equal=True)
        return joined.get_column(_PLACE)

    def _plain(self, frame: pl.DataFrame) -> list[Key]:
        columns = [plain_values(frame.get_column(name)) for name in self._names]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


class BatchValue(Value[Any]):
    """One state, as user code sees it while a batch is processed. NULL is no value."""

    def __init__(self, declared: DeclaredState, state: KeyedState[Any], keys: BatchKeys, scope: RunningScope) -> None:
        self._name = declared.name
        self._kind = declared.type
        default = None if declared.default is None else converter_of(declared.name, declared.type)(declared.default)
        self._default = None if default is None else make_column(self._name, self._kind, [default])
        self._converter = FrameConverter(((self._name, self._kind),))
        self._state = state
        self._keys = keys
        self._scope = scope
        self._values: pl.Series | None = None
        """The value of each key of the call. None: not read yet."""
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

    def keep(self) -> None:
        """Ends a call: writes to the state what it has written."""
        values, written = self._values, self._written
        self.undo()
        if values is None or written is None:
            return
        keys = self._keys.keys
        if not written.all():
            keys, values = list(compress(keys, written.to_list())), values.filter(written)
        if values.null_count():
            there = values.is_not_null().to_list()
            self._state.delete_many([key for key, known in zip(keys, there, strict=True) if not known])
            keys, values = list(compress(keys, there)), values.drop_nulls()
        if keys:
            self._state.put_many(keys, zip(plain_values(values), strict=True))

    def undo(self) -> None:
        """Forgets what the call has written."""
        self._values = self._written = None

    def _read(self) -> pl.Series:
        if self._values is None:
            stored = self._state.get_many(self._keys.keys)
            values = [None if value is None else value[0] for value in stored]
            self._values = make_column(self._name, self._kind, values)
        return self._values

    def _write(self, places: pl.Series | None, values: pl.Series) -> None:
        if places is None:
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
