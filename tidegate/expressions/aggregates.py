"""Aggregate functions: names and typing rules, with Spark's result types (docs/expressions/aggregates.md).

`tidegate.operators.aggregates` computes them. State holds values of their arguments, so these are not arrays, maps or
structs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import msgspec

from tidegate.datatypes import BIGINT, BOOLEAN, DOUBLE, NESTED, DataType
from tidegate.expressions.decimal_types import derive_average_type, derive_sum_type
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import AggregateCall, Expression, Literal
from tidegate.expressions.functions.core import Argument, Site, check_count
from tidegate.expressions.typing_rules import INTEGRAL, NUMERIC, derive_output_type, with_type

Resolve = Callable[[Site, tuple[Argument, ...]], AggregateCall]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function. `resolve` types a call, and may raise ExpressionRefusal."""

    name: str
    resolve: Resolve
    aliases: tuple[str, ...] = ()
    running: bool = False
    """Whether it is available as a running total. Other functions need a window."""
    package: str = ""
    """The package that it requires. `EXTRAS` has the extra that installs it."""

    @property
    def written(self) -> str:
        """How messages name it."""
        return "count(distinct x)" if self.name == "count distinct" else self.name


EXTRAS = {"datasketches": "sketches"}
_PICKING = frozenset({"first", "last"})
_COLLECTING = frozenset({"collect_list", "collect_set"})


def resolve_aggregate(name: str, start: int, arguments: tuple[Argument, ...], *, windowed: bool) -> AggregateCall:
    """Types a call of `AGGREGATES[name]`. Without arguments it is `count(*)`.

    Raises ExpressionRefusal if arguments do not fit, or the function is not available without a window or on this
    machine.
    """
    function = AGGREGATES[name]
    called = name.removesuffix(" distinct")
    if not (windowed or function.running):
        raise ExpressionRefusal(
            start,
            f"`{function.written}` is available only in windows",
            f"add `window`, or use one of {derive_aggregate_names(windowed=False)}",
        )
    if function.package and find_spec(function.package) is None:
        extra = EXTRAS[function.package]
        raise ExpressionRefusal(
            start,
            f"`{called}` needs the package {function.package}, which is not installed",
            f"pip install 'tidegate[{extra}]', here and where the slots run",
        )
    return function.resolve(Site(called, start), arguments)


def resolve_nulls(call: AggregateCall, name: str, start: int, *, ignore: bool) -> AggregateCall:
    """Adds `IGNORE NULLS` (`ignore`) or `RESPECT NULLS`, written at `start`, to a call. `name` is the name in the file.

    Raises ExpressionRefusal, as Spark does, if the function always skips NULLs or never does.
    """
    if call.function in _COLLECTING:
        if ignore:
            return call
        remedy = f"leave it out, or collect another value: `{name}(coalesce(x, 'none'))`"
        raise ExpressionRefusal(start, f"`{name}` does not take RESPECT NULLS: its result never contains NULLs", remedy)
    if not ignore:
        return call
    if call.function in _PICKING:
        return msgspec.structs.replace(call, ignore_nulls=True)
    remedy = "leave it out: NULLs do not count" if call.argument is not None else "leave it out, or write `count(x)`"
    if call.function in ("min_by", "max_by"):
        remedy = f"write `{name}(x, y) filter (where x is not null)`"
    raise ExpressionRefusal(start, f"`{name}` does not take IGNORE NULLS", remedy)


def derive_aggregate_names(*, windowed: bool) -> str:
    """Returns the names of the available functions for messages."""
    functions = [one for one in dict.fromkeys(AGGREGATES.values()) if windowed or one.running]
    return ", ".join(one.written for one in functions)


def _plain(site: Site, argument: Argument) -> Expression:
    """Checks that state can store the value."""
    derive_output_type(argument.start, argument.expression)
    if argument.type.kind in NESTED:
        raise ExpressionRefusal(
            argument.start,
            f"`{site.function}` of {argument.type} is not supported: state holds plain values only",
            f"aggregate the fields that you need: {site.function}(x.field)",
        )
    return argument.expression


def one_argument(rule: Callable[[Site, Argument], tuple[Expression, DataType]], name: str) -> Resolve:
    """Returns a function that types a call with one argument. `rule` returns the aggregated value and the type."""

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> AggregateCall:
        check_count(site, arguments, 1, 1)
        argument, result = rule(site, arguments[0])
        return AggregateCall(name, argument, result)

    return resolve


def _count(site: Site, arguments: tuple[Argument, ...]) -> AggregateCall:
    if not arguments:
        return AggregateCall("count", None, BIGINT)
    check_count(site, arguments, 1, 1)
    return AggregateCall("count", arguments[0].expression, BIGINT)


def _as_bigint(site: Site, argument: Argument) -> tuple[Expression, DataType]:
    return _plain(site, argument), BIGINT


def _as_it_is(site: Site, argument: Argument) -> tuple[Expression, DataType]:
    return _plain(site, argument), argument.type


def _as_array(site: Site, argument: Argument) -> tuple[Expression, DataType]:
    return _plain(site, argument), DataType("array", element=argument.type)


def _ordered(site: Site, argument: Argument) -> tuple[Expression, DataType]:
    if argument.type.kind in NESTED:
        raise site.refuse(argument, "values that have an order")
    return _as_it_is(site, argument)


