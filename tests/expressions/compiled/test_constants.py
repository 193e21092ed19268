"""A constant gives what a column with the same value in each row gives: Polars has its own way for constants."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterator
from decimal import Decimal

import msgspec
import pytest

from tests.depth import DEPTH
from tests.expressions.compiled.like_spark import Case, frame_of, same
from tests.expressions.compiled.test_like_spark import TABLES
from tidegate.datatypes import DataType
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.expression import (
    Call,
    Cast,
    ColumnReference,
    Expression,
    FieldAccess,
    Lambda,
    Literal,
    columns_of,
)
from tidegate.expressions.parse import parse_expression

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DRAWN = 150
_ROWS = 12


def literal(value: object, kind: DataType) -> Literal | None:
    """A value as it stands in an expression; None for what cannot."""
    match value:
        case None | bool() | int() | str():
            return Literal(value, kind)
        case float():
            return Literal(value, kind) if abs(value) < float("inf") else None
        case bytes():
            return Literal(value.hex(), kind)
        case Decimal():
            return Literal(format(value, "f"), kind)
        case datetime.datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
            return Literal((moment - _EPOCH) // datetime.timedelta(microseconds=1), kind)
        case datetime.date():
            return Literal(value.toordinal() - _EPOCH.toordinal(), kind)
    return None


def put(expression: Expression, name: str, value: Literal) -> Expression:
    """With the value in place of a column."""
    match expression:
        case ColumnReference() if expression.name == name:
            return value
        case FieldAccess(base=base):
            return msgspec.structs.replace(expression, base=put(base, name, value))
        case Cast(operand=operand):
            return msgspec.structs.replace(expression, operand=put(operand, name, value))
        case Call(arguments=arguments):
            changed = tuple(put(argument, name, value) for argument in arguments)
            return msgspec.structs.replace(expression, arguments=changed)
        case Lambda(parameters=parameters, body=body) if name not in dict(parameters):
            return msgspec.structs.replace(expression, body=put(body, name, value))
    return expression


def evaluate(expression: Expression, case: Case) -> list[object]:
    """The value of each row; what fails is told apart from all values."""
    found, failures = compile_projection([("r", expression)]).apply(frame_of(case))
    plain = expression.type.kind not in ("date", "timestamp", "timestamp_ntz")
    values = iter((found["r"] if plain else found["r"].to_physical()).to_list())
    failed = {failure.row for failure in failures}
    return [Ellipsis if row in failed else next(values) for row in range(len(case.rows))]


def drawn(chance: random.Random) -> Iterator[tuple[Case, str, str, Literal]]:
    """Cases, an expression of each, a column of it that has the value of some row in all rows, and the value."""
    cases = [case for cases in TABLES.values() for case in cases if len(case.rows) > 1]
    for _ in range(_DRAWN * DEPTH):
        case = chance.choice(cases)
        text = chance.choice(case.expressions)
        expression = parse_expression(text, case.schema)
        used = sorted(columns_of(expression))
        if not used:
            continue
        name = chance.choice(used)
        place = list(case.schema).index(name)
        value = chance.choice(case.rows)[place]
        constant = literal(value, case.schema[name])
        if constant is None:
            continue
        rows = [(*row[:place], value, *row[place + 1 :]) for row in chance.choices(case.rows, k=_ROWS)]
        yield Case(case.expressions, case.columns, tuple(rows)), text, name, constant


def test_places_in_a_constant_are_found_in_every_row() -> None:
    case = Case(("instr('a-b', s)",), "s string", (("x",), ("-",), (None,), ("b",), ("",)))
    assert evaluate(parse_expression(case.expressions[0], case.schema), case) == [0, 2, None, 3, 1]


def test_parts_of_a_constant_array_keep_their_points() -> None:
    case = Case(("slice(array(1.5, 2), i, i)",), "i int", ((1,), (2,), (None,), (0,)))
    found = evaluate(parse_expression(case.expressions[0], case.schema), case)
    assert found == [[Decimal("1.5")], [Decimal("2.0")], None, ...]


def test_a_constant_index_outside_fails_no_record_without_an_array() -> None:
    case = Case(("a[-1]",), "a array<int>", (([1],), (None,), ([],)))
    assert evaluate(parse_expression(case.expressions[0], case.schema), case) == [..., None, ...]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.0D - x", ["0.0", "0.0", "-1.5"]),
        ("0 - x", ["0.0", "0.0", "-1.5"]),
        ("x + 0.0D", ["0.0", "0.0", "1.5"]),
        ("0 + x", ["0.0", "0.0", "1.5"]),
        ("x - 0.0D", ["0.0", "-0.0", "1.5"]),
        ("0.0D - 0.0D + x * 0", ["0.0", "0.0", "0.0"]),
        ("try_add(x, 0.0D)", ["0.0", "0.0", "1.5"]),
        ("try_subtract(0, x)", ["0.0", "0.0", "-1.5"]),
        ("x * -0.0", ["0.0", "-0.0", "0.0"]),
        ("x * -0.0D", ["-0.0", "0.0", "-0.0"]),
        ("coalesce(cast(null as double), -0.0)", ["0.0", "0.0", "0.0"]),
    ],
)
def test_a_zero_next_to_a_zero_has_the_sign_that_it_has_in_spark(text: str, values: list[str]) -> None:
    case = Case((text,), "x double", ((0.0,), (-0.0,), (1.5,)))
    assert list(map(repr, evaluate(parse_expression(text, case.schema), case))) == values


@pytest.mark.parametrize(
    ("text", "value"),
    [("3Y >= p", None), ("2147483647 <=> p", False), ("0 in (p, 1)", None), ("-128Y between p and 7S", None)],
)
def test_a_constant_is_compared_with_each_of_many_decimals_without_a_value(text: str, value: bool | None) -> None:
    """Else the batch would be evaluated row by row."""
    case = Case((text,), "p decimal(5,5)", ((None,),) * 3)
    assert evaluate(parse_expression(text, case.schema), case) == [value] * 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_a_constant_gives_what_a_column_gives(seed: int) -> None:
    looked = 0
    for case, text, name, constant in drawn(random.Random(seed)):
        expression = parse_expression(text, case.schema)
        with_column, with_constant = evaluate(expression, case), evaluate(put(expression, name, constant), case)
        for row, (one, other) in enumerate(zip(with_column, with_constant, strict=True)):
            assert one is other or same(one, other, 0), f"{text} with {name} = {constant.value!r}, {case.rows[row]}"
        looked += 1
    assert looked > _DRAWN // 2
