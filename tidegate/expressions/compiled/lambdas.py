"""Functions with a lambda function: its body is evaluated over the elements of a whole batch, which become rows.

Memory is bounded: each pass takes only as many elements as its results leave room for, and a row whose result is too
large is dropped before the rest of it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import polars as pl

from tidegate.expressions.bounds import (
    BATCH_BYTES_MAX,
    ELEMENTS_MAX,
    FIXED_BYTES,
    MAX_VALUE_BYTES,
    MULTIPLIED_MAX,
    derive_body_bound,
    multiplies,
)
from tidegate.expressions.compiled.compiled import Compiled, compiles, failure_text, sequence
from tidegate.expressions.compiled.compiler import column_named, compile_projection
from tidegate.expressions.compiled.rowwise import outcome_series
from tidegate.expressions.expression import Call, Lambda, columns_of, text_of
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind
from tidegate.formats.sizes import size_of

ROW, INDEX, ITEMS, VALUE = "__tidegate_row", "__tidegate_index", "__tidegate_items", "__tidegate_result"
_ELEMENTS_MAX = 100_000
Failure = tuple[FailureKind, str]


class Body:
    """A compiled lambda function. `failures` are those that its evaluation can have."""

    def __init__(self, source: Lambda) -> None:
        self._names = [name for name, _ in source.parameters]
        self._bound = derive_body_bound(source)
        self._projection = compile_projection([(VALUE, source.body)])
        self.outer = sorted(columns_of(source))
        self.failures: tuple[Failure, ...] = self._projection.failures

    def apply(
        self, rows: pl.DataFrame, elements: pl.DataFrame
    ) -> tuple[pl.DataFrame, dict[int, tuple[int, Failure]], set[int]]:
        """Returns row, index and value of the elements, the first failing element of each row, and the rows that are
        too large.

        `elements` contains `ROW`, `INDEX` and the values of the parameters, in the order of rows and elements.
        """
        given = [*elements.columns[2:], INDEX]
        named = (pl.col(column).alias(name) for column, name in zip(given, self._names, strict=False))
        renamed = elements.select(ROW, INDEX, *named)
        outer = rows.select(self.outer)
        found: list[pl.DataFrame] = []
        failed: dict[int, tuple[int, Failure]] = {}
        sizes: dict[int, int] = {}
        large: set[int] = set()
        for every in self._slices(renamed, outer):
            part = every.filter(~pl.col(ROW).is_in(list(large))) if large else every
            whole = pl.concat([part, outer[part[ROW]]], how="horizontal") if self.outer else part
            values, failures = self._projection.apply(whole, keep=(ROW, INDEX))
            found.append(values)
            for failure in failures:
                row, index = part[ROW][failure.row], part[INDEX][failure.row]
                failed.setdefault(row, (index, (failure.kind, failure.message)))
            size = size_of(pl.col(VALUE), values[VALUE].dtype)
            if size is not None:
                for row, more in values.group_by(ROW).agg(size.sum()).iter_rows():
                    sizes[row] = sizes.get(row, 0) + (more or 0)
                    if sizes[row] > MAX_VALUE_BYTES:
                        large.add(row)
        return pl.concat(found), failed, large

    def _slices(self, elements: pl.DataFrame, outer: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yields the elements in slices whose results have room according to the bound of the body."""
        largest = {
            name: int(elements.select(size.max()).item() or 0)
            for name, kind in {**outer.schema, **elements.schema}.items()
            if name in elements.columns and (size := size_of(pl.col(name), kind)) is not None
        }
        largest |= {
            name: int(outer.select(size.max()).item() or 0)
            for name, kind in outer.schema.items()
            if (size := size_of(column_named(name), kind)) is not None
        }
        each = self._bound.constant + sum(
            factor * (FIXED_BYTES + largest.get(name, 0)) for name, factor in self._bound.factors.items()
        )
        count = max(1, min(_ELEMENTS_MAX, int(BATCH_BYTES_MAX / max(1.0, each))))
        for start in range(0, max(1, elements.height), count):
            yield elements.slice(start, count)


def explode(rows: pl.DataFrame, fields: tuple[str, ...]) -> pl.DataFrame:
    """Returns the elements of `ITEMS`, each with its row and its index from 0.

    `fields`: the fields of a map entry, which become columns instead of the entry itself.
    """
    counted = rows.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW),
        pl.int_ranges(0, pl.col(ITEMS).list.len().cast(pl.Int32), dtype=pl.Int32).alias(INDEX),
        pl.col(ITEMS),
    )
    exploded = counted.filter(pl.col(ITEMS).list.len() > 0).explode(INDEX, ITEMS)
    if not fields:
        return exploded
    return exploded.select(
        ROW, INDEX, *(pl.col(ITEMS).struct.field(name).alias(f"__tidegate_{name}_of_map") for name in fields)
    )


