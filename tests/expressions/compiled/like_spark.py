"""Evaluate an expression by Tidegate and by Spark SQL over the same rows, and compare value by value."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice

import polars as pl
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.depth import DEPTH
from tidegate.datatypes import DataType, decimal_of, map_of
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.expression import can_fail
from tidegate.expressions.parse import parse_expression
from tidegate.expressions.syntax import derive_syntax
from tidegate.expressions.syntax_tree import Apply, Arrow, CastTo, Member, Syntax
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import RecordFailure

Row = tuple[object, ...]
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ASKED = 3 * DEPTH if DEPTH > 1 else 0
"""For so many of the rows that fail here Spark is asked, and for one of each kind: each is a query of its own.
"""


@dataclass(frozen=True)
class Case:
    """Expressions over the same columns and rows. `ulps`: by how many last digits a double may differ."""

    expressions: tuple[str, ...]
    columns: str  # `a bigint, b string`
    rows: tuple[Row, ...]
    ulps: int = 0

    @property
    def schema(self) -> dict[str, DataType]:
        """The columns as Tidegate has them."""
        return {name: _type(kind) for name, kind in (part.split(" ", 1) for part in self.columns.split(", "))}


def _type(text: str) -> DataType:
    if text.startswith("array<"):
        return DataType("array", element=_type(text[6:-1]))
    if text.startswith("struct<"):
        fields = (part.split(":") for part in text[7:-1].split(","))
        return DataType("struct", fields=tuple((name, _type(kind)) for name, kind in fields))
    if text.startswith("map<"):
        key, value = re.split(r",(?![0-9])", text[4:-1], maxsplit=1)
        return map_of(_type(key), _type(value))
    if text.startswith("decimal("):
        return decimal_of(*(int(number) for number in text[8:-1].split(",")))
    return DataType(text)


def spark_type(kind: DataType) -> str:
    """The name of a type as Spark's `simpleString` writes it."""
    if kind.key is not None and kind.element is not None:
        return f"map<{spark_type(kind.key)},{spark_type(kind.element)}>"
    if kind.element is not None:
        return f"array<{spark_type(kind.element)}>"
    if kind.kind == "decimal":
        return str(kind)
    if kind.kind == "struct":
        return "struct<" + ",".join(f"{name}:{spark_type(field)}" for name, field in kind.fields) + ">"
    return kind.kind


def functions_in(text: str) -> set[str]:
    """The names under which an expression calls functions and operators."""

    def walk(tree: Syntax) -> Iterator[str]:
        match tree:
            case Apply(function=function, arguments=arguments):
                yield function
                for argument in arguments:
                    yield from walk(argument)
            case Member(base=base) | Arrow(body=base):
                yield from walk(base)
            case CastTo(operand=operand):
                yield "cast"
                yield from walk(operand)

    return set(walk(derive_syntax(text)))


def frame_of(case: Case) -> pl.DataFrame:
    """The rows of a case as operators see them."""
    return pl.DataFrame(
        {
            name: pl.Series([row[index] for row in case.rows], dtype=polars_type(kind))
            for index, (name, kind) in enumerate(case.schema.items())
        }
    )


def evaluate_here(case: Case, text: str) -> tuple[DataType, list[object], list[RecordFailure]]:
    """Type, values of the rows that can be evaluated, failures."""
    expression = parse_expression(text, case.schema)
    found, failures = compile_projection([("r", expression)]).apply(frame_of(case))
    assert found["r"].dtype == polars_type(expression.type), f"{found['r'].dtype} is not {expression.type}"
    assert not failures or can_fail(expression), "can_fail says that this cannot fail"
    column = found["r"]
    if expression.type.kind in ("timestamp", "timestamp_ntz", "date"):
        column = column.to_physical()
    return expression.type, column.to_list(), failures


def evaluate_spark(spark: SparkSession, case: Case, wanted: dict[str, set[int]]) -> tuple[list[str], list[Row]]:
    """Types and values by Spark in one query: each expression over the rows wanted of it, NULL in the others.

    Raises what Spark raises.
    """
    schema = case.schema
    values = ", ".join(
        f"({index}, {', '.join(sql(value, kind) for value, kind in zip(row, schema.values(), strict=True))})"
        for index, row in enumerate(case.rows)
    )
    names = ", ".join(f"`{name}`" for name in ("__tidegate_row", *schema))
    chosen = ", ".join(
        f"case when __tidegate_row in ({', '.join(map(str, rows))}) then ({text}) end as r{index}"
        for index, (text, rows) in enumerate((text, sorted(rows) or [-1]) for text, rows in wanted.items())
    )
    inner = spark.sql(f"select __tidegate_row, {chosen} from values {values} as t({names})")
    types = [field.dataType.simpleString() for field in inner.schema.fields[1:]]
    physical = {
        "timestamp_ntz": "unix_micros(cast(r{} as timestamp))",
        "timestamp": "unix_micros(r{})",
        "date": "unix_date(r{})",
    }
    frame = inner.selectExpr(*(physical.get(kind, "r{}").format(index) for index, kind in enumerate(types)))
    return types, [tuple(map(plain, row)) for row in frame.collect()]


