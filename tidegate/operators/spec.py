"""The declarations of an operator: its spec, and the planner's decisions about it. Plain values, without Polars.

Each kind of operator is one module of `kinds/`. Its spec is a subclass of `Operator`, or of `StepOperator` if a step of
the file creates it; `registry.py` finds it. Everything that differs between kinds is a method of the spec, so no code
outside the kind's own module checks its type: the columns that it reads and that survive pruning, its memory per row,
the meaning of its state, its explanation, and the runtime that it opens.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import DataType
from tidegate.expressions.bounds import BATCH_BYTES_MAX, Bound, Bounds, sum_bounds
from tidegate.expressions.expression import can_fail, columns_of
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, SourceTopic
from tidegate.operators.fingerprint import Lineages, StateFingerprint
from tidegate.operators.waiting import Waiting
from tidegate.state.declaration import StateDeclaration
from tidegate.user_code.files import NO_FILES

if TYPE_CHECKING:
    import polars as pl

    from tidegate.expressions.expression import Expression
    from tidegate.operators.calls.caller import OpenCaller, OpenReader
    from tidegate.operators.runtime import OperatorRuntime
    from tidegate.state.backends import OpenState
    from tidegate.user_code.describe import CodeDescription

Columns = tuple[tuple[str, DataType], ...]

LATE: Final = "late"
"""The side output of rows that arrive too late for the window or state that they belong to."""

DEAD: Final = "dead"
"""The side output of rows about failed records (`formats/dead_letters`). Every operator whose policy is to write dead
letters has it. These rows carry neither event time nor row counts.
"""


class Rest(Enum):
    """How to count rows that an operator takes but neither emits nor fails."""

    FOLDED = "in its state, or in other rows"
    FILTERED = "dropped on purpose"
    WRITTEN = "out of the pipeline"


class Emits(Enum):
    """How the rows of an operator's main output relate to the rows that it emitted earlier."""

    PASSED = "the rows that arrive, whatever they are"
    LATEST = "rows that arrive, of which the last one of a key counts"
    INSERTS = "results of their own, none of which replaces another one"
    UPDATES = "a new result of the same key replaces the one before"
    REVISIONS = "a result of a window is given again, early or corrected"
    CORRECTIONS = "as REVISIONS, and rows with `_deleted` delete a result; its aggregates are NULL in them"
    RETRACTIONS = "rows have kinds (`formats/row_kinds.py`), some of which take a row back"


class Requirement(StrEnum):
    """Data that rows can carry besides their columns. A source adds it if an operator downstream requires it."""

    EVENT_TIME = "event-time"
    """`__tidegate_time` and `__tidegate_behind`; watermarks follow the rows."""
    HEADERS = "headers"
    """`__tidegate_headers`, the headers of the source record."""
    ROW_KIND = "row-kind"
    """`__tidegate_kind` (`formats/row_kinds.py`). An update is two rows: the row before it and the row after it."""
    TOPIC = "topic"
    """`__tidegate_topic`, needed if partition and offset alone do not identify the source record."""
    CLUSTER = "cluster"
    """`__tidegate_cluster`, needed if the topic is not enough either: sources read from several clusters."""


class Planned(msgspec.Struct, frozen=True):
    """The planner's decisions about an operator. Only the planner writes them."""

    outputs: dict[str, tuple[str, ...]] | None = None
    """The columns that are read, by output. An output that nothing reads is missing. None before the decision."""
    carries: tuple[Requirement, ...] = ()
    """What the rows of its outputs must carry besides columns, because an operator downstream requires it."""
    some_kinds: bool = False
    """Some of its rows may have a row kind, although no operator downstream requires a row kind of all rows."""
    catches_up: bool = False
    """Whether it declares when it has caught up, because an input downstream comes first (`InputOrder`)."""


class _PlannedStruct(msgspec.Struct, frozen=True, kw_only=True):
    """The planner's field of every operator. It comes last, whatever fields a kind adds."""

    planned: Planned = Planned()


class InputOrder(msgspec.Struct, frozen=True):
    """Which sources one of several inputs puts on hold."""

    comes_first: bool = False
    """The sources of the other inputs are on hold until this input has caught up with what its topics held at the
    start of the attempt.
    """
    ahead_ms: int | None = None
    """Its own sources are on hold while their event time is further ahead of the others than this; None: never."""


class RowKey(msgspec.Struct, frozen=True):
    """What identifies a row of a table, and how long it lasts."""

    columns: tuple[str, ...]
    """Each of their values has at most one row."""
    ttl: Ttl | None = None
    """How long after its last update a row is deleted."""


ANY_ORDER: Final = InputOrder()


