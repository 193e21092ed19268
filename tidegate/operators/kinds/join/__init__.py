"""`join`: pairs rows of two inputs that have the same keys and are close in event time, or in one window (ADR 75).

The result is that of the SQL join over the rows that are not late. `settings.py` has the settings and the meaning of
time, `running/runtime.py` the algorithm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from tidegate.config.fields.base import Path
from tidegate.config.fields.steps import AllColumns
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import BIGINT, RESERVED, STRING, TIMESTAMP, DataType
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, derive_value_bound, sum_bounds
from tidegate.expressions.expression import ColumnReference, Expression, can_fail, columns_of, text_of
from tidegate.expressions.parse import qualified_name
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import StateName
from tidegate.operators.event_time import WATERMARK
from tidegate.operators.fingerprint import (
    Lineage,
    Lineages,
    StateFingerprint,
    combine_digests,
    combine_times,
    digest,
    digest_expression,
)
from tidegate.operators.keyed import REASONS
from tidegate.operators.kinds.join.settings import AHEAD_LEAST_MS, JoinRows, JoinStepSettings, Matching
from tidegate.operators.kinds.window.settings import derive_windowing
from tidegate.operators.spec import LATE, Columns, Emits, InputOrder, Requirement, Slot, StepOperator
from tidegate.operators.step import NEEDS_RETRACTION, MatchedKeys, NamedInput, StepContext, StepKind
from tidegate.operators.waiting import Waiting
from tidegate.state.declaration import StateDeclaration, StateField, StateForm, StateShape, declare_list
from tidegate.state.keygroups import KEY_HASH
from tidegate.state.time_ordered import declare_time_ordered

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime

ROWS: Final = (StateName("left_rows"), StateName("right_rows"))
"""By port, the rows of a side by time bucket and key."""
WAITING: Final = (StateName("left_waiting"), StateName("right_waiting"))
"""By port, the rows of a side that have matched nothing yet, by position and key, if that matters."""
AT: Final = f"{RESERVED}_at"
"""The column of a row's position: its event time, or the start of its window."""
BUCKET: Final = declare_list("bucket", (StateField("width_ms", BIGINT, nullable=False),), StateForm.UNION)
"""The width of the time buckets of the rows. Another `within` may have another one."""
SIDE: Final = "_side"
"""The column of late rows with the name of their side."""
BOUNDS: Final[Columns] = (("window_start", TIMESTAMP), ("window_end", TIMESTAMP))
WINDOWS_MAX: Final = 100
"""The maximum number of windows that a row may be in."""
ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 16 << 20
"""The maximum number and size of the rows of one side that share a key and a time bucket."""


