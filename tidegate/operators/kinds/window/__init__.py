"""`key`, `aggregate` and `window`: results per key and window of event time.

`settings.py` has the settings, `running/` the runtimes. ADR 35 explains the design; docs/windows.md is for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from tidegate.config.fields.base import Path
from tidegate.config.fields.steps import ON_CLOSE, EmitEvery
from tidegate.config.fields.units import render_duration
from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, TIMESTAMP, DataType
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.expressions.expression import AggregateCall
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, StateName
from tidegate.operators.aggregates.collecting import BYTES_MAX, VALUES_MAX
from tidegate.operators.aggregates.contract import Aggregate, AggregateUse
from tidegate.operators.aggregates.registry import make_aggregate
from tidegate.operators.builtin.projection import make_projection
from tidegate.operators.event_time import WATERMARK
from tidegate.operators.fingerprint import EVENT_TIME, Lineage, Lineages, StateFingerprint, combine_digests, digest
from tidegate.operators.keyed import REASONS, columns_read, derive_late, pass_late
from tidegate.operators.kinds.aggregate import (
    bound_results,
    derive_digests,
    derive_inputs,
    encodings_of,
    read_aggregates,
    state_fields,
    zeros_of,
)
from tidegate.operators.kinds.window.settings import (
    AHEAD,
    EARLY,
    EARLY_SESSIONS,
    EMITTED,
    EXTRA,
    GATHERED,
    KEPT_SESSIONS,
    LATE_ROWS,
    PENDING_LATE_ROWS,
    SESSIONS,
    SLICES,
    TIMERS,
    Windowing,
    WindowStepSettings,
    derive_windowing,
)
from tidegate.operators.spec import LATE, Columns, Emits, Requirement, Slot, StepOperator
from tidegate.operators.step import NEEDS_RETRACTION, StepContext, StepKind
from tidegate.state.declaration import WINDOW, Serializer, StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH
from tidegate.state.time_ordered import declare_time_ordered

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime

START: Final = "window_start"
END: Final = "window_end"
DELETED: Final = "_deleted"
"""The column of sessions with early or corrected results that marks a result as deleted."""
ADDED: Final[Columns] = ((START, TIMESTAMP), (END, TIMESTAMP))


class WindowOperator(StepOperator, frozen=True, tag="window"):
    """Aggregates per key and window. Arguments are plain columns: the kind adds a select in front of the exchange."""

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, AggregateCall], ...]
    window: Windowing
    allowed_lateness_ms: int
    output: Columns
    bad_records: BadRecordPolicy
    late: Columns = ()
    """The columns of late rows, without system columns; empty if nothing reads them."""

    @override
    def output_columns(self, output: str = "") -> Columns:
        return self.late if output == LATE else self.output

    @override
    def unpruned(self, output: str = "") -> set[str]:
        """Returns all columns of results except `_deleted`."""
        return set() if output else {name for name, _ in self.output} - {DELETED}

    @property
    def arguments(self) -> tuple[str, ...]:
        """The columns that are aggregated."""
        return tuple(sorted({name for _, call in self.aggregates for name in call.columns}))

    @override
    def reads(self, port: int = 0) -> set[str]:
        return {*self.keys, *self.arguments, *columns_read(self.pruned_columns(LATE))}

    @override
    def side_outputs(self) -> tuple[str, ...]:
        return (LATE,) if self.late else ()

    @override
    def preserves_record(self, output: str = "") -> bool:
        """Returns True for late rows, which leave as they arrived."""
        return output == LATE

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.EVENT_TIME})

    @override
    def made_from(self) -> Mapping[str, frozenset[str]]:
        return {name: frozenset(call.columns) for name, call in self.aggregates}

    @override
    def emits(self) -> Emits:
        return Emits.CORRECTIONS if self.corrected else Emits.REVISIONS if self._repeated else Emits.INSERTS

    @property
    def _repeated(self) -> bool:
        """True if a result may be emitted again."""
        return bool(self.allowed_lateness_ms or self.window.early_ms)

    @override
    def counts_updates(self) -> bool:
        return not all(one.picks_value for one in self.functions)

    @override
    def window_columns(self) -> frozenset[str]:
        return frozenset({START, END})

    @property
    def plain(self) -> bool:
        """True if a result is one slice and is emitted once."""
        return self.window.single and not self.allowed_lateness_ms

    @property
    def corrected(self) -> bool:
        """True if results of sessions are emitted while they can still change, and are therefore changes with
        deletes.
        """
        return self.window.session and self._repeated

    @property
    def functions(self) -> list[Aggregate]:
        """New instances of the aggregates."""
        return [make_aggregate(name, call, AggregateUse.WINDOW) for name, call in self.aggregates]

    @property
    def keeping(self) -> list[str]:
        """Results whose state grows with the number of values."""
        return [one.name for one in self.functions if one.keeps_values]

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        functions = self.functions
        parts = tuple(state_fields(functions))
        kinds = dict(self.output)
        keys = tuple(StateField(key, kinds[key]) for key in self.keys)
        serializer = Serializer(parameters=self._windows() | encodings_of(functions))
        begins = zeros_of(functions)

        def declare(name: StateName, values: tuple[StateField, ...], last: tuple[StateField, ...]) -> StateDeclaration:
            kept = serializer if values else Serializer()
            all_keys, suffix = (*keys, *last), len(last)
            shape = StateShape(
                all_keys, values, KEY_HASH, max_parallelism=max_parallelism, suffix=suffix, serializer=kept
            )
            return StateDeclaration(name, shape, begins)

        def timed(name: StateName, values: tuple[StateField, ...], *last: StateField) -> StateDeclaration:
            return declare_time_ordered(declare(name, values, last))

        if self.window.session:
            own: Columns = (("start", BIGINT), ("end", BIGINT))
            told: Columns = (("told", _WINDOWS),) if self.corrected else ()
            fresh: Columns = (("fresh", BOOLEAN),) if self.window.early_ms else ()
            held = (StateField("sessions", _list_of((*own, *told, *fresh), parts)),)
            waiting = (StateField("rows", _list_of((("time", BIGINT), ("count", BIGINT)), parts)),)
            whole = (StateField("rows", DataType("array", element=BINARY)),)
            name = EARLY_SESSIONS if self.window.early_ms else KEPT_SESSIONS if self.corrected else SESSIONS
            ahead = (StateField("sessions", _list_of(own, parts)),)
            return (
                declare(name, held, ()),
                timed(TIMERS, ()),
                *((timed(EMITTED, ()),) if self.corrected else ()),
                *((timed(EARLY, ()), timed(AHEAD, ahead)) if self.window.early_ms else ()),
                timed(PENDING_LATE_ROWS, waiting),
                timed(LATE_ROWS, whole),
                WATERMARK,
            )
        if self.plain:
            return timed(SLICES, parts), WATERMARK
        if not self.window.early_ms:
            return timed(SLICES, parts), timed(EXTRA, parts), timed(TIMERS, ()), WATERMARK
        of_window = (StateField("whole", BIGINT, nullable=False),) if self.window.overlapping else ()
        return timed(SLICES, parts, *of_window), timed(GATHERED, parts), timed(TIMERS, (), *of_window), WATERMARK

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:  # all but late rows becomes results
        if output == LATE:
            return pass_late(self.name, lineages)
        columns = {name: digest("window", self.name, name) for name, _ in self.output}
        return (Lineage(self.name, columns, time=digest("event time", self.name, "window_end")),)

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint:
        """Includes the allowed lateness, since a window that is already removed cannot be corrected."""
        window = digest("window", *self._window_parts())
        digests = derive_digests(lineages, self.keys, self.aggregates)
        own = [(one.origin, "the window", window) for one in lineages]
        times = [(one.origin, EVENT_TIME, one.time) for one in lineages]
        if self.allowed_lateness_ms:
            lateness = digest("allowed lateness", str(self.allowed_lateness_ms))
            own += [(one.origin, "the allowed lateness", lateness) for one in lineages]
        return combine_digests([*digests, *own, *times])

    def _windows(self) -> dict[str, str]:
        """Returns the windows that entries belong to. Read as other windows, they would count for other times or lack
        timers.

        The result is part of the headers of state files. Entries of sessions belong to no windows, but rows of early
        ones wait for a due time.
        """
        if self.window.session:
            every = render_duration(self.window.early_ms)
            return {WINDOW: f"session, early each {every}"} if self.window.early_ms else {}
        if self.window.early_ms:
            return {WINDOW: f"{self.window}, early results"}
        late = ", late rows" if self.window.single and self.allowed_lateness_ms else ""
        return {WINDOW: f"{self.window}{late}"}

    def _window_parts(self) -> tuple[str, ...]:
        window = self.window
        numbers = (window.size_ms, window.every_ms, window.offset_ms, window.early_ms)
        return (
            *map(str, numbers),
            window.time_zone,
            "once" if self.plain else "gathered" if window.early_ms else "corrected" if self.corrected else "kept",
        )

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Allocates nothing per row. A result is at most as large as an argument."""
        results = bound_results(self.aggregates, columns)
        fixed = {name: Bound({}, FIXED_BYTES) for name in (START, END, DELETED, *dict(REASONS))}
        late = {name: columns[name] for name, _ in self.pruned_columns(LATE) if name in columns}
        outgoing = late | {key: columns[key] for key in self.keys} | fixed | results
        return outgoing, sum_bounds(outgoing.values())

    @override
    def describes(self) -> list[str]:
        lines = [f"{name} = {call.text}" for name, call in self.aggregates]
        emit = f"every {render_duration(self.window.early_ms)}" if self.window.early_ms else "on close"
        lateness = render_duration(self.allowed_lateness_ms)
        kept = f"; kept {lateness} longer for late records" if self.allowed_lateness_ms else ""
        if self.keeping:
            limit = f"at most {VALUES_MAX:,} or {BYTES_MAX >> 20} MiB of them for each key and window"
            lines.append(f"state grows with the values of {', '.join(self.keeping)}: {limit}")
        return [*lines, f"window {self.window} by {', '.join(self.keys)}; emit {emit}{kept}"]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        from tidegate.operators.kinds.window.running.early import EarlyRuntime
        from tidegate.operators.kinds.window.running.early_sessions import EarlySessionRuntime
        from tidegate.operators.kinds.window.running.sessions import KeptSessionRuntime, SessionRuntime
        from tidegate.operators.kinds.window.running.sliced import SlicedRuntime, TumblingRuntime

        if self.window.session:
            if self.window.early_ms:
                return EarlySessionRuntime(self, slot)
            return KeptSessionRuntime(self, slot) if self.corrected else SessionRuntime(self, slot)
        if self.window.early_ms:
            return EarlyRuntime(self, slot)
        return TumblingRuntime(self, slot) if self.plain else SlicedRuntime(self, slot)