class Operator(_PlannedStruct, frozen=True, tag_field="operator"):
    """One operator of the graph; the same in every slot. Subclasses set their `tag`, which is the name of the kind.

    Rows arrive on numbered ports. An operator with one input has only port 0. The planner derives `planned` from the
    declarations of the operator and of everything downstream of it; the methods below may use it.
    """

    JOINS: ClassVar[bool] = False
    """True if several upstream operators may feed the same input."""
    REST: ClassVar[Rest] = Rest.FOLDED
    BEGINS_VERTEX: ClassVar[bool] = False
    """True if it is always the head of a vertex. It may then raise BatchTooLarge."""
    ASSIGNS_TIME: ClassVar[bool] = False
    """True if its rows get an event time that cannot be compared with the one that they had."""

    name: OperatorName

    if TYPE_CHECKING:  # every kind has a field of this name

        @property
        def bad_records(self) -> BadRecordPolicy:
            """What happens to records that fail in this operator."""

    def bad_records_of(self, port: int = 0) -> BadRecordPolicy:  # noqa: ARG002  # for overrides
        """Returns what happens to records of an input that fail in this operator."""
        return self.bad_records

    @property
    def kind(self) -> str:
        """The name of the kind in `explain` and in metrics."""
        return str(type(self).__struct_config__.tag)

    # -- columns -------------------------------------------------------------------------------------------------------

    def output_columns(self, output: str = "") -> Columns:  # noqa: ARG002  # for overrides
        """Returns all columns of an output, by default of the main one: the field `output`, or none for a sink."""
        columns: Columns = getattr(self, "output", ())
        return columns

    def pruned_columns(self, output: str = "") -> Columns:
        """Returns the columns of an output that remain after pruning, according to the planner's decision."""
        columns, read = self.output_columns(output), self.planned.outputs
        if read is None:
            return columns
        needed = {*read.get(output, ()), *self.unpruned(output)}
        if not needed and output not in read:
            return ()
        # at least one, since a frame without columns has no rows (`select: {one: 1}`)
        return tuple(column for column in columns if column[0] in needed) or columns[:1]

    def unpruned(self, output: str = "") -> set[str]:  # noqa: ARG002  # for overrides
        """Returns the columns of an output that are kept even if nothing reads them. Among them are those whose
        computation can fail: which rows fail must not depend on what is read downstream.
        """
        return {name for name, expression in self.computes().items() if can_fail(expression)}

    def reads(self, port: int = 0) -> set[str]:  # noqa: ARG002  # for overrides
        """Returns the columns of an input that the operator needs, for its own use or to pass them on; by default those
        that it emits.
        """
        return {name for name, _ in self.pruned_columns()}

    def side_outputs(self) -> tuple[str, ...]:
        """Returns the names of the other outputs (`late`, `dead`, or those of the user)."""
        return ()

    def requires(self, port: int = 0) -> frozenset[Requirement]:  # noqa: ARG002  # for overrides
        """Returns what the rows of an input must carry besides columns."""
        return frozenset()

    def input_order(self, port: int = 0) -> InputOrder:  # noqa: ARG002  # for overrides
        """Returns which sources an input puts on hold. It does not affect state, so it is not part of the
        fingerprint.
        """
        return ANY_ORDER

    def row_key(self) -> RowKey | None:
        """Returns what identifies its rows if they are those of a table."""
        return None

    def waits(self) -> Waiting | None:
        """Returns what the rows wait for that it keeps; None if it keeps none for something else to arrive. Its runtime
        has the gauges `WAITING_ROWS` and `WAITING_UNTIL`.
        """
        return None

    def preserves_record(self, output: str = "") -> bool:  # noqa: ARG002  # for overrides
        """Returns True if each row of an output has the source record and the system columns of a row on port 0.
        Results of several rows have none.
        """
        return True

    def loses_time(self, output: str = "") -> bool:  # noqa: ARG002  # for overrides
        """Returns True if rows of an output have the event time of other rows, which were processed with them.

        Only operators that need no event time, or that assign one (`ASSIGNS_TIME`), may read them.
        """
        return False

    def keeps_order(self) -> bool:
        """Returns True if rows leave in the order in which they arrive. Behind an exchange it does not matter."""
        return True

    def splits_rows(self) -> bool:
        """Returns True if it may make several rows from one."""
        return False

    def emits(self) -> Emits:
        """Returns how the rows of the main output relate to one another."""
        return Emits.PASSED

    def counts_updates(self) -> bool:
        """Returns True if it counts a row that replaces an earlier one as an additional row."""
        return False

    def selects_by(self) -> frozenset[str] | None:
        """Returns the columns that decide if, how often or where a row is emitted. NULL in one of them may drop the
        row. None: every row is emitted once.
        """
        return None

    def computes(self) -> Mapping[str, Expression]:
        """Returns the output columns that are expressions over input columns. All others keep their input name."""
        return {}

    def made_from(self) -> Mapping[str, frozenset[str]]:
        """Returns the output columns that are computed from others, with these input columns."""
        return {name: columns_of(expression) for name, expression in self.computes().items()}

    def window_columns(self) -> frozenset[str]:
        """Returns the output columns that are bounds of the window of a result."""
        return frozenset()

    def unrepeatable(self) -> tuple[str, ...]:
        """Returns the columns that it adds whose values may differ if the same row arrives again as a retraction."""
        return ()

    # -- state ---------------------------------------------------------------------------------------------------------

    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:  # noqa: ARG002  # for overrides
        """Returns its states. `max_parallelism` is that of the plan; snapshots group keys by it.

        States hold the columns that the step itself names, whatever the planner prunes: a new sink downstream must not
        change the contents of a checkpoint.
        """
        return ()

    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:  # noqa: ARG002  # for overrides
        """Returns the lineages of an output, given those of its input (see `fingerprint.py`)."""
        return lineages

    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint | None:  # noqa: ARG002  # for overrides
        """Returns digests of what its state holds from the records of an input; None without state.

        The planner distinguishes inputs: the same records on another port have another meaning.
        """
        return None

    # -- size ----------------------------------------------------------------------------------------------------------

    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:  # noqa: ARG002  # for overrides
        """Returns the size of each column after it, and all the memory that it allocates, in terms of the input of the
        vertex; by default those of the columns that it passes on.

        `columns` are those of a batch on the port.
        """
        kept = {name: columns[name] for name, _ in self.pruned_columns() if name in columns}
        return kept, sum_bounds(kept.values())

    # -- explanations --------------------------------------------------------------------------------------------------

    def describes(self) -> list[str]:
        """Returns what it does as lines of text."""
        return []

    def user_code(self) -> CodeDescription | None:
        """Returns what user code it runs."""
        return None

    def origins(self) -> tuple[SourceTopic, ...]:
        """Returns the topics of records in its output, apart from the topics of its inputs."""
        return ()


