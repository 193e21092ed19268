"""`keep`: the last record of each key, or the best ones with their ranks.

Rows are ordered by one column, then by all columns, so that the order of arrival does not matter. Numbers, dates and
texts compare by their values. NaN is greater than every number. NULL comes last in either direction. Arrays, structs
and maps compare by their first part that differs. `runtime.py` has the runtimes. ADR 37 explains what is emitted and
why.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import GroupKeys, ValueCheck, check_below, choice, integer, refusal, require_text
from tidegate.datatypes import BIGINT, NESTED, DataType
from tidegate.expressions.bounds import Bound, Bounds
from tidegate.ids import StateName
from tidegate.operators.event_time import WATERMARK
from tidegate.operators.keyed import KeyedOperator, LateKeyedOperator, LateSettings, derive_late
from tidegate.operators.spec import LATE, Columns, Emits, Requirement, Rest, Slot
from tidegate.operators.step import NEEDS_RETRACTION, StepContext, StepKind
from tidegate.state.declaration import SETTLED, Serializer, StateDeclaration, StateField
from tidegate.state.order import Row
from tidegate.state.time_ordered import declare_time_ordered

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime

Place = tuple[Any, ...]
"""A sort key that compares as the values do."""


class Ranking:
    """The best rows of one key, at most `places`. Sort keys are computed late, since most keys of a batch do not
    change.
    """

    def __init__(self, order: RankingOrder, rows: tuple[Row, ...], places: int) -> None:
        """`rows`: in their order."""
        self._order = order
        self._places = places
        self._stored = rows
        self._held: list[Row] | None = None
        """The rows, after the first insertion."""
        self._firsts: list[Place] = []
        """Their sort keys by the column."""
        self._last = order.first(rows[-1]) if len(rows) >= places else None
        """The sort key of the last row by the column if all places are taken."""

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows in order, rank 1 first."""
        return self._stored if self._held is None else tuple(self._held)

    def admits(self, first: Place) -> bool:
        """Returns True if a row with this sort key may get a rank."""
        return self._last is None or first <= self._last

    def enter(self, row: Row, first: Place) -> int | None:
        """Inserts a row with this sort key. Returns how many rows are before it, or None if it gets no rank.

        The last row may lose its rank. All columns are compared only if the one column does not decide.
        """
        if self._held is None:
            self._held = list(self._stored)
            self._firsts = list(map(self._order.first, self._held))
        held, firsts = self._held, self._firsts
        index = bisect_right(firsts, first)
        if index and firsts[index - 1] == first:
            index = bisect_right(held, self._order.rest(row), bisect_left(firsts, first), index, key=self._order.rest)
        if index >= self._places:
            return None
        held.insert(index, row)
        firsts.insert(index, first)
        del held[self._places :], firsts[self._places :]
        if len(held) == self._places:
            self._last = firsts[-1]
        return index


class RankingOrder:
    """The order of the rows of a step."""

    def __init__(self, column: int, *, descending: bool) -> None:
        """`column`: the index of the column that rows are ordered by."""
        self._column = column
        self._by = _place_backwards if descending else place_value

    def first(self, row: Row) -> Place:
        """Returns the sort key of a row by the column alone."""
        return self._by(row[self._column])

    def rest(self, row: Row) -> Place:
        """Returns the sort key by all columns, which decides between rows with equal values in the column."""
        return tuple(map(place_value, row))


def place_value(value: Any) -> Place:
    """Returns the sort key of a value in ascending order."""
    if value is None:
        return (2,)
    if isinstance(value, tuple):
        return (0, tuple(map(place_value, value)))
    return (1,) if value != value else (0, value)  # only NaN differs from itself


def _place_backwards(value: Any) -> Place:
    """Returns the sort key of a value in descending order."""
    if value is None:
        return (2,)
    if isinstance(value, str | bytes):
        return (1, _Backwards(value))
    if isinstance(value, Decimal):
        return (1, value.copy_negate())  # unary minus would round it to the digits of the context
    return (0,) if value != value else (1, -value)  # see place_value


class _Backwards:
    """A text in descending order."""

    __slots__ = ("_text",)

    def __init__(self, text: Any) -> None:
        self._text = text

    def __lt__(self, other: _Backwards) -> bool:
        return bool(other._text < self._text)

    def __le__(self, other: _Backwards) -> bool:
        return bool(other._text <= self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backwards) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


EACH: Final = "each"
ON_CLOSE: Final = "on close"
PLACES_MAX: Final = 1000
_REMEDY: Final = "write last, or {by: column, n: 3}"
_ORDER: Final = choice("desc", "asc")
_EMIT: Final = choice(EACH, ON_CLOSE)
_PLACES: Final = integer(1, PLACES_MAX)


