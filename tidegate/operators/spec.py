"""What the plan says about an operator, and what an operator says about itself. Plain values, without Polars.

A kind of operator is one module of `kinds/`: its spec is a subclass of `Operator` (of `StepOperator` when a step of the
file makes it), found by `registry.py`. Everything that differs between kinds is a method here, so nothing outside the
kind's own module looks at its type: columns that it reads, what survives pruning, how much memory it makes of a row,
what its state means, how it explains itself, and what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.expressions.bounds import BATCH_BYTES_MAX, Bound, Bounds, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.fingerprint import Lineages, StateFingerprint
from tidegate.state.declaration import StateDeclaration

if TYPE_CHECKING:
    from tidegate.expressions.expression import Expression
    from tidegate.operators.calls.caller import OpenCaller, OpenReader
    from tidegate.operators.runtime import OperatorRuntime
    from tidegate.state.backends import OpenState

Columns = tuple[tuple[str, DataType], ...]

LATE: Final = "late"
"""The side output of rows that came too late for what they belong to."""

DEAD: Final = "dead"
"""The side output of rows about records that failed (`formats/dead_letters`), of every operator whose policy is to
write dead letters. Neither event time nor counts of rows go with them."""


class Rest(Enum):
    """What rows are that an operator takes, but neither emits nor fails: it says how they are counted."""

    FOLDED = "in its state, or in other rows"
    FILTERED = "dropped on purpose"
    WRITTEN = "out of the pipeline"


class Emits(Enum):
    """How the rows of an operator's main output relate to the ones that it has emitted before."""

    PASSED = "the rows that arrive, whatever they are"
    LATEST = "rows that arrive, of which the last one of a key counts"
    INSERTS = "results of their own, none of which replaces another one"
    UPDATES = "a new result of the same key replaces the one before"
    REVISIONS = "a result of a window is given again, early or corrected"
    CORRECTIONS = "as REVISIONS, and rows with `_deleted` delete a result; its aggregates are NULL in them"
    RETRACTIONS = "rows have kinds (`formats/row_kinds.py`), some of which take a row back"


class Requirement(StrEnum):
    """What rows can have besides their columns: sources add it where an operator downstream requires it."""

    EVENT_TIME = "event-time"
    """`__tidegate_time` and `__tidegate_behind`; watermarks follow the rows."""
    HEADERS = "headers"
    """`__tidegate_headers`, those of the source record."""
    ROW_KIND = "row-kind"
    """`__tidegate_kind` (`formats/row_kinds.py`): an update is two rows, the one before it and the one after it."""
    TOPIC = "topic"
    """`__tidegate_topic`, where partition and offset do not identify the source record."""


class Planned(msgspec.Struct, frozen=True):
    """What the planner has decided about an operator. Nobody else writes it."""

    outputs: dict[str, tuple[str, ...]] | None = None
    """The columns that are read, by output; an output that nothing reads is missing. None before the decision."""
    carries: tuple[Requirement, ...] = ()
    """What the rows of its outputs have to have besides columns, because an operator downstream requires it."""
    some_kinds: bool = False
    """Some of its rows may have a row kind although none downstream requires it of all."""


class _PlannedStruct(msgspec.Struct, frozen=True, kw_only=True):
    """The field of every operator that is the planner's. It comes last, whatever fields a kind adds."""

    planned: Planned = Planned()


class InputOrder(msgspec.Struct, frozen=True):
    """Which sources are on hold because of one of several inputs."""

    comes_first: bool = False
    """Those of the other inputs, until this input has caught up."""
    ahead_ms: int | None = None
    """Its own, while their event time is further ahead of that of the others; None: never."""


ANY_ORDER: Final = InputOrder()


