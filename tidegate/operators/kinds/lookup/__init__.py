"""`lookup`: adds columns of a table's row with the same key to each row of a stream.

Port 0 is the stream, port 1 the rows of the table (`latest_rows`). Each lookup holds the columns that it reads itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.steps import Ttl
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import (
    Column,
    ExpressionText,
    MatchingColumns,
    StepName,
    ValueCheck,
    choice,
    duration,
    refusal,
    require_text,
)
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import BIGINT, BINARY
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.expressions.expression import ColumnReference, Expression, can_fail, columns_of, text_of
from tidegate.expressions.parse import qualified_name
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import StateName
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.fingerprint import Lineages, StateFingerprint, combine_digests, digest, digest_expression
from tidegate.operators.latest_rows import ROWS, declare_latest, derive_place, digest_latest, requires_of
from tidegate.operators.spec import ANY_ORDER, Columns, InputOrder, Requirement, Rest, Slot, StepOperator
from tidegate.operators.step import InputContext, NamedInput, StepContext, StepKind
from tidegate.operators.waiting import Waiting
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime

NULL: Final = "null"
DROP: Final = "drop"
FAIL: Final = "fail"
WAIT: Final = "wait"
_ACTIONS: Final = (NULL, DROP, FAIL)
_REMEDY: Final = 'write "null", drop, fail or wait 30s'
_DURATION: Final = duration("10ms", "1h")


class Missing(msgspec.Struct, frozen=True):
    """What happens to a row without a match, and how long a row waits for a row of the table."""

    action: str = NULL
    wait_ms: int = 0

    def __str__(self) -> str:
        return f"{self.action} {render_duration(self.wait_ms)}" if self.action == WAIT else self.action


def _missing(value: object) -> Missing:
    text = require_text(value, '"null", drop, fail or wait 30s', _REMEDY)
    action, _, time = text.partition(" ")
    if action == WAIT and time:
        return Missing(WAIT, _DURATION.check(time.strip()))
    if text not in _ACTIONS:
        near = derive_suggestion(text, _ACTIONS)
        remedy = near if near.startswith("did you mean") else _REMEDY
        raise refusal(f"`{text[:60]}` is not one of the choices", remedy)
    return Missing(text)


MissingMode = Annotated[
    Missing,
    ValueCheck(
        _missing,
        {
            "type": "string",
            "pattern": "^(null|drop|fail|wait +([0-9]+(ms|s|m|h))+)$",
            "examples": [*_ACTIONS, "wait 30s"],
        },
    ),
]


STREAM: Final = 0
TABLE: Final = 1
WAITING: Final = StateName("waiting")
CAUGHT_UP: Final = "caught-up"
IMMEDIATELY: Final = "immediately"


class LookupSettings(Settings):
    """The keys of a lookup."""

    lookup: Annotated[
        StepName | None, Field(description="The step with `table` in which the row of each record is looked up.")
    ] = None
    on: MatchingColumns = None
    add: Annotated[
        dict[Column, ExpressionText] | None,
        Field(
            min_length=1,
            description="New columns by Spark SQL expressions over columns of the table, written `table.column`: "
            "`{segment: customer.segment}`.",
        ),
    ] = None
    missing: Annotated[
        MissingMode | None,
        Field(
            description='A record without a row in the table: `"null"` passes it on as if all columns of the table '
            "were NULL (the default), `drop` drops it, `fail` makes it a bad record (`NO_TABLE_ROW`); `wait 30s` (10ms "
            "to 1h) keeps it until the row arrives, at most for this time by the clock, then passes it on like "
            '`"null"`. Later records of its key wait behind it.'
        ),
    ] = None
    begin: Annotated[
        str | None,
        choice(CAUGHT_UP, IMMEDIATELY),
        Field(
            description="`caught-up`: after each start, the stream is read once the table has what its topic held "
            "then (the default); `immediately`: both are read at once."
        ),
    ] = None


class LookupOperator(StepOperator, frozen=True, tag="lookup"):
    """Joins each row of the stream with the latest row of its key."""

    REST: ClassVar[Rest] = Rest.FILTERED

    keys: Columns
    """The columns of the table's key, with the types of the exchange."""
    table_keys: Columns
    """The same columns with their types in the table."""
    key_columns: tuple[tuple[str, ...], ...]
    """The columns that hold the key, by port."""
    inputs: tuple[str, str]
    """The stream and the table, as the file names them."""
    stream: Columns
    """All columns of the stream."""
    held: Columns
    """The columns of the table that `add` reads, besides its key."""
    add: tuple[tuple[str, Expression], ...]
    missing: Missing
    bad_records: BadRecordPolicy
    """That of the stream."""
    table_bad_records: BadRecordPolicy
    order: InputOrder = ANY_ORDER
    """That of the table's port."""
    place: tuple[str, ...] = ()
    """The system columns that tell partitions of the table apart (`derive_place`)."""
    ttl: Ttl | None = None
    """That of the table."""

    @property
    def table(self) -> str:
        """The name of the table."""
        return self.inputs[TABLE]

    @override
    def bad_records_of(self, port: int = 0) -> BadRecordPolicy:
        return self.table_bad_records if port == TABLE else self.bad_records

    @override
    def output_columns(self, output: str = "") -> Columns:
        return (*self.stream, *((name, expression.type) for name, expression in self.add))

    @override
    def unpruned(self, output: str = "") -> set[str]:
        return {name for name, expression in self.add if can_fail(expression)}

    @property
    def pruned_expressions(self) -> tuple[tuple[str, Expression], ...]:
        """The expressions of the columns that it emits, over columns of the stream and qualified ones of the table."""
        added = dict(self.add)
        return tuple((name, added.get(name) or ColumnReference(name, kind)) for name, kind in self.pruned_columns())

    @override
    def reads(self, port: int = 0) -> set[str]:
        if port == TABLE:
            return {*self.key_columns[TABLE], *dict(self.held), DELETED}
        stream = dict(self.stream).keys()
        passed = stream if self.may_wait else {name for name, _ in self.pruned_columns()} & stream
        return {*self.key_columns[STREAM], *passed}

    @override
    def waits(self) -> Waiting | None:
        return Waiting((self.inputs[STREAM],), (self.table,), by_clock=True) if self.may_wait else None

    @property
    def may_wait(self) -> bool:
        """True if rows of the stream may wait; its state then has all their columns."""
        return self.missing.action == WAIT

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        if port == TABLE:
            return requires_of(self.place, self.ttl)
        return frozenset({Requirement.EVENT_TIME} if self.may_wait else ())

    @override
    def input_order(self, port: int = 0) -> InputOrder:
        return self.order if port == TABLE else ANY_ORDER

    @override
    def selects_by(self) -> frozenset[str] | None:
        return frozenset(self.key_columns[STREAM]) if self.missing.action == DROP else None

    @override
    def unrepeatable(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.add)

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        latest = declare_latest(self.keys, self.held, max_parallelism, self.ttl)
        return (latest, self._declare_waiting(max_parallelism)) if self.may_wait else (latest,)

    def _declare_waiting(self, max_parallelism: int) -> StateDeclaration:
        """Declares the state of waiting rows: by key and number, when the row gives up, its system columns and the
        others.
        """
        shape = StateShape(
            (*(StateField(name, kind) for name, kind in self.keys), StateField("__tidegate_number", BIGINT)),
            (
                StateField("__tidegate_until", BIGINT, nullable=False),
                StateField("__tidegate_carried", BINARY, nullable=False),
                *(StateField(name, kind) for name, kind in self.stream),
            ),
            KEY_HASH,
            max_parallelism=max_parallelism,
            suffix=1,
        )
        return StateDeclaration(WAITING, shape)

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        """Takes those of the stream.

        The table's name is no part of it, because a table may be renamed. Another table is another origin of the state.
        """
        own = (*self.table_keys, *self.held)
        table = {qualified_name(self.table, name): digest("table", name) for name, _ in own}
        added = {name: digest("lookup", self.name, digest_expression(one, table)) for name, one in self.add}
        drops = self.missing.action in (DROP, FAIL)
        conditions = [digest("lookup", self.name, self.missing.action)] if drops else []
        return tuple(branch.filtered(*conditions).extended(added) for branch in lineages)

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint:
        """Has nothing of the stream unless its rows may wait."""
        if port == STREAM:
            return combine_digests(self._digest_waiting(lineages)) if self.may_wait else {}
        return combine_digests(digest_latest(self.kind, lineages, self.key_columns[TABLE], dict(self.held), self.ttl))

    def _digest_waiting(self, lineages: Lineages) -> Iterator[tuple[str, str, str]]:
        for branch in lineages:
            keys = (branch.columns[name] for name in self.key_columns[STREAM])
            yield branch.origin, "what waits", digest("waiting", *keys, *sorted(branch.conditions))
            for name, _ in self.stream:
                yield branch.origin, f"`{name}`", digest("waiting", branch.columns[name])

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """The size of the table's row is not known: larger batches are refused when they are joined."""
        fixed = Bound({}, FIXED_BYTES)
        made = {name: columns.get(name, fixed) for name, _ in self.output_columns()}
        return made, sum_bounds(made[name] for name, _ in self.pruned_columns())

    @override
    def describes(self) -> list[str]:
        pairs = zip(self.key_columns[STREAM], self.keys, strict=True)
        matched = ", ".join(f"{column} = {self.table}.{name}" for column, (name, _) in pairs)
        held = ", ".join(name for name, _ in self.held)
        begin = f"begins when `{self.table}` has caught up" if self.order.comes_first else "begins immediately"
        return [
            f"lookup {self.table} where {matched}; missing: {self.missing}; {begin}",
            *(f"{name} = {text_of(expression)}" for name, expression in self.add),
            f"keyed state by {', '.join(name for name, _ in self.keys)}: the latest row, with {held or 'no columns'}"
            + ("; waiting rows of the stream" if self.may_wait else "")
            + ("" if self.ttl is None else f"; ttl {self.ttl}"),
        ]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        if self.may_wait:
            from tidegate.operators.kinds.lookup.runtime import WaitingLookupRuntime

            return WaitingLookupRuntime(self, slot)
        from tidegate.operators.kinds.lookup.runtime import LookupRuntime

        return LookupRuntime(self, slot)