class Keep(msgspec.Struct, frozen=True):
    """The records of a key to keep. `places` 0: the last one."""

    by: str = ""
    places: int = 0
    descending: bool = True
    emit: str = ""
    """EACH or ON_CLOSE; empty if the file does not set it."""


def _keep(value: object) -> Keep:
    if not isinstance(value, Mapping):
        text = require_text(value, "last or {by: column, n: 3}", _REMEDY)
        if text != "last":
            raise refusal(f"`{text[:60]}` is not one of the choices", _REMEDY)
        return Keep()
    known = ("by", "n", "order", "emit")
    for key in value:
        if key not in known:
            raise refusal("unknown key", derive_suggestion(str(key), known), at=str(key))
    for key in ("by", "n"):
        if key not in value:
            raise refusal(f"`{key}` is missing", f"add it, for instance {_REMEDY.partition(', or ')[2]}")
    return Keep(
        check_below("by", lambda name: require_text(name, "a column name"), value["by"]),
        check_below("n", _PLACES.check, value["n"]),
        check_below("order", _ORDER.check, value.get("order", "desc")) == "desc",
        check_below("emit", _EMIT.check, value["emit"]) if "emit" in value else "",
    )


_SCHEMA: Final[Mapping[str, Any]] = {
    "anyOf": [
        {"type": "string", "enum": ["last"]},
        {
            "type": "object",
            "properties": {
                "by": {"type": "string"},
                "n": dict(_PLACES.schema),
                "order": dict(_ORDER.schema),
                "emit": dict(_EMIT.schema),
            },
            "required": ["by", "n"],
            "additionalProperties": False,
        },
    ]
}


class KeepSettings(LateSettings):
    """The keys of a step that keeps the last or the best records of each key."""

    key: GroupKeys = None
    keep: Annotated[
        Keep | None,
        ValueCheck(_keep, _SCHEMA),
        Field(
            description="`last`: passes a record unless one of its key with a later event time has already "
            "passed. `{by: column, order: desc, n: 3}`: the n best records of each key, at most 1000, with their "
            "`rank`. With `emit: each`, every change emits the ranks that it changes; the newest record of a key "
            "and rank is the valid one. With `emit: on close`, the records of a key that share one event time, "
            "as the results of a window do, are ranked once, when the watermark passes it. That is the default "
            "if `key` has `window_start` or `window_end`."
        ),
    ] = None


RANK: Final = "rank"
TIMES: Final = StateName("times")
RANKINGS: Final = StateName("rankings")
_WINDOW: Final = frozenset({"window_start", "window_end"})


class LastOperator(KeyedOperator, frozen=True, tag="last"):
    """Passes a row unless a row of its key with a later event time has already passed."""

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.EVENT_TIME})

    @override
    def emits(self) -> Emits:
        return Emits.LATEST

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """Declares the event time of the last row of each key."""
        shape = self.shape((StateField("time_ms", BIGINT, nullable=False),), max_parallelism)
        return (StateDeclaration(TIMES, shape),)

    @override
    def describes(self) -> list[str]:
        keys = ", ".join(self.keys)
        return [f"the last record per {keys} by event time, whenever it changes", f"keyed state by {keys}"]