def sql(value: object, kind: DataType) -> str:
    """A value as a Spark literal of a type."""
    if value is None:
        return f"cast(null as {spark_type(kind)})"
    if kind.key is not None and kind.element is not None and isinstance(value, list):
        entries = (f"{sql(one['key'], kind.key)}, {sql(one['value'], kind.element)}" for one in value)
        return f"cast(map({', '.join(entries)}) as {spark_type(kind)})"
    if kind.element is not None and isinstance(value, list):
        return f"cast(array({', '.join(sql(one, kind.element) for one in value)}) as {spark_type(kind)})"
    if kind.kind == "struct" and isinstance(value, dict):
        return "named_struct(" + ", ".join(f"'{name}', {sql(value[name], field)}" for name, field in kind.fields) + ")"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        return f"timestamp_ntz'{value.isoformat(' ')}'"
    if isinstance(value, datetime.datetime):
        return f"timestamp_micros({(value - _EPOCH) // datetime.timedelta(microseconds=1)})"
    if isinstance(value, datetime.date):
        return f"date_from_unix_date({value.toordinal() - 719163})"
    if isinstance(value, float):
        return f"cast('{value!r}' as {kind.kind})"
    if isinstance(value, Decimal):
        return f"cast('{value}' as {kind})"
    if isinstance(value, str):
        return "'" + "".join(c if c.isalnum() and c.isascii() else _escaped(c) for c in value) + "'"
    return f"cast('{value}' as {kind.kind})"


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{int.from_bytes(units[i : i + 2], 'big'):04x}" for i in range(0, len(units), 2))


def plain(value: object) -> object:
    """A value from Spark as Polars gives it."""
    if isinstance(value, bytearray):
        return bytes(value)
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    if isinstance(value, dict):
        return [{"key": plain(key), "value": plain(one)} for key, one in value.items()]
    return [plain(one) for one in value] if isinstance(value, list) else value


def same(ours: object, theirs: object, ulps: int) -> bool:
    """Equality with NaN equal to NaN, -0.0 different from 0.0 and floats equal up to `ulps` last digits."""
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        near = abs(ours - theirs) <= ulps * math.ulp(theirs) if ulps and math.isfinite(theirs) else ours == theirs
        return near and math.copysign(1, ours) == math.copysign(1, theirs)
    if isinstance(ours, list) and isinstance(theirs, list):
        ours, theirs = _entries_in_order(ours), _entries_in_order(theirs)
        return len(ours) == len(theirs) and all(same(a, b, ulps) for a, b in zip(ours, theirs, strict=True))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(same(ours[name], theirs[name], ulps) for name in ours)
    return type(ours) is type(theirs) and ours == theirs


def _entries_in_order(values: list[object]) -> list[object]:
    """The entries of a map by their keys: PySpark gives them in the order of a hash map."""
    if values and all(isinstance(one, dict) and list(one) == ["key", "value"] for one in values):
        return sorted(values, key=repr)
    return values


def differences(spark: SparkSession, case: Case) -> list[str]:
    """Everything in which Tidegate and Spark differ; empty is what the tests expect."""
    here = {text: evaluate_here(case, text) for text in case.expressions}
    failed = {text: {failure.row: failure for failure in failures} for text, (_, _, failures) in here.items()}
    every = set(range(len(case.rows)))
    found: list[str] = []
    types, rows = _spark_rows(spark, case, {text: every - set(failed[text]) for text in here})
    for position, (text, (kind, values, _)) in enumerate(here.items()):
        if types[position] != spark_type(kind):
            found.append(f"{text}: type {kind}, Spark says {types[position]}")
        good = sorted(every - set(failed[text]))
        for index, ours in zip(good, values, strict=True):
            theirs = rows[index][position]
            if isinstance(theirs, PySparkException):
                found.append(f"{text}: {case.rows[index]}: we say {ours!r}, Spark fails: {str(theirs)[:90]}")
            elif not same(ours, theirs, case.ulps):
                found.append(f"{text}: {case.rows[index]}: we say {ours!r}, Spark says {theirs!r}")
    return found + [
        f"{text}: {case.rows[failure.row]}: we fail with {failure}, Spark does not"
        for text, failures in failed.items()
        for failure in choose_failures(failures.values())
        if not fails_in_spark(spark, case, text, failure.row)
    ]


def choose_failures(failures: Collection[RecordFailure]) -> list[RecordFailure]:
    """The first one of each kind, and others up to ASKED."""
    firsts = {failure.kind: failure for failure in reversed(list(failures))}
    others = (failure for failure in failures if failure not in firsts.values())
    return [*firsts.values(), *islice(others, max(0, ASKED - len(firsts)))]


def fails_in_spark(spark: SparkSession, case: Case, text: str, index: int) -> bool:
    """Whether Spark refuses this row."""
    try:
        evaluate_spark(spark, Case((text,), case.columns, (case.rows[index],)), {text: {0}})
    except PySparkException:
        return True
    return False


def _spark_rows(spark: SparkSession, case: Case, wanted: dict[str, set[int]]) -> tuple[list[str], list[Row]]:
    """As `evaluate_spark`, with the exception in place of the value where a value fails against expectation.

    A query that fails is asked again in halves, so that only the expression that fails is asked row by row.
    """
    try:
        return evaluate_spark(spark, case, wanted)
    except PySparkException:
        if len(wanted) == 1:
            [(text, rows)] = wanted.items()
            kind, values = _one_by_one(spark, case, text, rows)
            return [kind], [(value,) for value in values]
        middle, asked = len(wanted) // 2, list(wanted.items())
        halves = [_spark_rows(spark, case, dict(half)) for half in (asked[:middle], asked[middle:])]
        types = [kind for kinds, _ in halves for kind in kinds]
        return types, [(*one, *other) for one, other in zip(*(values for _, values in halves), strict=True)]


def _one_by_one(spark: SparkSession, case: Case, text: str, wanted: set[int]) -> tuple[str, list[object]]:
    kind, values = "unknown", list[object]()
    for index, row in enumerate(case.rows):
        try:
            [kind], [(value,)] = evaluate_spark(
                spark, Case((text,), case.columns, (row,)), {text: {0} if index in wanted else set()}
            )
        except PySparkException as error:
            value = error
        values.append(value)
    return kind, values
