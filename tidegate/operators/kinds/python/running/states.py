"""The declared states of a step while it runs: read for a batch, changed by its rows, and written at its end.

Values are read once per batch for all its keys. What a row writes is in these dicts until the batch ends; the old value
goes to the undo log before the first write of a row.
"""

from __future__ import annotations

from collections.abc import Collection
from threading import get_ident
from typing import Any

from typing_extensions import override

from tidegate.operators.kinds.python.running.scope import RunningScope
from tidegate.operators.kinds.python.running.values import converter_of, reader_of
from tidegate.python import Value
from tidegate.state.base import Key, KeyedState
from tidegate.user_code.describe import DeclaredState


class ValueHandle(Value[Any]):
    """The values of a state `Value`."""

    def __init__(self, declared: DeclaredState, state: KeyedState[Any], scope: RunningScope) -> None:
        self._state = state
        self._scope = scope
        self._read = reader_of(declared.type)
        self._convert = converter_of(declared.name, declared.type)
        self._default = None if declared.default is None else self._convert(declared.default)
        self._name = declared.name
        self._cached: dict[Key, tuple[Any, ...] | None] = {}
        """The state's value for each key of the batch, with what was written."""
        self._put = self._cached.__setitem__
        self._written: set[Key] = set()
        self._touched = -1
        """The last row that wrote."""

    def load(self, keys: Collection[Key]) -> None:
        """Reads the values of all keys of a batch."""
        self._cached.update(zip(keys, self._state.get_many(keys), strict=True))

    def flush(self) -> None:
        """Writes what the batch has changed."""
        written, cached = self._written, self._cached
        if written:
            new = {key: value for key in written if (value := cached[key]) is not None}
            if new:
                self._state.put_many(new, new.values())
            if len(new) < len(written):
                self._state.delete_many([key for key in written if cached[key] is None])
            written.clear()
        cached.clear()

    @override
    def get(self) -> Any:
        scope = self._scope
        if scope.thread != get_ident():
            scope.refuse()
        found = self._cached[scope.state_key]
        value = self._default if found is None else found[0]
        return value if value is None or self._read is None else self._read(value)

    @override
    def set(self, value: Any) -> None:
        if value is not None:
            self._write((self._convert(value),))
        elif self._default is None:
            self._write(None)
        else:
            raise TypeError(f"`{self._name}` has a default, and cannot be None: use `clear()`")

    @override
    def clear(self) -> None:
        self._write(None)

    @override
    def take(self) -> Any:
        found = self.get()
        self._write(None)
        return found

    def _write(self, value: tuple[Any, ...] | None) -> None:
        scope = self._scope
        if scope.thread != get_ident():
            scope.refuse()
        key, row = scope.state_key, scope.row
        cached = self._cached
        if self._touched != row:
            self._touched = row
            scope.undo.append((self._put, key, cached[key]))
            self._written.add(key)
        cached[key] = value


StateHandle = ValueHandle