class LookupKind(StepKind):
    """The kind of a step with `lookup`."""

    key = "lookup"
    examples = (
        "from: rows, lookup: known, on: {id: id}, add: {name: known.customer, twice: known.amount * 2}",
        "from: rows, lookup: known, on: {id: id}, add: {name: known.customer}, missing: drop, begin: immediately",
        "from: rows, lookup: known, on: {id: id}, add: {name: 'upper(known.customer)'}, missing: fail",
        "from: rows, lookup: known, on: {id: id}, add: {worth: known.amount}, missing: wait 5s",
    )
    needs: ClassVar[Mapping[str, str]] = {
        "on": "add it: `{column of the stream: column of the table's key}`",
        "add": "add it: `{new column: table.column}`",
    }
    settings = LookupSettings

    @override
    def inputs(self, step: Any) -> tuple[NamedInput, ...]:
        if step.lookup is None or not step.from_:
            return ()
        stream = NamedInput(step.from_[0], step.from_[0], ("from", 0))
        alias = f"{step.lookup}.{ROWS}" if step.lookup == stream.alias else step.lookup
        return stream, NamedInput(alias, step.lookup, ("lookup",), ROWS)

    @override
    def expressions(self, step: LookupSettings) -> Mapping[Path, str]:
        return {("add", column): text for column, text in (step.add or {}).items()}

    @override
    def refuses_changes(self, step: Any) -> str:
        return "is not supported yet: a retraction might not match the row that was emitted"

    @override
    def build(self, step: Any, context: StepContext) -> None:
        stream_name, table_name = step.from_[0], step.lookup
        if len(step.from_) > 1:
            remedy = "combine them in a step of their own: `{name: all, from: [a, b]}`"
            context.problem(("from",), "a lookup reads one input and the table", remedy, at_key=True)
            return
        if stream_name == table_name:
            return  # the stream is changes of the table, which is reported
        stream, table = context.of(stream_name), context.of(table_name)
        added = _add(step, stream, context)
        if added is None:
            return
        context.declare_columns({**stream.columns, **{name: one.type for name, one in added.items()}})
        row_key = table.row_key
        assert row_key is not None, "the rows of a table have a key"
        pairs = _match_table_key(step, row_key.columns, context)
        if pairs is None:
            return
        missing = step.missing or Missing()
        paths: dict[Path, dict[str, str]] = {
            ("on", column): {stream_name: column, table_name: key} for key, column in pairs.items()
        }
        matched = context.match_keys(paths, () if missing.action == DROP else (stream_name,))
        if matched is None:
            return
        read = {name for one in added.values() for name in columns_of(one)}
        held = {name: kind for name, kind in table.columns.items() if qualified_name(table_name, name) in read}
        operator = LookupOperator(
            context.name,
            tuple(zip(pairs, matched.types, strict=True)),
            tuple((key, table.columns[key]) for key in pairs),
            (matched.columns[stream_name], matched.columns[table_name]),
            (stream_name, table_name),
            tuple(stream.columns.items()),
            tuple((name, kind) for name, kind in held.items() if name not in pairs),
            tuple(added.items()),
            missing,
            stream.policy,
            table.policy,
            InputOrder(comes_first=step.begin != IMMEDIATELY),
            derive_place(table.origins()),
            row_key.ttl,
        )
        context.add(operator, matched.columns)


