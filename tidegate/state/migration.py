"""Migration of entries that were written in another shape, before the first record is processed.

The serializer that wrote the entries is rebuilt from the header and reads them; the current one writes them (S07). A
problem that is only visible in an entry, such as a NULL where none is allowed, fails the restore with the entry's key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tidegate.state.compatibility import CannotConvert, Convert
from tidegate.state.declaration import StateDeclaration, StateShape
from tidegate.state.errors import StateUnreadable
from tidegate.state.serializers.contract import FieldPath
from tidegate.state.serializers.fields import derive_former
from tidegate.state.verdict import judge_keys, judge_values

Row = tuple[Any, ...]


class Migration(msgspec.Struct, frozen=True):
    """The conversion of entries from the written shape to the current one. Of a tombstone only the key is converted."""

    key: Convert | None = None
    value: Convert | None = None
    column: int = -1
    """The index of a key column that contains names of columns; -1 if there is none."""
    names: dict[str, str] = {}
    """Renames the values of that column: written name to current name."""
    dropped: frozenset[str] = frozenset()

    def apply(self, entries: Iterable[tuple[Row, Row | None]]) -> list[tuple[Row, Row | None]]:
        """Returns the converted entries. Raises MigrationFailed."""
        found: list[tuple[Row, Row | None]] = []
        change_key, change_value = self.key, self.value
        for written, held in entries:
            key, value = written, held
            try:
                if change_key is not None:
                    key = change_key(key)
                if change_value is not None and value is not None:
                    value = change_value(value)
            except CannotConvert as error:
                raise MigrationFailed(written, str(error)) from error
            if self.column >= 0:
                name = key[self.column]
                if name in self.dropped:
                    continue
                key = (*key[: self.column], self.names.get(name, name), *key[self.column + 1 :])
            found.append((key, value))
        return found


class MigrationFailed(Exception):
    """An entry that cannot be converted to the new shape."""

    def __init__(self, key: Row, reason: str) -> None:
        self.key = key
        self.reason = reason


def derive_migration(written: StateShape, declaration: StateDeclaration) -> Migration | None:
    """Returns the migration for shapes that `judge` accepts; None if the entries need no conversion."""
    key = judge_keys(written, declaration).convert
    value = judge_values(written, declaration).convert
    place = FieldPath(declaration.evolution)
    if declaration.names_columns:
        keys = [field.name for field in declaration.shape.keys]
        column = (
            len(keys) - declaration.shape.suffix + keys[-declaration.shape.suffix :].index(declaration.names_columns)
        )
        former = derive_former(place.renames, {*place.renames.values()})
        names = {before: now for now, before in former.items()}
        if names or declaration.evolution.dropped:
            return Migration(key, value, column, names, declaration.evolution.dropped)
    return None if key is None and value is None else Migration(key, value)


def refuse_entry(operator: str, declaration: StateDeclaration, failure: MigrationFailed) -> StateUnreadable:
    """Returns the error for an entry that cannot be migrated."""
    return StateUnreadable(
        f"state {declaration.name} of {operator}: the entry with key {failure.key!r} cannot be migrated: "
        f"{failure.reason}; restore the old definition of the step, or start it with empty state (`state: reset`)",
        operator=operator,
        state=declaration.name,
        key=repr(failure.key),
    )
