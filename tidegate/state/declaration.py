"""What an operator says about each of its states, before anything runs: name, form, and the fields of its entries.

A declaration is all that a backend, a snapshot's header and the check of a checkpoint need. Nothing here imports
Polars. How two shapes compare is in `verdict.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.ids import OperatorName, StateName

ORDERED_KINDS: Final = frozenset(
    {
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "decimal",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    }
)
"""What a key may be: values that are equal have the same bytes, and their bytes have an order (see `order.py`)."""

TOTAL: Final = "total."
"""Parameters of a serializer that begin so are about accumulators."""
WINDOW: Final = "window"
"""The parameter that says which windows entries are of."""
SETTLED: Final = "kept"
"""The parameter that says what `settles` has made: where it is another one now, that is done again."""
LASTS: Final = "ttl"
"""The parameter that says how long an entry lasts from its last time on: milliseconds, then by which clock. Where it is
another one now, the ends of entries are moved."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


class StateForm(StrEnum):
    """How a state is held, and so how it is dealt out when the number of subtasks changes."""

    KEYED = "keyed"
    """Values by key; a subtask has those of its key groups."""
    SPLIT = "split"
    """A list per subtask; at a restore all lists are joined and dealt out evenly."""
    UNION = "union"
    """A list per subtask; at a restore every subtask gets all lists, joined."""


class StateField(msgspec.Struct, frozen=True):
    """A key column or a part of the value. `nullable` is false where NULL would be damage."""

    name: str
    type: DataType
    nullable: bool = True


class Serializer(msgspec.Struct, frozen=True):
    """What made bytes of keys and values, for whoever reads them years later."""

    name: str = "msgpack"
    version: int = 1
    parameters: dict[str, str] = {}
    versions: dict[str, int] = {}
    """In which versions the types within are described, by their names; those that are not here in their first."""


def total_parameter(column: str) -> str:
    """The name of the parameter that says how the accumulator of a column is encoded, where its type does not."""
    return f"{TOTAL}{column}"


class StateShape(msgspec.Struct, frozen=True):
    """What the entries of a state look like, and how keys are hashed into groups. It is in the header of every file."""

    keys: tuple[StateField, ...]
    """Empty for a list."""
    values: tuple[StateField, ...]
    key_hash: str
    max_parallelism: int
    form: StateForm = StateForm.KEYED
    suffix: int = 0
    """So many of the last key columns do not count for the key group: entries that differ only in them stay together,
    in their order."""
    prefix: int = 0
    """So many of the first key columns do not count for the key group: each group is in the order of these columns
    (see `time_ordered.py`)."""
    expires: bool = False
    """A value has one more element, the last: when its entry expires, ms since 1970, or None for never."""
    serializer: Serializer = Serializer()


class Evolution(msgspec.Struct, frozen=True):
    """What the user says about a step whose state continues under another definition. It is never written to a file."""

    operator_was: OperatorName = OperatorName("")
    """The step's former name; empty if it has not been renamed."""
    columns: dict[str, str] = {}
    """Columns of its state that have been renamed: new name to former name."""
    dropped: frozenset[str] = frozenset()
    """Columns of its state that are given up, by the names under which they were written."""
    defaults: dict[str, Any] = {}
    """What columns that are new have for the entries that are already there, as plain values of their types (see
    `snapshot.Value`)."""


class StateDeclaration(msgspec.Struct, frozen=True):
    """One state of an operator. `name` is its own among the operator's states, and never changes."""

    name: StateName
    shape: StateShape
    begins: dict[str, Any] = {}
    """What parts of accumulators, which are value fields `column.part`, have where entries are there already and the
    column is new; one that is not here can only begin with its entry."""
    optional: frozenset[str] = frozenset()
    """Those of them that rows which entries are made of may lack."""
    settles: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
    """What is done to a value that was migrated, or made of rows, so that all is true of it that the operator relies
    on."""
    verify: Callable[[tuple[Any, ...]], None] | None = None
    """Raises StateUnreadable for a value of a list that could not be restored although its shape fits. A start calls it
    for each stored value before anything runs."""
    names_columns: str = ""
    """A key column whose values are names of columns: an entry is renamed and given up with its column."""
    reset_remark: str = ""
    """What is to be known before this state is given up, beside what is true of any state."""
    evolution: Evolution = Evolution()

    def __post_init__(self) -> None:
        """Raises ValueError for what no backend could keep: a mistake of the operator's author."""
        shape = self.shape
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"state name {self.name!r} is not of the form {_NAME.pattern}")
        if bool(shape.keys) is not self.keyed:
            raise ValueError(f"state {self.name} is {shape.form} and has {len(shape.keys)} key columns")
        if self.keyed and not (min(shape.prefix, shape.suffix) >= 0 and shape.prefix + shape.suffix < len(shape.keys)):
            raise ValueError(f"state {self.name} needs at least one key column for its key groups")
        for field in shape.keys:
            if field.type.kind not in ORDERED_KINDS:
                raise ValueError(f"key column {field.name} of state {self.name} cannot be of type {field.type}")

    @property
    def keyed(self) -> bool:
        """Whether it is held by key."""
        return self.shape.form is StateForm.KEYED


def declare_list(name: str, values: tuple[StateField, ...], form: StateForm = StateForm.SPLIT) -> StateDeclaration:
    """A list of values per subtask, without keys. `form`: SPLIT or UNION."""
    return StateDeclaration(StateName(name), StateShape((), values, key_hash="", max_parallelism=0, form=form))