_TOO_LARGE, _NULL_KEY, _SAME_KEY = (
    FailureKind.RESULT_TOO_LARGE,
    FailureKind.NULL_MAP_KEY,
    FailureKind.DUPLICATED_MAP_KEY,
)
Failures = dict[int, Failure]
"""Failures by row."""


@dataclass(frozen=True)
class _Plan:
    """A call and its compiled lambda functions."""

    call: Call
    bodies: tuple[Body, ...]
    elements_max: int | None
    """The maximum number of elements of a record. A record with more fails."""

    def own(self, kind: FailureKind) -> Failure:
        """Returns a failure of the call itself."""
        return kind, failure_text(kind, self.call)

    @property
    def too_many(self) -> Failure:
        """The failure of a record with more than `elements_max` elements."""
        what = self.call.arguments[0].type.kind
        return _TOO_LARGE, f"the {what} has more than {self.elements_max:,} elements in `{text_of(self.call)}`"

    @property
    def outcomes(self) -> tuple[Failure, ...]:
        """Every failure that a row can have, each once."""
        inner = (failure for body in self.bodies for failure in body.failures)
        own = [*map(self.own, (_TOO_LARGE, _NULL_KEY, _SAME_KEY))]
        if self.elements_max is not None:
            own.append(self.too_many)
        return tuple(dict.fromkeys([*own, *inner]))


Finish = Callable[[_Plan, pl.DataFrame, Failures], pl.Series]
"""Returns the results of all rows of a frame with `ITEMS`, and adds failing rows to the failures."""


def _evaluated(call: Call, arguments: Sequence[Compiled], finish: Finish) -> Compiled:
    lambdas = [argument for argument in call.arguments if isinstance(argument, Lambda)]
    elements_max = ELEMENTS_MAX if call.function == "aggregate" else MULTIPLIED_MAX if multiplies(call) else None
    plan = _Plan(call, tuple(map(Body, lambdas)), elements_max)
    outer = sorted({name for body in plan.bodies for name in body.outer})
    names = [ITEMS, *(f"__tidegate_argument_{index}" for index in range(1, len(arguments)))]
    values = [argument.value.alias(name) for argument, name in zip(arguments, names, strict=True)]
    rows = pl.struct([*values, *(column_named(name) for name in outer)])
    both = pl.Struct({"value": polars_type(call.type), "failure": pl.UInt8})
    value = rows.map_batches(partial(_run, plan=plan, finish=finish), return_dtype=both, is_elementwise=True)
    return Compiled(value, call, tuple(sequence(arguments)), plan.outcomes)


def _run(rows: pl.Series, *, plan: _Plan, finish: Finish) -> pl.Series:
    frame = rows.struct.unnest()
    failures: Failures = {}
    if plan.elements_max is not None:
        large = frame[ITEMS].list.len() > plan.elements_max
        failures |= dict.fromkeys(large.arg_true().to_list(), plan.too_many)
        frame = frame.with_columns(pl.when(~large).then(pl.col(ITEMS)).alias(ITEMS))
    values = finish(plan, frame, failures)
    numbers = {failure: number for number, failure in enumerate(plan.outcomes)}
    met = [numbers[failures[row]] if row in failures else None for row in range(frame.height)]
    return outcome_series(values, met)


def _results(plan: _Plan, frame: pl.DataFrame, failures: Failures, fields: tuple[str, ...] = ()) -> pl.DataFrame:
    """Returns row, index and value of every element of the rows that do not fail, and the element's other columns."""
    elements = explode(frame, fields)
    found, failed, large = plan.bodies[0].apply(frame, elements)
    for row, (_, failure) in failed.items():
        failures.setdefault(row, failure)
    for row in large:
        failures.setdefault(row, plan.own(_TOO_LARGE))
    good = ~pl.col(ROW).is_in(list(failures))
    return elements.filter(good).with_columns(found.filter(good)[VALUE])


def _gathered(frame: pl.DataFrame, elements: pl.DataFrame, name: str, kind: pl.DataType) -> pl.Series:
    """Returns the lists of a column by row: an empty list if there are no elements, NULL if there was no list."""
    lists = elements.group_by(ROW, maintain_order=True).agg(pl.col(name))
    every = frame.select(pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW), pl.col(ITEMS).is_not_null().alias("there"))
    joined = every.join(lists, on=ROW, how="left", maintain_order="left")
    empty = pl.lit(pl.Series([[]], dtype=kind)).first()
    value = pl.when(pl.col("there")).then(pl.coalesce(pl.col(name).cast(kind), empty))
    return joined.select(value.alias(VALUE)).to_series()


def _transform(plan: _Plan, frame: pl.DataFrame, failures: Failures) -> pl.Series:
    return _gathered(frame, _results(plan, frame, failures), VALUE, polars_type(plan.call.type))


def _filter(plan: _Plan, frame: pl.DataFrame, failures: Failures) -> pl.Series:
    fields = ("key", "value") if plan.call.function == "map_filter" else ()
    elements = _results(plan, frame, failures, fields).filter(pl.col(VALUE))
    if fields:
        elements = elements.with_columns(_entry("__tidegate_key_of_map", "__tidegate_value_of_map"))
    return _gathered(frame, elements, ITEMS, polars_type(plan.call.type))