class RankingOperator(LateKeyedOperator, frozen=True, tag="ranking"):
    """The best rows per key, with their ranks. The state holds all columns, so that equal rows can be distinguished."""

    REST: ClassVar[Rest] = Rest.FOLDED

    by: str
    places: int
    descending: bool
    emit: str  # EACH | ON_CLOSE

    @override
    def added_columns(self) -> Columns:
        return ((RANK, BIGINT),)

    @override
    def preserves_record(self, output: str = "") -> bool:
        """Returns True for late rows, which leave as they arrived."""
        return output == LATE

    @override
    def emits(self) -> Emits:
        return Emits.UPDATES if self.emit == EACH else Emits.PASSED

    @override
    def counts_updates(self) -> bool:
        return True

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        """Declares the rows of each key, best first. If they are ranked once, the state is by event time and key."""
        row = DataType("struct", fields=self.columns)
        shape = self.shape((StateField("rows", DataType("array", element=row), nullable=False),), max_parallelism)
        ranked = f"first {self.places} by {self.by} {'desc' if self.descending else 'asc'}"
        shape = msgspec.structs.replace(shape, serializer=Serializer(parameters={SETTLED: ranked}))
        declaration = StateDeclaration(RANKINGS, shape, settles=self._ranked)
        return (declaration,) if self.emit == EACH else (declare_time_ordered(declaration), WATERMARK)

    def _ranked(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns the ranked rows of a key in order. Added or removed columns may have changed the order, and rows of a
        savepoint that was written by other tools may be in any order.
        """
        order = self.order()
        (rows,) = value
        return (tuple(sorted(rows, key=lambda row: (order.first(row), order.rest(row)))[: self.places]),)

    def order(self) -> RankingOrder:
        """Returns the order of its rows."""
        return RankingOrder([name for name, _ in self.columns].index(self.by), descending=self.descending)

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts all places of a ranking, since one row may move all others."""
        outgoing, made = super().output_size(columns, port)
        return outgoing, made.times(self.places if self.emit == EACH else 1)

    @override
    def describes(self) -> list[str]:
        keys, order = ", ".join(self.keys), "desc" if self.descending else "asc"
        best = f"the first {self.places} per {keys} by {self.by} {order}, with `{RANK}`"
        return [best, f"keyed state by {keys}; emit {self.emit}"]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        if self.emit == EACH:
            from tidegate.operators.kinds.keep.runtime import UpdatingRuntime

            return UpdatingRuntime(self, slot)
        from tidegate.operators.kinds.keep.runtime import ClosingRuntime

        return ClosingRuntime(self, slot)

    @override
    def held_columns(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @override
    def deciding_columns(self) -> tuple[str, ...]:
        return (self.by,)

    @override
    def parameters(self) -> dict[str, Any]:
        return {"places": self.places, "descending": self.descending, "emit": self.emit}


class KeepKind(StepKind):
    """The kind of a step with `keep`."""

    key = "keep"
    examples = (
        "key: customer, keep: last",
        "key: customer, keep: {by: amount, n: 2}",
        "key: customer, keep: {by: amount, n: 2, emit: on close}",
    )
    needs: ClassVar[Mapping[str, str]] = {"key": "add it: the column or columns that records are kept by"}
    settings = KeepSettings

    @override
    def counts(self, step: KeepSettings) -> bool:
        """Returns False for `keep: last`, which passes the newest of repeated results."""
        return step.keep is not None and bool(step.keep.places)

    @override
    def refuses_changes(self, step: Any) -> str:
        return NEEDS_RETRACTION

    @override
    def build(self, step: KeepSettings, context: StepContext) -> None:
        keys, keep = step.key or (), step.keep
        assert keep is not None
        usable = not [key for index, key in enumerate(keys) if not context.key(("key", index), key)]
        columns = tuple(context.columns.items())
        emit = (keep.emit or (ON_CLOSE if _WINDOW & {*keys} else EACH)) if keep.places else ""
        if step.late is not None and emit != ON_CLOSE:
            what = "`emit: each`" if emit else "`keep: last`"
            remedy = "remove it" + (", or write `emit: on close`" if emit else "")
            context.problem(("late",), f"{what} accepts every record, so none is late", remedy, at_key=True)
            return
        late = derive_late(step, context)
        if not keep.places:
            context.declare_columns(context.columns)
            if usable:
                context.add(LastOperator(context.name, keys, columns, context.policy), keys)
            return
        usable = self._rankable(keep.by, context) and usable
        foreign = [key for key in keys if key in _WINDOW and not context.is_window_bound(key)]
        if emit == ON_CLOSE and not keep.emit and foreign:
            context.warn(
                ("keep",),
                (
                    f"`{foreign[0]}` is not that of a window, and `on close`, the default with it, ranks records of "
                    f"one event time"
                ),
                "write `emit: each`; or `emit: on close`, if all rows of a key have one event time",
                at_key=True,
            )
        context.declare_columns({**context.columns, RANK: BIGINT})
        if usable and late is not None:
            ranked = (keep.by, keep.places, keep.descending, emit)
            context.add(
                RankingOperator(context.name, keys, columns, context.policy, *ranked, late=tuple(late.items())), keys
            )

    def _rankable(self, by: str, context: StepContext) -> bool:
        kind = context.column(("keep", "by"), by)
        nested = kind is not None and kind.kind in NESTED
        if nested:
            remedy = "select one of its fields with a `select` before this step"
            context.problem(("keep", "by"), f"`{by}` is {kind}, which has no order", remedy)
        if RANK in context.columns:
            context.problem(
                ("keep",), f"there is already a column `{RANK}`", "rename it with a `select` before this step"
            )
        return kind is not None and not nested and RANK not in context.columns


KIND = KeepKind()