class JoinOperator(StepOperator, frozen=True, tag="join"):
    """Pairs rows of port 0, the left side, with rows of port 1."""

    aliases: tuple[str, ...]
    """By port the name of the side."""
    keys: Columns
    key_columns: tuple[tuple[str, ...], ...]
    """By port the columns that hold the keys."""
    sides: tuple[Columns, ...]
    """By port the columns that `select` and `where` name. The state holds them, whatever is read downstream."""
    rows: JoinRows
    matching: Matching
    where: Expression | None
    """Over columns of both sides, named by `qualified_name`."""
    columns: tuple[tuple[str, Expression], ...]
    """The result, over the same columns."""
    output: Columns
    bad_records: BadRecordPolicy
    order: tuple[InputOrder, ...]
    """By port."""
    late: Columns = ()
    """The columns of late rows, without system columns; empty if nothing reads them."""

    @override
    def output_columns(self, output: str = "") -> Columns:
        return self.late if output == LATE else self.output

    @override
    def unpruned(self, output: str = "") -> set[str]:
        return set() if output else {name for name, expression in self.columns if can_fail(expression)}

    @override
    def reads(self, port: int = 0) -> set[str]:
        late = dict(self.pruned_columns(LATE)).get(self.aliases[port])
        return {*self.key_columns[port], *dict(self.sides[port]), *dict(late.fields if late else ())}

    @override
    def side_outputs(self) -> tuple[str, ...]:
        return (LATE,) if self.late else ()

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.EVENT_TIME})

    @override
    def input_order(self, port: int = 0) -> InputOrder:
        return self.order[port]

    @override
    def waits(self) -> Waiting | None:
        ports = [port for port in range(len(self.aliases)) if self.rows.preserves(port)]
        if not ports:
            return None
        return Waiting(tuple(self.aliases[port] for port in ports), tuple(self.aliases[1 - port] for port in ports))

    @override
    def preserves_record(self, output: str = "") -> bool:
        return False

    @override
    def emits(self) -> Emits:
        return Emits.INSERTS

    @override
    def counts_updates(self) -> bool:
        return True

    @override
    def window_columns(self) -> frozenset[str]:
        bounds = dict(BOUNDS)
        return frozenset(name for name, one in self.columns if isinstance(one, ColumnReference) and one.name in bounds)

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        keys = tuple(StateField(name, kind, nullable=False) for name, kind in self.keys)

        def declare(name: StateName, *values: StateField) -> StateDeclaration:
            shape = StateShape(keys, values, KEY_HASH, max_parallelism=max_parallelism)
            return declare_time_ordered(StateDeclaration(name, shape))

        found = []
        for port, columns in enumerate(self.sides):
            row = DataType("struct", fields=((AT, BIGINT), *columns))
            rows = StateField("rows", DataType("array", element=row), nullable=False)
            found.append(declare(ROWS[port], rows, StateField("bytes", BIGINT, nullable=False)))
            if self.rows.tracks(port):
                found.append(declare(WAITING[port], rows))
        return *found, BUCKET, WATERMARK

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        name, emitted = ("late", self.late) if output == LATE else ("join", self.output)
        columns = {column: digest(name, self.name, column) for column, _ in emitted}
        return (Lineage(self.name, columns, time=combine_times(self.name, lineages)),)

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint:
        """Leaves out how far apart rows may be: rows that are kept stay what they are."""
        return combine_digests(part for branch in lineages for part in self._parts(branch, port))

    def _parts(self, branch: Lineage, port: int) -> Iterator[tuple[str, str, str]]:
        conditions = sorted(branch.conditions)
        keys = (branch.columns[key] for key in self.key_columns[port])
        yield branch.origin, "the keys", digest("join", *keys, branch.time, *conditions)
        yield branch.origin, "what has matched", digest(self.rows, *self._window_parts(), self._digest(branch, port))
        for name, _ in self.sides[port]:
            yield branch.origin, f"`{name}`", digest("joined", branch.columns[name], *conditions)

    def _digest(self, branch: Lineage, port: int) -> str:
        """Returns the digest of `where`, as far as it depends on one side."""
        if self.where is None:
            return ""
        own = {qualified_name(self.aliases[port], name): branch.columns[name] for name, _ in self.sides[port]}
        others = {name: digest("column", name) for name in columns_of(self.where)}
        return digest_expression(self.where, others | own)

    def _window_parts(self) -> tuple[str, ...]:
        one = self.matching
        return ("window", *map(str, (one.size_ms, one.every_ms, one.offset_ms))) if one.size_ms else ()

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Does not count how many pairs a row makes: they are emitted in slices."""
        fixed = Bound({}, FIXED_BYTES)
        arriving = {qualified_name(self.aliases[port], name): columns[name] for name, _ in self.sides[port]}
        known = {name: fixed for _, one in self.columns for name in columns_of(one)} | arriving
        made = {name: derive_value_bound(one, known) for name, one in self.columns}
        outgoing = {name: value for name, (value, _) in made.items()}
        for name, _ in self.pruned_columns(LATE):
            whole = sum_bounds(columns.values()) if name == self.aliases[port] else fixed
            outgoing[name] = outgoing.get(name, Bound()) + whole
        return outgoing, sum_bounds([*(whole for _, whole in made.values()), *outgoing.values()])

    @override
    def describes(self) -> list[str]:
        left, right = self.aliases
        matching, keys = self.matching, ", ".join(f"{name} {kind}" for name, kind in self.keys)
        bucket = render_duration(matching.size_ms or matching.bucket_ms)
        near = str(matching) if matching.size_ms else f"{right} {matching} {left}"
        lasting = (f"{alias} for {render_duration(matching.waits_ms(port))}" for port, alias in enumerate(self.aliases))
        bound = f"at most {ROWS_MAX:,} rows or {BYTES_MAX >> 20} MiB of a key within {bucket}"
        return [
            f"{self.rows} join of {left} and {right} by {keys}: {near}",
            *([] if self.where is None else [f"where {text_of(self.where)}"]),
            *(f"{name} = {_text(expression)}" for name, expression in self.columns),
            f"keyed state on both sides, {' and '.join(lasting)}, and up to {bucket} longer; {bound}",
        ]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        from tidegate.operators.kinds.join.running.runtime import JoinRuntime

        return JoinRuntime(self, slot)


def _text(expression: Expression) -> str:
    return expression.name if isinstance(expression, ColumnReference) else text_of(expression)


class JoinKind(StepKind):
    """The kind of a step with `join`."""

    key = "join"
    other_keys = ("where", "select", "window")
    examples = (
        "join: {l: rows, r: more}, on: {id: id}, within: {before: 3s, after: 5s}, select: {a: l.customer, at: r.at}",
        "join: {l: rows, r: more}, on: {id: id}, within: {after: 9s}, rows: full, late: late, select: {at: r.at}",
        "join: {l: rows, r: rows}, on: {id: id}, within: {}, rows: right, where: r.amount > 1, select: {a: l.tags}",
        "join: {l: rows, r: rows}, on: {id: id, customer: customer}, within: {}, rows: semi, select: {a: l.at}",
        "join: {l: rows, r: more}, on: {id: id}, window: {tumbling: 30s}, rows: anti, select: {a: window_start}",
        "join: {l: rows, r: more}, on: {id: id}, window: {sliding: 3s, every: 1s}, rows: left, select: {a: r.id}",
    )
    needs: ClassVar[Mapping[str, str]] = {
        "on": "add it: columns of the left input, and columns of the right one with the same values, as {id: order_id}",
        "select": "add it: the columns of the result, as {id: order.id}",
    }
    settings = JoinStepSettings

    @override
    def inputs(self, step: JoinStepSettings) -> tuple[NamedInput, ...]:
        return tuple(NamedInput(alias, name, ("join", alias)) for alias, name in (step.join or {}).items())

    @override
    def counts(self, step: Any) -> bool:
        return True

    @override
    def refuses_changes(self, step: Any) -> str:
        return NEEDS_RETRACTION

    @override
    def build(self, step: Any, context: StepContext) -> None:
        assert step.join is not None
        aliases = tuple(step.join)
        if step.rows is not None and step.rows not in [*JoinRows]:
            context.problem(("rows",), f"`{step.rows}` is for `python`", f"write one of {', '.join(JoinRows)}")
            return
        rows = JoinRows(step.rows or JoinRows.INNER)
        matching = _derive_matching(step, context)
        bounds = dict(BOUNDS) if matching is not None and matching.size_ms else {}
        columns = _derive_columns(step, context, aliases, rows, bounds)
        where = step.where and context.qualified(("where",), step.where, aliases, bounds, condition=True)
        keys = _match_keys(step, context, aliases, rows)
        late = _derive_late(step, context, aliases)
        if columns is not None:
            context.declare_columns({name: one.type for name, one in columns.items()})
        if matching is None or columns is None or (step.where and where is None) or keys is None:
            return
        read = {name for one in (*columns.values(), where) for name in columns_of(one)}
        sides = tuple(
            tuple(one for one in context.of(alias).columns.items() if qualified_name(alias, one[0]) in read)
            for alias in aliases
        )
        span_ms = matching.size_ms or matching.before_ms + matching.after_ms
        order = InputOrder(ahead_ms=step.ahead_ms or max(span_ms, AHEAD_LEAST_MS))
        operator = JoinOperator(
            context.name,
            aliases,
            tuple(zip(step.on, keys.types, strict=True)),
            tuple(keys.columns[alias] for alias in aliases),
            sides,
            rows,
            matching,
            where,
            tuple(columns.items()),
            tuple((name, one.type) for name, one in columns.items()),
            context.policy,
            (order, order),
            tuple(late.items()),
        )
        context.add(operator, keys.columns)


def _match_keys(step: Any, context: StepContext, aliases: tuple[str, ...], rows: JoinRows) -> MatchedKeys | None:
    """Returns the keys with their common types, or None after reporting that there are none."""
    remedies = {("on", left): _exchanged(left, right, context, aliases) for left, right in step.on.items()}
    for path, remedy in remedies.items():
        if remedy:
            context.problem(
                path, f"the left column must be one of `{aliases[0]}`, without the alias", remedy, at_key=True
            )
    if any(remedies.values()):
        return None
    preserved = {alias for port, alias in enumerate(aliases) if rows.preserves(port)}
    keys: dict[Path, dict[str, str]] = {
        ("on", left): dict(zip(aliases, (left, right), strict=True)) for left, right in step.on.items()
    }
    return context.match_keys(keys, preserved)


def _exchanged(left: str, right: str, context: StepContext, aliases: tuple[str, ...]) -> str:
    """Returns what to write if columns were given in the wrong order or with their input; empty if they were not."""
    of_left, of_right = (context.of(alias).columns for alias in aliases)
    if left in of_left and right in of_right:
        return ""
    first, second = (name.removeprefix(f"{alias}.") for name, alias in zip((left, right), aliases, strict=True))
    for one, other in ((first, second), (second, first)):
        if one in of_left and other in of_right:
            return f"write {{{one}: {other}}}"
    return ""


def _derive_matching(step: Any, context: StepContext) -> Matching | None:
    """Returns which rows match by time, or None after reporting what is wrong."""
    if step.within is not None and step.window is not None:
        context.problem(("window",), "both `within` and `window` are given", "keep one of them", at_key=True)
        return None
    if step.within is not None:
        return Matching(step.within.before_ms, step.within.after_ms)
    if step.window is None:
        remedy = "add it, as {before: 5m, after: 1h}: how far apart the rows of a pair may be; or `window`"
        context.problem((), "`within` is missing", remedy, at_key=True)
        return None
    found = derive_windowing(step.window, 0)
    if isinstance(found, list):
        for key, message, remedy in found:
            context.problem(("window", key) if key else ("window",), message, remedy)
        return None
    for key, given in (("session", found.session), ("time_zone", found.time_zone)):
        if given:
            remedy = "write tumbling or sliding" if key == "session" else "remove it: windows are in UTC"
            context.problem(("window", key), f"a join in windows with `{key}` is not supported yet", remedy)
            return None
    if found.size_ms > found.every_ms * WINDOWS_MAX:
        remedy = f"make it at least {render_duration(-(-found.size_ms // WINDOWS_MAX))}"
        context.problem(("window", "every"), f"a row would be in more than {WINDOWS_MAX} windows", remedy)
        return None
    return Matching(0, 0, found.size_ms, found.every_ms, found.offset_ms)


def _derive_columns(
    step: Any, context: StepContext, aliases: tuple[str, ...], rows: JoinRows, bounds: Mapping[str, DataType]
) -> dict[str, Expression] | None:
    """Returns the columns of the result, or None after reporting what is wrong."""
    if isinstance(step.select, AllColumns):
        remedy = f"name each column, as {{id: {aliases[0]}.id}}"
        context.problem(("select",), "`all` would take the columns of both inputs", remedy)
        return None
    found = {name: context.qualified(("select", name), text, aliases, bounds) for name, text in step.select.items()}
    typed = {name: one for name, one in found.items() if one is not None}
    left, right = aliases
    hidden = {qualified_name(right, name) for name in context.of(right).columns} if not rows.pairs else set()
    wrong = [name for name, one in typed.items() if hidden & columns_of(one)]
    for name in wrong:
        remedy = f"use columns of `{left}`, or exchange the inputs"
        context.problem(("select", name), f"`rows: {rows}` emits rows of `{left}` only", remedy)
    return None if wrong or len(typed) < len(found) else typed


def _derive_late(step: JoinStepSettings, context: StepContext, aliases: tuple[str, ...]) -> dict[str, DataType]:
    """Declares and returns the columns of late rows: the name of the side, each side as a struct, and the reason."""
    if step.late is None:
        return {}
    sides = {alias: DataType("struct", fields=tuple(context.of(alias).columns.items())) for alias in aliases}
    late = {SIDE: STRING, **sides, **dict(REASONS)}
    context.declare_columns(late, LATE)
    return late


KIND = JoinKind()