def _entry(key: str, value: str) -> pl.Expr:
    return pl.struct(pl.col(key).alias("key"), pl.col(value).alias("value")).alias(ITEMS)


def _entries(plan: _Plan, frame: pl.DataFrame, failures: Failures) -> pl.Series:
    """Evaluates transform_keys and transform_values."""
    elements = _results(plan, frame, failures, ("key", "value"))
    if plan.call.function == "transform_values":
        return _gathered(
            frame, elements.with_columns(_entry("__tidegate_key_of_map", VALUE)), ITEMS, polars_type(plan.call.type)
        )
    for kind, wrong in (
        (_NULL_KEY, pl.col(VALUE).is_null()),
        (_SAME_KEY, pl.struct(ROW, VALUE).is_duplicated()),
    ):
        for row in elements.filter(wrong)[ROW].unique().to_list():
            failures.setdefault(row, plan.own(kind))
    elements = elements.filter(~pl.col(ROW).is_in(list(failures)))
    return _gathered(
        frame, elements.with_columns(_entry(VALUE, "__tidegate_value_of_map")), ITEMS, polars_type(plan.call.type)
    )


def _quantified(plan: _Plan, frame: pl.DataFrame, failures: Failures) -> pl.Series:
    """Evaluates exists and forall. Elements after the one that decides are not evaluated, so they cannot fail."""
    decides = plan.call.function == "exists"
    found, failed, _ = plan.bodies[0].apply(frame, explode(frame, ()))
    first = dict(found.filter(pl.col(VALUE) == decides).group_by(ROW).agg(pl.col(INDEX).min()).iter_rows())
    unknown = set(found.filter(pl.col(VALUE).is_null())[ROW].to_list())
    for row, (index, failure) in failed.items():
        if index < first.get(row, index + 1):
            failures.setdefault(row, failure)
    there = frame[ITEMS].is_not_null().to_list()
    values = [
        None if not known else decides if row in first else None if row in unknown else not decides
        for row, known in enumerate(there)
    ]
    return pl.Series(values, dtype=pl.Boolean)


def _fold(plan: _Plan, frame: pl.DataFrame, failures: Failures) -> pl.Series:
    """Evaluates aggregate. The longest arrays become the first rows: those with an element at an index are in front."""
    order = frame[ITEMS].list.len().fill_null(0).arg_sort(descending=True)
    longest_first = frame[order]
    failed: Failures = {}
    totals = _folded(plan.bodies[0], longest_first, failed)
    if len(plan.bodies) > 1:
        ends = totals.select(ROW, pl.lit(0, pl.Int32).alias(INDEX), pl.col(VALUE).alias("__tidegate_total"))
        totals = _stepped(plan.bodies[1], longest_first, ends, failed)
    failures |= {order[row]: failure for row, failure in failed.items()}
    every = pl.DataFrame({ROW: order.arg_sort().cast(pl.Int64)})
    return every.join(totals, on=ROW, how="left", maintain_order="left")[VALUE]


def _folded(merge: Body, frame: pl.DataFrame, failures: Failures) -> pl.DataFrame:
    """Returns row and total of the arrays. All arrays are processed together, one index after the other."""
    elements = explode(frame, ()).sort(INDEX, maintain_order=True)
    there = pl.int_range(pl.len(), dtype=pl.Int64).alias(ROW), pl.col("__tidegate_argument_1").alias(VALUE)
    totals = frame.select(*there).filter(frame[ITEMS].is_not_null())
    done: list[pl.DataFrame] = []
    start = 0
    for count in elements[INDEX].rle().struct.field("len"):
        here = elements.slice(start, count)
        start += count
        if failures:
            here = here.filter(~pl.col(ROW).is_in(list(failures)))
        done += [totals.slice(here.height)] if here.height < totals.height else []
        before = totals[VALUE].head(here.height).alias("__tidegate_total")
        totals = _stepped(merge, frame, pl.DataFrame([here[ROW], here[INDEX], before, here[ITEMS]]), failures)
    return pl.concat([*done, totals])


def _stepped(body: Body, frame: pl.DataFrame, elements: pl.DataFrame, failures: Failures) -> pl.DataFrame:
    """Returns row and value for the elements' rows that do not fail."""
    found, failed, _ = body.apply(frame, elements)
    failures |= {row: failure for row, (_, failure) in failed.items()}
    return found.drop(INDEX)


_FINISH: dict[str, Finish] = {
    "transform": _transform,
    "filter": _filter,
    "map_filter": _filter,
    "transform_keys": _entries,
    "transform_values": _entries,
    "exists": _quantified,
    "forall": _quantified,
    "aggregate": _fold,
}


@compiles(*_FINISH)
def _call(call: Call, arguments: Sequence[Compiled]) -> Compiled:
    return _evaluated(call, arguments, _FINISH[call.function])