class StepOperator(Operator, frozen=True, tag_field="operator"):
    """An operator that a step of the file creates. It runs in every slot and needs only its spec and its states."""

    def open(self, slot: Slot) -> OperatorRuntime:
        """Returns the runtime. Called once per subtask, in the slot process; only here may Polars be imported.

        By default it is of the class of the same name in the module `runtime` next to that of the operator: for
        `kinds.sample.SampleOperator` it is `kinds.sample.runtime.SampleRuntime(operator, slot)`.
        """
        module = importlib.import_module(f"{type(self).__module__}.runtime")
        runtime: OperatorRuntime = getattr(module, f"{type(self).__name__.removesuffix('Operator')}Runtime")(self, slot)
        return runtime


def _wake_nobody() -> None:
    """The default for operators that a test drives."""


def _no_clock() -> int:
    raise RuntimeError("this slot has no clock")


class Slot(msgspec.Struct, frozen=True):
    """What a slot provides to an operator when it opens."""

    max_parallelism: int
    open_state: OpenState
    key_groups: range | None = None
    """The key groups of the subtask; None: all of them."""
    subtask: int = 0
    parallelism: int = 1
    wake: Callable[[], None] = _wake_nobody
    """Ends the loop's wait after something has arrived from outside. May be called from any thread."""
    open_caller: OpenCaller | None = None
    """Opens what makes external calls; None: threads. The simulation replaces it."""
    now_ms: Callable[[], int] = _no_clock
    """Wall clock, ms since 1970."""
    open_reader: OpenReader | None = None
    """Opens what reads single records again, for dead letters."""
    files: Callable[[str], Path] = NO_FILES.path
    """Returns the path of a data file of `code:`. Raises FileNotFoundError."""
    rows_max: int = 1 << 31
    """The maximum number of rows that the operators downstream in the vertex take at a time."""
    bytes_max: int = BATCH_BYTES_MAX
    """The maximum number of bytes that they take at a time. A single row may exceed it."""

    @property
    def own_groups(self) -> range:
        """The key groups of the subtask."""
        return range(self.max_parallelism) if self.key_groups is None else self.key_groups

    def cut(self, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yields rows in parts that the operators downstream take at a time, at least one row in each."""
        from tidegate.formats.sizes import cut_frame

        return cut_frame(frame, self.rows_max, self.bytes_max)


def texts_of(columns: Columns) -> dict[str, str]:
    """Returns names and types as text, for `explain --format json`."""
    return {name: str(kind) for name, kind in columns}


def render_columns(columns: Iterable[tuple[str, object]]) -> str:
    """Returns names and types in one line, such as `id bigint, name string`."""
    return ", ".join(f"{name} {kind}" for name, kind in columns)