def _add(step: LookupSettings, stream: InputContext, context: StepContext) -> dict[str, Expression] | None:
    """Returns the new columns, or None after reporting what is wrong."""
    found: dict[str, Expression] = {}
    for name, text in (step.add or {}).items():
        expression = context.qualified(("add", name), text, (step.lookup or "",))
        if name in stream.columns:
            context.problem(("add", name), f"the stream already has a column `{name}`", "choose another", at_key=True)
        elif expression is not None and DELETED in {one.rpartition(".")[2] for one in columns_of(expression)}:
            remedy = "use another column of the table: rows that are deleted match nothing"
            context.problem(("add", name), f"`{DELETED}` is not a column of the table's rows", remedy)
        elif expression is not None:
            found[name] = expression
    return found if len(found) == len(step.add or {}) else None


def _match_table_key(step: LookupSettings, key: tuple[str, ...], context: StepContext) -> dict[str, str] | None:
    """Returns the stream's column for each column of the table's key, in its order, or None after reporting that `on`
    has others.
    """
    on = step.on or {}
    pairs = {of_table: column for column, of_table in on.items()}
    if {*pairs} == {*key} and len(pairs) == len(on):
        return {name: pairs[name] for name in key}
    if {*on} == {*key}:
        message, found = "the column of the stream comes first, then that of the table", dict(on)
    else:
        message = f"the key of `{step.lookup}` is {', '.join(key)}: a lookup needs all of it, and no other column"
        spare = [column.rpartition(".")[2] for column, of_table in on.items() if of_table not in key]
        found = {name: pairs.get(name) or (spare.pop(0) if spare else "column") for name in key}
    example = ", ".join(f"{column}: {name}" for name, column in found.items())
    context.problem(("on",), message, f"write `on: {{{example}}}`")
    return None


KIND = LookupKind()
