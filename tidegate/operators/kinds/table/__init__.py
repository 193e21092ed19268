"""`table`: the latest row of each key of a compacted topic, or of the changes of a table.

Two operators: `NAME.rows` checks keys and marks rows that delete; steps that look rows up read it. The operator of the
step itself holds whole rows and emits their changes. It is part of the plan only if something reads these changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Settings
from tidegate.config.fields.steps import Ttl, TtlKind
from tidegate.config.fields.types import Keys
from tidegate.datatypes import BOOLEAN
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_source import CHANGE_COLUMNS, DELETED, TOMBSTONE
from tidegate.operators.fingerprint import Lineages, StateFingerprint, combine_digests, digest
from tidegate.operators.keyed import KeyedOperator
from tidegate.operators.latest_rows import ROWS, declare_latest, derive_place, digest_latest, requires_of
from tidegate.operators.spec import Columns, Emits, Requirement, Rest, RowKey, StepOperator
from tidegate.operators.step import ColumnOrigin, StepContext, StepKind

if TYPE_CHECKING:
    from tidegate.state.declaration import StateDeclaration


class TableSettings(Settings):
    """What identifies a row of the table."""

    key: Annotated[Keys, Field(description="Column or columns of which each value has one row.")]
    ttl: Annotated[
        TtlKind | None,
        Field(
            description="A row that is not written for this long (1s to 365d) of event time is deleted: `90d`. It may "
            "be added, changed and removed at any restart. Without it rows are kept until they are deleted."
        ),
    ] = None


class TableStepSettings(Settings):
    """The key of a table."""

    table: Annotated[
        TableSettings | None,
        Field(
            description="Keeps the latest record of each key, by arrival, until a record deletes it (a tombstone with "
            "`on_null: tombstone`, or a delete of a change event). `lookup` reads it; other steps and sinks get its "
            "changes."
        ),
    ] = None


class TableRowsOperator(StepOperator, frozen=True, tag="table-rows"):
    """Emits each row of a table with `_deleted`, which is true if it deletes its key. A row with a NULL key fails."""

    REST: ClassVar[Rest] = Rest.FILTERED

    keys: tuple[str, ...]
    columns: Columns
    """All columns that arrive, except those that describe an event rather than a row."""
    bad_records: BadRecordPolicy
    both_rows: bool = False
    """True if updates arrive as two rows, because they may change the key."""
    ttl: Ttl | None = None
    """How long readers keep a row."""

    @override
    def output_columns(self, output: str = "") -> Columns:
        return (*(one for one in self.columns if one[0] != DELETED), (DELETED, BOOLEAN))

    @override
    def unpruned(self, output: str = "") -> set[str]:
        return {*self.keys}

    @override
    def reads(self, port: int = 0) -> set[str]:
        wanted = {name for name, _ in self.pruned_columns()} | {DELETED}
        return wanted & dict(self.columns).keys()

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.ROW_KIND} if self.both_rows else ())

    @override
    def row_key(self) -> RowKey:
        return RowKey(self.keys, self.ttl)

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        return tuple(
            branch.filtered(digest("rows by key", *(branch.columns[key] for key in self.keys))).extended(
                {DELETED: digest("deleted", branch.columns.get(DELETED, ""))}
            )
            for branch in lineages
        )

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        outgoing = {**columns, DELETED: Bound({}, FIXED_BYTES)}
        kept = {name: outgoing[name] for name, _ in self.pruned_columns()}
        return kept, sum_bounds(kept.values())

    @override
    def describes(self) -> list[str]:
        return [f"rows of a table by {', '.join(self.keys)}; `{DELETED}` deletes a row, and a NULL key fails"]


class TableOperator(KeyedOperator, frozen=True, tag="table"):
    """Holds the latest row of each key, and emits the changes of the table."""

    REST: ClassVar[Rest] = Rest.FOLDED

    place: tuple[str, ...] = ()
    """The system columns that tell partitions apart (`derive_place`)."""
    ttl: Ttl | None = None

    @override
    def preserves_record(self, output: str = "") -> bool:
        return False

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return requires_of(self.place, self.ttl)

    @override
    def emits(self) -> Emits:
        return Emits.RETRACTIONS

    @override
    def unrepeatable(self) -> tuple[str, ...]:
        return (DELETED,)

    @override
    def deciding_columns(self) -> tuple[str, ...]:
        return (DELETED,)

    @override
    def held_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.held)

    @property
    def held(self) -> Columns:
        """The columns of a row besides its key."""
        return tuple(one for one in self.columns if one[0] not in (*self.keys, DELETED))

    @override
    def parameters(self) -> dict[str, Any]:
        return {}

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        kinds = dict(self.columns)
        keys = tuple((key, kinds[key]) for key in self.keys)
        return (declare_latest(keys, self.held, max_parallelism, self.ttl),)

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint:
        return combine_digests(digest_latest(self.kind, lineages, self.keys, self.held_columns(), self.ttl))

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts two rows for each key: the one before and the one after."""
        outgoing, made = super().output_size(columns, port)
        return outgoing, made + made

    @override
    def describes(self) -> list[str]:
        keys = ", ".join(self.keys)
        ttl = "" if self.ttl is None else f"; ttl {self.ttl}"
        return [f"the latest row per {keys}, by arrival; emits its changes", f"keyed state by {keys}: whole rows{ttl}"]