_WINDOWS: Final = DataType("array", element=DataType("struct", fields=(("start", BIGINT), ("end", BIGINT))))


def _list_of(first: Columns, parts: tuple[StateField, ...]) -> DataType:
    """Returns the type of a list of structs: times or counts, followed by accumulators."""
    fields = (*first, *((part.name, part.type) for part in parts))
    return DataType("array", element=DataType("struct", fields=fields))


class WindowKind(StepKind):
    """The kind of a step with `window`."""

    key = "window"
    examples = (
        "key: customer, window: {tumbling: 10s}, aggregate: {n: count(*)}",
        "key: customer, window: {sliding: 20s, every: 10s}, aggregate: {n: sum(id)}, allowed_lateness: 5s, late: late",
        "key: customer, window: {session: 3s}, aggregate: {n: count(*)}, emit: {every: 2s}",
    )
    needs: ClassVar[Mapping[str, str]] = {
        "key": "add it: the column or columns to group by; for one result of all records select a constant, as "
        "`all: 1`, and group by that: one slot does all the work then",
        "aggregate": "add it: what is calculated, for instance {n: count(*)}",
    }
    settings = WindowStepSettings
    other_keys = ("aggregate", "key", "emit", "ttl")

    @override
    def counts(self, step: Any) -> bool:
        return True

    @override
    def refuses_changes(self, step: Any) -> str:
        return NEEDS_RETRACTION

    @override
    def build(self, step: Any, context: StepContext) -> None:
        windowing = self._windowing(step, context)
        corrected = windowing is not None and windowing.session and bool(step.allowed_lateness_ms or windowing.early_ms)
        deleted = {DELETED: BOOLEAN} if corrected else {}
        read = read_aggregates(step, context, dict(ADDED) | deleted, windowed=True)
        if windowing is None or read is None:
            return
        keys, calls = step.key, read
        types = {key: context.columns[key] for key in keys} | dict(ADDED)
        types |= {column: call.type for column, call in calls.items()} | deleted
        if step.ttl is not None:
            context.problem(("ttl",), "a window ends by itself", "remove `ttl`", at_key=True)
            return
        late = derive_late(step, context)
        if late is None:
            return
        context.declare_columns(types)
        inputs, plain = derive_inputs(keys, calls, context.columns, context.columns if late else ())
        context.add(make_projection(OperatorName(f"{context.name}.input"), inputs, context.policy))
        operator = WindowOperator(
            context.name,
            keys,
            tuple(plain.items()),
            windowing,
            step.allowed_lateness_ms or 0,
            tuple(types.items()),
            context.policy,
            tuple(late.items()),
        )
        context.add(operator, keys)

    def _windowing(self, step: Any, context: StepContext) -> Windowing | None:
        emit = step.emit
        early_ms = emit.every_ms if isinstance(emit, EmitEvery) else 0
        if isinstance(emit, str) and emit != ON_CLOSE:
            remedy = "write `on close`, or {every: 10s} for early results"
            context.problem(("emit",), f"`{emit}` is for running totals", remedy)
            return None
        found = derive_windowing(step.window, early_ms)
        if isinstance(found, Windowing):
            return found
        for key, message, remedy in found:
            path: Path = ("emit",) if key == "emit" else ("window", key) if key else ("window",)
            context.problem(path, message, remedy)
        return None


KIND = WindowKind()