def _sum(site: Site, argument: Argument) -> tuple[Expression, DataType]:
    if argument.type.kind == "decimal":
        return _plain(site, argument), derive_sum_type(argument.type)
    return _number(site, argument, BIGINT if argument.type.kind in INTEGRAL else DOUBLE)


def _average(site: Site, argument: Argument) -> tuple[Expression, DataType]:
    if argument.type.kind == "decimal":
        return _plain(site, argument), derive_average_type(argument.type)
    return _number(site, argument, DOUBLE)


def as_double(site: Site, argument: Argument) -> tuple[Expression, DataType]:
    """Converts a number to a double, and returns a double."""
    return _number(site, argument, DOUBLE)


def _number(site: Site, argument: Argument, target: DataType) -> tuple[Expression, DataType]:
    derive_output_type(argument.start, argument.expression)
    if argument.type.kind not in (*NUMERIC, "decimal", "string"):
        raise site.refuse(argument, "a number")
    return with_type(argument.start, argument.expression, target), target


def _boolean(site: Site, argument: Argument) -> tuple[Expression, DataType]:
    derive_output_type(argument.start, argument.expression)
    return site.boolean(argument), BOOLEAN


def _by(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> AggregateCall:
        check_count(site, arguments, 2, 2)
        value, order = arguments
        by, _ = _ordered(site, order)
        return AggregateCall(name, _plain(site, value), value.type, (by,))

    return resolve


def _pick(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> AggregateCall:
        check_count(site, arguments, 1, 2)
        value, *flags = arguments
        call = AggregateCall(name, _plain(site, value), value.type)
        for flag in flags:
            if not (flag.is_literal and flag.type == BOOLEAN):
                problem = f"`{site.function}` takes true or false as second argument: whether NULLs are ignored"
                raise ExpressionRefusal(flag.start, problem, f"write `{site.function}(x, true)`")
            assert isinstance(flag.expression, Literal)
            call = msgspec.structs.replace(call, ignore_nulls=bool(flag.expression.value))
        return call

    return resolve


def _percentile(site: Site, arguments: tuple[Argument, ...]) -> AggregateCall:
    check_count(site, arguments, 2, 2)
    value, share = arguments
    if value.type.kind not in NUMERIC:
        raise site.refuse(value, "a whole number, a float or a double")
    found = share.expression
    if not isinstance(found, Literal) or found.value is None or found.type.kind not in (*NUMERIC, "decimal"):
        raise ExpressionRefusal(
            share.start, f"`{site.function}` needs a literal from 0 to 1 here", "write the number itself, such as 0.95"
        )
    fraction = with_type(share.start, found, DOUBLE)
    assert isinstance(fraction, Literal)
    if not 0 <= float(fraction.value or 0) <= 1:
        raise ExpressionRefusal(
            share.start, f"{found.value} is not between 0 and 1", "write 0.95 for the 95th percentile"
        )
    return AggregateCall("percentile_approx", value.expression, value.type, (fraction,))


_FUNCTIONS = (
    AggregateFunction("count", _count, running=True),
    AggregateFunction("sum", one_argument(_sum, "sum"), running=True),
    AggregateFunction("avg", one_argument(_average, "avg"), ("mean",), running=True),
    AggregateFunction("min", one_argument(_ordered, "min"), running=True),
    AggregateFunction("max", one_argument(_ordered, "max"), running=True),
    AggregateFunction("first", _pick("first"), ("first_value", "any_value"), running=True),
    AggregateFunction("last", _pick("last"), ("last_value",), running=True),
    AggregateFunction("bool_and", one_argument(_boolean, "bool_and"), ("every",), running=True),
    AggregateFunction("bool_or", one_argument(_boolean, "bool_or"), ("some", "any"), running=True),
    AggregateFunction("count distinct", one_argument(_as_bigint, "count_distinct")),
    AggregateFunction("collect_list", one_argument(_as_array, "collect_list"), ("array_agg",)),
    AggregateFunction("collect_set", one_argument(_as_array, "collect_set")),
    AggregateFunction("min_by", _by("min_by")),
    AggregateFunction("max_by", _by("max_by")),
    AggregateFunction("stddev_samp", one_argument(as_double, "stddev_samp"), ("stddev", "std"), running=True),
    AggregateFunction("stddev_pop", one_argument(as_double, "stddev_pop"), running=True),
    AggregateFunction("var_samp", one_argument(as_double, "var_samp"), ("variance",), running=True),
    AggregateFunction("var_pop", one_argument(as_double, "var_pop"), running=True),
    AggregateFunction(
        "approx_count_distinct", one_argument(_as_bigint, "approx_count_distinct"), package="datasketches"
    ),
    AggregateFunction("percentile_approx", _percentile, ("approx_percentile",)),
)

AGGREGATES: dict[str, AggregateFunction] = {}
"""Functions by every name in lower case. `count distinct` is the name of `count(distinct x)` in the syntax tree."""


def declare_aggregate(function: AggregateFunction) -> None:
    """Adds a function under all its names. Raises TypeError if one of them is taken."""
    for name in (function.name, *function.aliases):
        if name in AGGREGATES:
            raise TypeError(f"there is already an aggregate `{name}`: give it another name")
    AGGREGATES.update(dict.fromkeys((function.name, *function.aliases), function))


for _function in _FUNCTIONS:
    declare_aggregate(_function)
