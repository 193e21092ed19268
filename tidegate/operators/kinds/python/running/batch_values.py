"""The `Value` states of a step that processes batches: Series by key, read and written once per batch.

Writes wait until the call of user code has succeeded (`keep`) or failed (`undo`), and reach the state at the end of the
batch, in however many parts it was processed.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats.columns import make_column, plain_values
from tidegate.operators.kinds.python.running.frames import FrameConverter
from tidegate.operators.spec import Columns
from tidegate.state.base import Key, KeyedState

_REMEDY: Final = "states can only be used for keys of the batch, while it is processed"


class BatchKeys:
    """The distinct keys of a batch, and of the part of it that user code is called with."""

    def __init__(self, columns: Columns) -> None:
        """`columns`: the key columns."""
        self._names = [name for name, _ in columns]
        self._columns = columns
        self.batch: list[Key] = []
        """All keys of the batch, each once."""
        self.frame = pl.DataFrame()
        """The keys of the part, in order of their first appearance."""
        self.given = self.frame
        """The same for user code, which may change it."""
        self._part: list[Key] = []
        self._known: frozenset[Key] | None = None

    def begin(self, batch: pl.DataFrame) -> None:
        """Begins a batch, which is also its only part unless `narrow` is called."""
        self.narrow(batch)
        self.batch = self._part

    def narrow(self, part: pl.DataFrame) -> None:
        """Begins a part of the batch."""
        self.frame = part.select(self._names).unique(maintain_order=True)
        self.given = self.frame.clone()
        self._part = self._plain(self.frame)
        self._known = None

    def end(self) -> None:
        """Ends the batch: no key is one of the batch any more."""
        self.frame = self.given = pl.DataFrame()
        self._part, self.batch, self._known = [], [], None

    def resolve(self, keys: object) -> list[Key]:
        """Returns the key of each row of a frame with the key columns.

        Raises TypeError for anything else, and ValueError for a key that is not in the part.
        """
        if keys is self.given and self.given.equals(self.frame):
            return self._part
        if not isinstance(keys, pl.DataFrame):
            raise TypeError(f"keys are a polars.DataFrame with the key columns, not {type(keys).__name__}")
        for name in self._names:
            if name not in keys.columns:
                raise TypeError(f"the frame of keys has no key column `{name}`")
            if keys.schema[name] != self.frame.schema.get(name, keys.schema[name]):
                raise TypeError(f"`{name}` of the keys is {keys.schema[name]!r}, not {self.frame.schema[name]!r}")
        found = self._plain(keys)
        if self._known is None:
            self._known = frozenset(self._part)
        if not self._known.issuperset(found):
            other = next(key for key in found if key not in self._known)
            raise ValueError(f"{other!r} is not a key of the rows that are processed: {_REMEDY}")
        return found

    def _plain(self, frame: pl.DataFrame) -> list[Key]:
        columns = [plain_values(frame[name]) for name in self._names]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


class BatchValue:
    """One state, as user code sees it while a batch is processed: a value per key. NULL is no value."""

    def __init__(self, name: str, kind: DataType, default: Any, state: KeyedState[Any], keys: BatchKeys) -> None:
        """`default`: what keys without a value have, in the form in which state holds it."""
        self._name = name
        self._kind = kind
        self._converter = FrameConverter(((name, kind),))
        self._default = default
        self._state = state
        self._keys = keys
        self._held: dict[Key, Any] | None = None
        """The values of all keys of the batch, or the default, with what was kept of its parts. None: not read yet."""
        self._changed: dict[Key, Any] = {}
        """What was kept of the parts of the batch."""
        self._new: dict[Key, Any] = {}
        """What the present call has written."""

    # -- for user code -------------------------------------------------------------------------------------------------

    def get_many(self, keys: pl.DataFrame) -> pl.Series:
        """Returns the value of the key of each row; the default where there is none."""
        wanted = self._keys.resolve(keys)
        held = self._read() if self._held is None else self._held
        if self._new:
            new = self._with_default(self._new)
            values = [new[key] if key in new else held[key] for key in wanted]
        else:
            values = [held[key] for key in wanted]
        return make_column(self._name, self._kind, values)

    def set_many(self, keys: pl.DataFrame, values: pl.Series) -> None:
        """Sets the value of the key of each row, or removes it if it is NULL. Of rows with the same key the last one
        counts.
        """
        wanted = self._keys.resolve(keys)
        if not isinstance(values, pl.Series):
            raise TypeError(f"values are a polars.Series, not {type(values).__name__}")
        if len(values) != len(wanted):
            raise ValueError(f"there are {len(values)} values for {len(wanted)} keys")
        converted, unfit = self._converter.convert(values.to_frame(self._name))
        for reason in unfit.values():
            raise ValueError(reason)
        self._new.update(zip(wanted, plain_values(converted[self._name]), strict=True))

    def clear_many(self, keys: pl.DataFrame) -> None:
        """Removes the value of the key of each row."""
        self._new.update(dict.fromkeys(self._keys.resolve(keys)))

    # -- for the runtime -----------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Keeps what the present call has written."""
        if self._held is not None:
            self._held.update(self._with_default(self._new))
        self._changed.update(self._new)
        self._new = {}

    def undo(self) -> None:
        """Forgets what the present call has written."""
        self._new = {}

    def write(self) -> None:
        """Ends a batch: writes what was kept to the state."""
        changed, self._changed, self._held = self._changed, {}, None
        removed = [key for key, value in changed.items() if value is None]
        if removed:
            self._state.delete_many(removed)
            for key in removed:
                del changed[key]
        if changed:
            self._state.put_many(changed, zip(changed.values(), strict=True))

    def _read(self) -> dict[Key, Any]:
        keys, default = self._keys.batch, self._default
        stored = self._state.get_many(keys)
        held = dict(zip(keys, [default if value is None else value[0] for value in stored], strict=True))
        held.update(self._with_default(self._changed))
        self._held = held
        return held

    def _with_default(self, values: dict[Key, Any]) -> dict[Key, Any]:
        default = self._default
        if default is None:
            return values
        return {key: default if value is None else value for key, value in values.items()}