class Operator(_PlannedStruct, frozen=True, tag_field="operator"):
    """One operator of the graph; the same in every slot. Subclasses give their `tag`, which is the kind's name.

    Rows arrive on numbered ports. An operator with one input has port 0 only. `planned` is what the planner has made of
    what the operator and everything downstream of it declare; the methods below may use it.
    """

    JOINS: ClassVar[bool] = False
    """Whether several upstream operators may feed one input of it."""
    REST: ClassVar[Rest] = Rest.FOLDED
    BEGINS_VERTEX: ClassVar[bool] = False
    """Whether it is the head of a vertex wherever it stands: then it may raise BatchTooLarge."""

    name: OperatorName

    if TYPE_CHECKING:  # every kind has it as a field of its own

        @property
        def bad_records(self) -> BadRecordPolicy:
            """What happens to records that fail in it."""

    @property
    def kind(self) -> str:
        """Its kind, as `explain` and metrics name it."""
        return str(type(self).__struct_config__.tag)

    # -- columns -------------------------------------------------------------------------------------------------------

    def output_columns(self, output: str = "") -> Columns:  # noqa: ARG002  # there is one
        """Return all columns of an output, by default of the main one; none for a sink."""
        return ()

    def pruned_columns(self, output: str = "") -> Columns:
        """Return the columns of an output that leave it: those that are read, as the planner has decided.

        Which rows fail must not depend on what is read downstream, so columns that can fail are kept.
        """
        columns, read = self.output_columns(output), self.planned.outputs
        if read is None:
            return columns
        return keep_columns(columns, {*read[output]}) if output in read else ()

    def reads(self, port: int = 0) -> set[str]:  # noqa: ARG002  # there is one
        """Return the columns of an input that it needs, for itself or to pass them on."""
        return set()

    def side_outputs(self) -> tuple[str, ...]:
        """Names of its other outputs (`late`, `dead`, or the user's)."""
        return ()

    def requires(self, port: int = 0) -> frozenset[Requirement]:  # noqa: ARG002  # for those that do
        """Return what the rows of an input must have besides columns."""
        return frozenset()

    def input_order(self, port: int = 0) -> InputOrder:  # noqa: ARG002  # for those with several
        """Return which sources are on hold because of an input. It changes no state, so no fingerprint."""
        return ANY_ORDER

    def preserves_record(self, output: str = "") -> bool:  # noqa: ARG002  # for those that pass rows on
        """Whether each row of an output is of the source record of a row on port 0, and keeps the engine's columns that
        came with it.
        """
        return False

    def splits_rows(self) -> bool:
        """Whether it may make several rows of one."""
        return False

    def emits(self) -> Emits:
        """How the rows of its main output relate to one another."""
        return Emits.PASSED

    def counts_updates(self) -> bool:
        """Whether a result that replaces an earlier one counts in it as one more."""
        return False

    def selects_by(self) -> frozenset[str] | None:
        """The columns that decide whether, how often or where a row goes on. NULL in one of them may stop it. None:
        every row goes on, once.
        """
        return None

    def computes(self) -> Mapping[str, Expression]:
        """The columns of its output that are expressions over those that arrive; others keep the name they came by."""
        return {}

    def window_columns(self) -> frozenset[str]:
        """The columns of its output that are the bounds of the window that a result is of."""
        return frozenset()

    def unrepeatable(self) -> tuple[str, ...]:
        """Columns that it adds and that may hold something else when the same row comes again, to be taken back."""
        return ()

    # -- state ---------------------------------------------------------------------------------------------------------

    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:  # noqa: ARG002  # for those with state
        """Its states. `max_parallelism` is the plan's: keys are grouped by it in snapshots.

        They hold the columns that the step itself names, whatever the planner leaves out: a new sink downstream must
        not change what a checkpoint holds.
        """
        return ()

    def lineage(self, lineages: Lineages) -> Lineages:
        """What becomes of the ways on which records reach it (see `fingerprint.py`)."""
        return lineages

    def lineage_at(self, output: str, lineages: Lineages) -> Lineages:  # noqa: ARG002  # as `produces_at`
        """The same for a side output."""
        return self.lineage(lineages)

    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint | None:  # noqa: ARG002  # for those with state
        """Digests of what its state holds of the records of an input; None without state.

        The planner tells inputs apart: the same records on another port are another meaning.
        """
        return None

    # -- size ----------------------------------------------------------------------------------------------------------

    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:  # noqa: ARG002  # there is one
        """Return the columns after it, and all the memory that it makes, in terms of what comes into the vertex.

        `columns` are those of a batch on the port.
        """
        return columns, sum_bounds(columns.values())

    # -- words ---------------------------------------------------------------------------------------------------------

    def explains(self) -> dict[str, Any]:
        """What it does, as plain values for `explain --format json`. Never a Kafka property: it may be a secret."""
        return {"output": {name: str(kind) for name, kind in self.pruned_columns()}}

    def describes(self) -> list[str]:
        """The same as lines of text."""
        return []

    def user_code(self) -> tuple[str, ...]:
        """Functions of the user's that it calls, as `module:function`."""
        return ()

    def origins(self) -> tuple[str, ...]:
        """Topics that records of its output come from, besides those of its inputs."""
        return ()


class StepOperator(Operator, frozen=True, tag_field="operator"):
    """An operator that the file's steps make: it runs in every slot with nothing but its spec and its states."""

    def open(self, slot: Slot) -> OperatorRuntime:
        """What runs. Called once per subtask, in the slot process: only here may Polars be imported."""
        raise NotImplementedError


def _wake_nobody() -> None:
    """Of an operator that is driven by a test."""


def _no_clock() -> int:
    raise RuntimeError("this slot has no clock")


class Slot(msgspec.Struct, frozen=True):
    """What a slot gives to an operator that opens."""

    max_parallelism: int
    open_state: OpenState
    key_groups: range | None = None
    """Those of the subtask; None: all of them."""
    subtask: int = 0
    parallelism: int = 1
    wake: Callable[[], None] = _wake_nobody
    """Ends the loop's wait, from any thread: something has come from outside."""
    open_caller: OpenCaller | None = None
    """What makes calls outside; None for threads. The simulation plays them."""
    now_ms: Callable[[], int] = _no_clock
    """Wall clock, ms since 1970."""
    open_reader: OpenReader | None = None
    """What reads single records back, for dead letters."""
    rows_max: int = 1 << 31
    """What is downstream in the vertex takes at most so many rows at a time."""
    bytes_max: int = BATCH_BYTES_MAX
    """The same in bytes, as far as more than one row is concerned."""

    @property
    def own_groups(self) -> range:
        """The key groups of the subtask."""
        return range(self.max_parallelism) if self.key_groups is None else self.key_groups


def keep_columns(columns: Columns, needed: set[str]) -> Columns:
    """Those that are needed. A frame without columns has no rows: the first stays when none is (`select: {one: 1}`)."""
    return tuple(column for column in columns if column[0] in needed) or columns[:1]


def texts_of(columns: Columns) -> dict[str, str]:
    """Names and types as text, for `explains`."""
    return {name: str(kind) for name, kind in columns}


def render_columns(columns: Iterable[tuple[str, object]]) -> str:
    """`id bigint, name string`: names and types in one line."""
    return ", ".join(f"{name} {kind}" for name, kind in columns)
