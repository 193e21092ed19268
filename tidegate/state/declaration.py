"""What an operator declares about each of its states before anything runs: name, form, and the fields of its entries.

Backends, the headers of snapshots and the compatibility check of a checkpoint need nothing but a declaration. This
module does not import Polars. `verdict.py` compares two shapes.
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
"""Types that a key can have: equal values have equal bytes, and the bytes have an order (see `order.py`)."""

TOTAL: Final = "total."
"""Prefix of the serializer parameters that describe accumulators."""
WINDOW: Final = "window"
"""The parameter that identifies the windows to which entries belong."""
SETTLED: Final = "kept"
"""The parameter that identifies the result of `settles`. If it differs, `settles` is applied again."""
LASTS: Final = "ttl"
"""The parameter that sets how long an entry lives after its last time: milliseconds, then the clock that measures it.
If it differs, the expiry times of entries are moved."""
STATE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


class StateForm(StrEnum):
    """How a state is held, which determines how it is redistributed when the number of subtasks changes."""

    KEYED = "keyed"
    """Values by key. A subtask has the keys of its key groups."""
    SPLIT = "split"
    """A list per subtask. A restore joins all lists and splits the result evenly."""
    UNION = "union"
    """A list per subtask. A restore joins all lists and gives the result to every subtask."""


class StateField(msgspec.Struct, frozen=True):
    """A key column or a part of the value. `nullable` is false where NULL would be corruption."""

    name: str
    type: DataType
    nullable: bool = True


class Serializer(msgspec.Struct, frozen=True):
    """The description of how the bytes of keys and values were written, with which they can be read years later."""

    name: str = "msgpack"
    version: int = 1
    parameters: dict[str, str] = {}
    versions: dict[str, int] = {}
    """The versions in which nested types are described, by type name. A type that is not listed has version 1."""


def total_parameter(column: str) -> str:
    """Returns the name of the parameter that describes the encoding of a column's accumulator, if its type does not."""
    return f"{TOTAL}{column}"


class StateShape(msgspec.Struct, frozen=True):
    """The layout of a state's entries, and how keys are hashed into groups. It is in the header of every file."""

    keys: tuple[StateField, ...]
    """Empty for a list."""
    values: tuple[StateField, ...]
    key_hash: str
    max_parallelism: int
    form: StateForm = StateForm.KEYED
    suffix: int = 0
    """The number of last key columns that do not count for the key group. Entries that differ only in these columns
    stay together and are sorted by them."""
    prefix: int = 0
    """The number of first key columns that do not count for the key group. Each group is sorted by them (see
    `time_ordered.py`)."""
    expires: bool = False
    """Whether a value has one more, last element: when its entry expires, ms since 1970, or None for never."""
    serializer: Serializer = Serializer()


class Evolution(msgspec.Struct, frozen=True):
    """The user's decisions about a step whose state continues under another definition. Never written to a file."""

    operator_was: OperatorName = OperatorName("")
    """The step's former name; empty if it has not been renamed."""
    columns: dict[str, str] = {}
    """Renamed columns of its state: new name to former name."""
    dropped: frozenset[str] = frozenset()
    """Columns of its state that are dropped, by the names under which they were written."""
    defaults: dict[str, Any] = {}
    """Values that new columns get in existing entries, as plain values of their types (see `snapshot.Value`)."""


class StateDeclaration(msgspec.Struct, frozen=True):
    """One state of an operator. `name` is unique among the operator's states and never changes."""

    name: StateName
    shape: StateShape
    begins: dict[str, Any] = {}
    """Initial values of accumulator parts, which are value fields `column.part`, in existing entries when the column is
    new. A part that is not listed can only begin with a new entry."""
    optional: frozenset[str] = frozenset()
    """The parts in `begins` that may be missing from rows from which entries are created."""
    settles: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None = None
    """Applied to a value that was migrated or created from rows, to restore the invariants that the operator relies on.
    """
    verify: Callable[[tuple[Any, ...]], None] | None = None
    """Checks a value of a list that may be impossible to restore although its shape fits, and raises StateUnreadable. A
    start calls it for each stored value before anything runs."""
    names_columns: str = ""
    """A key column whose values are names of columns. Its entries are renamed and dropped with their columns."""
    needs_history: bool = False
    """Whether it is wrong without the records that its sources have read before, as the rows of a table and totals of
    changes are: a step that is added later must say that it begins empty.
    """
    reset_remark: str = ""
    """What the user must know before this state is reset, in addition to what applies to any state."""
    in_columns: bool = False
    """Whether its operator reads and writes it by column (`KeyedState.get_columns`), hardly ever by plain values."""
    evolution: Evolution = Evolution()

    def __post_init__(self) -> None:
        """Raises ValueError for a state that no backend could hold: an error of the operator's author."""
        shape = self.shape
        if not STATE_NAME.fullmatch(self.name):
            raise ValueError(f"state name {self.name!r} is not of the form {STATE_NAME.pattern}")
        if bool(shape.keys) is not self.keyed:
            raise ValueError(f"state {self.name} is {shape.form} and has {len(shape.keys)} key columns")
        if self.keyed and not (min(shape.prefix, shape.suffix) >= 0 and shape.prefix + shape.suffix < len(shape.keys)):
            raise ValueError(f"state {self.name} needs at least one key column for its key groups")
        for field in shape.keys:
            if field.type.kind not in ORDERED_KINDS:
                raise ValueError(f"key column {field.name} of state {self.name} cannot be of type {field.type}")

    @property
    def keyed(self) -> bool:
        """Whether the state is held by key."""
        return self.shape.form is StateForm.KEYED


def declare_list(name: str, values: tuple[StateField, ...], form: StateForm = StateForm.SPLIT) -> StateDeclaration:
    """Declares a list of values per subtask, without keys. `form` is SPLIT or UNION."""
    return StateDeclaration(StateName(name), StateShape((), values, key_hash="", max_parallelism=0, form=form))
