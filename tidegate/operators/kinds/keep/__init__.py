"""`keep`: of each key the last record, or the best ones with their ranks.

`settings.py` has the words of the file, `base.py` what both kinds have in common, `ranking.py` the order of records,
`running/` what runs. ADR 37 says what is emitted and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from tidegate.datatypes import BIGINT, NESTED, DataType
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.ids import StateName
from tidegate.operators.event_time import WATERMARK
from tidegate.operators.kinds.keep.base import KeepOperator
from tidegate.operators.kinds.keep.ranking import Order
from tidegate.operators.kinds.keep.settings import EACH, ON_CLOSE, KeepSettings
from tidegate.operators.late import REASONS, derive_late, pass_late
from tidegate.operators.meaning import Branches
from tidegate.operators.spec import LATE, Columns, Emits, Rest, Slot, texts_of
from tidegate.operators.step import NEEDS_RETRACTION, StepContext, StepKind
from tidegate.state.declaration import SETTLED, Serializer, StateDeclaration, StateField
from tidegate.state.time_ordered import declare_time_ordered

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime

RANK: Final = "rank"
TIMES: Final = StateName("times")
RANKINGS: Final = StateName("rankings")
_WINDOW: Final = frozenset({"window_start", "window_end"})


class LastOperator(KeepOperator, frozen=True, tag="last"):
    """Passes a row unless one of its key with a later event time has passed."""

    REST: ClassVar[Rest] = Rest.FILTERED

    def preserves_record(self, output: str = "") -> bool:  # noqa: ARG002  # there is one
        """See Operator."""
        return True

    def emits(self) -> Emits:
        """See Operator."""
        return Emits.LATEST

    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """See Operator. The event time of the last row of each key."""
        shape = self.shape((StateField("time_ms", BIGINT, nullable=False),), max_parallelism)
        return (StateDeclaration(TIMES, shape),)

    def explains(self) -> dict[str, Any]:
        """See Operator."""
        return {"key": list(self.keys), "keep": "last", "output": texts_of(self.columns)}

    def describes(self) -> list[str]:
        """See Operator."""
        keys = ", ".join(self.keys)
        return [f"the last record per {keys} by event time, whenever it changes", f"keyed state by {keys}"]

    def open(self, slot: Slot) -> OperatorRuntime:
        """See StepOperator."""
        from tidegate.operators.kinds.keep.running.last import LastRuntime

        return LastRuntime(self, slot)


class RankingOperator(KeepOperator, frozen=True, tag="ranking"):
    """The best rows per key, with their ranks."""

    by: str
    places: int
    descending: bool
    emit: str  # EACH | ON_CLOSE
    late: Columns = ()
    """What late rows have besides the columns of the engine; none where nobody reads them."""

    def output_columns(self, output: str = "") -> Columns:
        """See Operator."""
        return self.late if output == LATE else (*self.columns, (RANK, BIGINT))

    def side_outputs(self) -> tuple[str, ...]:
        """See Operator."""
        return (LATE,) if self.late else ()

    def preserves_record(self, output: str = "") -> bool:
        """See Operator. Late rows are as they came."""
        return output == LATE

    def passes_at(self, output: str, branches: Branches) -> Branches:
        """See Operator."""
        return pass_late(self.name, branches) if output == LATE else self.passes(branches)

    def emits(self) -> Emits:
        """See Operator."""
        return Emits.UPDATES if self.emit == EACH else Emits.PASSED

    def counts_updates(self) -> bool:
        """See Operator."""
        return True

    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """See Operator. The rows of each key, best first; of each event time and key when they are ranked once."""
        row = DataType("struct", fields=self.columns)
        shape = self.shape((StateField("rows", DataType("array", element=row), nullable=False),), max_parallelism)
        ranked = f"first {self.places} by {self.by} {'desc' if self.descending else 'asc'}"
        shape = msgspec.structs.replace(shape, serializer=Serializer(parameters={SETTLED: ranked}))
        declaration = StateDeclaration(RANKINGS, shape, settles=self._ranked)
        return (declaration,) if self.emit == EACH else (declare_time_ordered(declaration), WATERMARK)

    def _ranked(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """The rows of a key that have ranks, in their order: columns that were added or given up may have changed it,
        and rows of a savepoint that somebody makes are in any.
        """
        order = self.order()
        (rows,) = value
        return (tuple(sorted(rows, key=lambda row: (order.first(row), order.rest(row)))[: self.places]),)

    def order(self) -> Order:
        """The order of its rows."""
        return Order([name for name, _ in self.columns].index(self.by), descending=self.descending)

    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:  # noqa: ARG002  # there is one
        """See Operator. A row may move all others of its ranking."""
        fixed = (RANK, *(name for name, _ in (REASONS if self.pruned_columns(LATE) else ())))
        outgoing = {name: columns[name] for name, _ in self.columns} | {name: Bound({}, FIXED_BYTES) for name in fixed}
        return outgoing, sum_bounds(outgoing.values()).times(self.places if self.emit == EACH else 1)

    def explains(self) -> dict[str, Any]:
        """See Operator."""
        return {
            "key": list(self.keys),
            "by": self.by,
            "order": "desc" if self.descending else "asc",
            "n": self.places,
            "emit": self.emit,
            "output": texts_of(self.output_columns()),
        }

    def describes(self) -> list[str]:
        """See Operator."""
        found, keys = self.explains(), ", ".join(self.keys)
        best = f"the first {self.places} per {keys} by {self.by} {found['order']}, with `{RANK}`"
        return [best, f"keyed state by {keys}; emit {self.emit}"]

    def open(self, slot: Slot) -> OperatorRuntime:
        """See StepOperator."""
        if self.emit == EACH:
            from tidegate.operators.kinds.keep.running.updating import UpdatingRuntime

            return UpdatingRuntime(self, slot)
        from tidegate.operators.kinds.keep.running.closing import ClosingRuntime

        return ClosingRuntime(self, slot)

    def holds(self) -> tuple[str, ...]:
        """See KeepOperator."""
        return tuple(name for name, _ in self.columns)

    def ordered_by(self) -> tuple[str, ...]:
        """See KeepOperator."""
        return (self.by,)

    def words(self) -> tuple[str, ...]:
        """See KeepOperator."""
        return self.kind, str(self.places), str(self.descending), self.emit


class KeepKind(StepKind):
    """See StepKind."""

    word = "keep"
    examples = (
        "key: customer, keep: last",
        "key: customer, keep: {by: amount, n: 2}",
        "key: customer, keep: {by: amount, n: 2, emit: on close}",
    )
    needs: ClassVar[Mapping[str, str]] = {"key": "add it: the column or columns that records are kept by"}
    settings = KeepSettings

    def counts(self, step: KeepSettings) -> bool:
        """See StepKind. Of results that are given again `keep: last` passes the newest."""
        return step.keep is not None and bool(step.keep.places)

    def refuses_changes(self, step: Any) -> str:  # noqa: ARG002  # all of them
        """See StepKind."""
        return NEEDS_RETRACTION

    def build(self, step: KeepSettings, context: StepContext) -> None:
        """See StepKind."""
        keys, keep = step.key or (), step.keep
        assert keep is not None
        usable = not [key for index, key in enumerate(keys) if not context.key(("key", index), key)]
        columns = tuple(context.columns.items())
        emit = (keep.emit or (ON_CLOSE if _WINDOW & {*keys} else EACH)) if keep.places else ""
        if step.late is not None and emit != ON_CLOSE:
            what = "`emit: each`" if emit else "`keep: last`"
            remedy = "remove it" + (", or write `emit: on close`" if emit else "")
            context.problem(("late",), f"{what} takes every record: none is late", remedy, at_key=True)
            return
        late = derive_late(step, context)
        if not keep.places:
            context.gives(context.columns)
            if usable:
                context.add(LastOperator(context.name, keys, columns, context.policy), keys)
            return
        usable = self._rankable(keep.by, context) and usable
        foreign = [key for key in keys if key in _WINDOW and not context.is_window_bound(key)]
        if emit == ON_CLOSE and not keep.emit and foreign:
            context.warn(
                ("keep",),
                f"no window has made this `{foreign[0]}`, by which rows of one event time are ranked, `on close`",
                "write `emit: each`; or `emit: on close`, if all rows of a key have one event time",
                at_key=True,
            )
        context.gives({**context.columns, RANK: BIGINT})
        if usable and late is not None:
            ranked = (keep.by, keep.places, keep.descending, emit, tuple(late.items()))
            context.add(RankingOperator(context.name, keys, columns, context.policy, *ranked), keys)

    def _rankable(self, by: str, context: StepContext) -> bool:
        kind = context.column(("keep", "by"), by)
        nested = kind is not None and kind.kind in NESTED
        if nested:
            remedy = "take a field of it by a `select` before this step"
            context.problem(("keep", "by"), f"`{by}` is {kind}: it has no order", remedy)
        if RANK in context.columns:
            context.problem(
                ("keep",), f"there is a column `{RANK}` already", "rename it by a `select` before this step"
            )
        return kind is not None and not nested and RANK not in context.columns


KIND = KeepKind()
