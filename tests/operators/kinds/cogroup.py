"""`cogroup`: pairs of rows of two inputs with the same key. A kind with two ports and state on both, for tests only.

A row meets all rows of its key that the other side has had, so what comes out, as a set, does not depend on which side
is faster. `outer: left` emits rows of the left side with a NULL key unmatched: they never get a partner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import Field

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.types import Column, GroupKeys
from tidegate.datatypes import BIGINT, DataType
from tidegate.expressions.bounds import FIXED_BYTES, Bound, Bounds, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import StateName
from tidegate.operators.fingerprint import Lineage, Lineages, StateFingerprint, combine_digests, combine_times, digest
from tidegate.operators.runtime import OperatorRuntime, Out
from tidegate.operators.spec import ANY_ORDER, Columns, Emits, InputOrder, Requirement, Slot, StepOperator
from tidegate.operators.step import NamedInput, StepContext, StepKind
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH

if TYPE_CHECKING:
    import polars as pl

SIDES: Final = ("left", "right")
STATES: Final = (StateName("left"), StateName("right"))


class Cogroup(Settings):
    """What is paired, and what a pair has."""

    left: Annotated[str, Field(description="The source or step of one side.")]
    right: Annotated[str, Field(description="That of the other side.")]
    take: Annotated[dict[Column, str], Field(description="Columns of a pair: `{paid: right.amount}`.")]
    outer: Annotated[str, Field(description="`left`: rows of that side with a NULL key come out unmatched.")] = ""
    first: Annotated[str, Field(description="The side that catches up before the other one is read.")] = ""
    ahead_ms: Annotated[int | None, Field(description="How far one side may be ahead of the other.")] = None


class CogroupSettings(Settings):
    """The keys of a cogroup."""

    key: GroupKeys = None
    cogroup: Annotated[Cogroup | None, Field(description="Pairs rows of two inputs by `key`.")] = None


class CogroupOperator(StepOperator, frozen=True, tag="cogroup"):
    """Pairs rows of port 0 and port 1."""

    keys: Columns
    key_columns: tuple[tuple[str, ...], ...]
    """By port."""
    sides: tuple[Columns, ...]
    """By port the columns that a pair takes: all of them are kept, whatever is read of the pairs."""
    take: tuple[tuple[str, int, str], ...]
    """By column of a pair its port, and the column there."""
    output: Columns
    bad_records: BadRecordPolicy
    order: tuple[InputOrder, ...] = (ANY_ORDER, ANY_ORDER)
    """By port."""

    def input_order(self, port: int = 0) -> InputOrder:
        return self.order[port]

    def output_columns(self, output: str = "") -> Columns:
        return self.output

    def reads(self, port: int = 0) -> set[str]:
        return {*self.key_columns[port], *dict(self.sides[port])}

    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.EVENT_TIME})

    def emits(self) -> Emits:
        return Emits.INSERTS

    def counts_updates(self) -> bool:
        return True

    def preserves_record(self, output: str = "") -> bool:
        return False

    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        keys = tuple(StateField(name, kind) for name, kind in self.keys)
        return tuple(
            StateDeclaration(
                name,
                StateShape(
                    keys,
                    (StateField("rows", DataType("array", element=_row_of(columns)), nullable=False),),
                    KEY_HASH,
                    max_parallelism=max_parallelism,
                ),
            )
            for name, columns in zip(STATES, self.sides, strict=True)
        )

    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        columns = {name: digest("cogroup", self.name, name) for name, _ in self.output}
        return (Lineage(self.name, columns, time=combine_times(self.name, lineages)),)

    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint:
        return combine_digests(
            (branch.origin, f"`{name}`", digest("cogroup", branch.columns[name], *sorted(branch.conditions)))
            for branch in lineages
            for name in (*self.key_columns[port], *dict(self.sides[port]))
        )

    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """How many pairs a row makes is not known: they are emitted in slices."""
        made = {name: Bound({}, FIXED_BYTES) for name, _ in self.output}
        made |= {name: columns[column] for name, of, column in self.take if of == port}
        return made, sum_bounds(made.values())

    def describes(self) -> list[str]:
        return [f"pairs by {', '.join(name for name, _ in self.keys)}", "keyed state on both sides"]

    def open(self, slot: Slot) -> OperatorRuntime:
        return CogroupRuntime(self, slot)


def _row_of(columns: Columns) -> DataType:
    """A kept row: its event time, and its columns."""
    return DataType("struct", fields=(("time_ms", BIGINT), *columns))


class CogroupRuntime(OperatorRuntime):
    """Looks up the other side once per batch, then keeps the rows on its own."""

    def __init__(self, operator: CogroupOperator, slot: Slot) -> None:
        from tidegate.state.keygroups import key_groups_of_keys

        self._operator = operator
        self._rows_max = min(slot.rows_max, 1000)
        kinds = [kind for _, kind in operator.keys]
        self._sides = [
            slot.open_state(
                operator.name, declaration, lambda rows: key_groups_of_keys(rows, kinds, slot.max_parallelism)
            )
            for declaration in operator.states(slot.max_parallelism)
        ]
        self.states = {side.declaration.name: side for side in self._sides}

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        from tidegate.formats.columns import plain_values

        operator = self._operator
        columns = [plain_values(batch[name]) for name in operator.key_columns[port]]
        keys: list[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        rows = list(
            zip(
                batch["__tidegate_time"].to_list(),
                *(plain_values(batch[name]) for name, _ in operator.sides[port]),
                strict=True,
            )
        )
        nulls = [any(column[place] is None for column in columns) for place in range(batch.height)]
        known = dict.fromkeys(key for key, null in zip(keys, nulls, strict=True) if not null)
        own, other = (
            {
                key: () if value is None else value[0]
                for key, value in zip(known, self._sides[of].get_many(known), strict=True)
            }
            for of in (port, 1 - port)
        )
        pairs: list[tuple[Any, Any, Any]] = []
        for key, row, null in zip(keys, rows, nulls, strict=True):
            if null:
                pairs.append((key, row, None))
                continue
            own[key] = (*own[key], row)
            pairs += [(key, row, partner) for partner in other[key]]
        self._sides[port].put_many(known, [(own[key],) for key in known])
        for start in range(0, len(pairs), self._rows_max):
            out.emit(self._frame(port, pairs[start : start + self._rows_max]))

    def _frame(self, port: int, pairs: list[tuple[Any, Any, Any]]) -> pl.DataFrame:
        """Pairs of a row of a port with one of the other port, or with none."""
        import polars as pl

        from tidegate.formats.columns import make_column

        operator, made = self._operator, dict[str, list[Any]]()
        for place, (name, _) in enumerate(operator.keys):
            made[name] = [key if len(operator.keys) == 1 else key[place] for key, _, _ in pairs]
        for name, of, column in operator.take:
            place = list(dict(operator.sides[of])).index(column) + 1
            rows = [row if of == port else partner for _, row, partner in pairs]
            made[name] = [None if row is None else row[place] for row in rows]
        times = [max(row[0], row[0] if partner is None else partner[0]) for _, row, partner in pairs]
        return pl.DataFrame(
            [
                *(make_column(name, kind, made[name]) for name, kind in operator.output),
                pl.Series("__tidegate_time", times, dtype=pl.Int64),
                pl.Series("__tidegate_behind", [0] * len(pairs), dtype=pl.Int64),
            ]
        )


class CogroupKind(StepKind):
    """Its inputs are named by `left` and `right`."""

    key = "cogroup"
    examples = (
        "key: id, cogroup: {left: rows, right: more, take: {one: left.amount, other: right.amount, at: right.at}}",
        "key: [id, customer], cogroup: {left: rows, right: rows, outer: left, take: {one: left.amount}}",
    )
    needs: ClassVar[Mapping[str, str]] = {"key": "add it: the column or columns that both sides have"}
    settings = CogroupSettings

    def inputs(self, step: CogroupSettings) -> tuple[NamedInput, ...]:
        one = step.cogroup
        return () if one is None else tuple(NamedInput(side, getattr(one, side), ("cogroup", side)) for side in SIDES)

    def refuses_changes(self, step: Any) -> str:
        return "keeps rows that nothing takes back"

    def build(self, step: CogroupSettings, context: StepContext) -> None:
        assert step.cogroup is not None
        names = step.key or ()
        keys: dict[Path, dict[str, str]] = {
            ("key", index): dict.fromkeys(SIDES, name) for index, name in enumerate(names)
        }
        matched = context.match_keys(keys, {step.cogroup.outer} & {"left"})
        take: list[tuple[str, int, str]] = []
        kinds: dict[str, DataType] = {}
        for name, text in step.cogroup.take.items():
            alias, _, column = text.partition(".")
            kind = context.of(alias).column(("cogroup", "take", name), column)
            if kind is not None:
                take.append((name, SIDES.index(alias), column))
                kinds[name] = kind
        if matched is None or len(take) < len(step.cogroup.take):
            return
        typed = tuple(zip(names, matched.types, strict=True))
        output = (*typed, *kinds.items())
        sides = tuple(
            tuple({column: context.of(side).columns[column] for _, port, column in take if SIDES[port] == side}.items())
            for side in SIDES
        )
        context.declare_columns(dict(output))
        key_columns = tuple(matched.columns[side] for side in SIDES)
        order = tuple(InputOrder(side == step.cogroup.first, step.cogroup.ahead_ms) for side in SIDES)
        operator = CogroupOperator(
            context.name,
            typed,
            key_columns,
            sides,
            tuple(take),
            output,
            context.policy,
            order,
        )
        context.add(operator, matched.columns)


KIND = CogroupKind()