class TableKind(StepKind):
    """The kind of a step with `table`."""

    key = "table"
    examples = ("table: {key: id}", "table: {key: customer}", "table: {key: id, ttl: 1h}")
    settings = TableStepSettings
    operators = (ROWS,)

    @override
    def build(self, step: TableStepSettings, context: StepContext) -> None:
        assert step.table is not None
        keys = step.table.key
        usable = [self._usable(index, key, context) for index, key in enumerate(keys)]
        deleted = context.columns.get(DELETED, BOOLEAN)
        if deleted != BOOLEAN:
            remedy = "make it boolean, or give it another name, in a `select` before this step"
            context.problem(("table",), f"`{DELETED}` marks rows that delete their key, and is {deleted}", remedy)
        origins = context.origins(*keys)
        for one in origins:
            if one.source is not None and one.source.on_null == TOMBSTONE and DELETED not in context.columns:
                message = (
                    f"tombstones of `{one.source.name}` would become rows of NULLs: `{DELETED}` does not "
                    f"reach this step"
                )
                context.problem(("table",), message, f"add `{DELETED}: {DELETED}` to the `select` before this step")
        in_place = all(_is_record_key(one) and not one.chosen for one in origins)
        both_rows = context.changes and not in_place
        if any(one.chosen for one in origins) and not both_rows:
            remedy = (
                f"compute `{DELETED}` from the condition in a `select` instead, or move the condition to the steps "
                f"that read the table"
            )
            message = "if a step before the table drops a row, the older row of its key stays in the table"
            context.warn(("table",), message, remedy, at_key=True)
        event = CHANGE_COLUMNS - {DELETED} if context.changes else ()
        columns = tuple(one for one in context.columns.items() if one[0] not in event)
        rows = TableRowsOperator(
            OperatorName(f"{context.name}.{ROWS}"), keys, columns, context.policy, both_rows, step.table.ttl
        )
        context.declare_columns(dict(rows.output_columns()))
        if step.table.ttl is not None and step.table.ttl.processing:
            remedy = "write `ttl: 90d`: rows of a table end by event time"
            context.problem(("table", "ttl"), "by the clock it is not supported yet", remedy)
            return
        if not all(usable) or deleted != BOOLEAN:
            return
        context.add(rows)
        table = TableOperator(
            context.name, keys, rows.output_columns(), context.policy, derive_place(origins), rows.ttl
        )
        context.add(table, keys)

    def _usable(self, index: int, key: str, context: StepContext) -> bool:
        path = ("table", "key", index)
        if key == DELETED:
            context.problem(path, f"`{DELETED}` marks rows that delete their key", "choose another column")
            return False
        if not context.key(path, key):
            return False
        for one in context.origins(key):
            if one.source is not None and one.source.on_null == TOMBSTONE and not _is_record_key(one):
                context.problem(
                    path,
                    f"a tombstone of `{one.source.name}` has no value, so `{key}` is NULL in it",
                    f"read it from the key of the record: add `metadata: {{key: {key}}}` to the source, and remove "
                    f"`{key}` from its `schema`",
                )
                return False
        return True


def _is_record_key(origin: ColumnOrigin) -> bool:
    """Returns True if columns are computed from the key of the record alone, which no update changes."""
    if origin.source is None:
        return False
    own = {one.name for one in origin.source.metadata if one.part == "key"}
    return bool(origin.columns) and origin.columns <= own


KIND = TableKind()
