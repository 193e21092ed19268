"""Whoever follows the remedy of a refused expression gets what the expression asks for."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.expressions.compiled.like_spark import Case
from tests.expressions.remedies import CHANGING, ELSEWHERE, IN_WORDS, REFUSED, TOTALS, Refused
from tests.operators.aggregates.reducing import reduce_text
from tidegate.config.errors import Problem
from tidegate.config.load import parse_pipeline
from tidegate.datatypes import STRING, TIMESTAMP, DataType
from tidegate.expressions import parse
from tidegate.expressions.aggregates import AGGREGATES
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.functions import REGISTRY
from tidegate.expressions.parse import ExpressionError, find_remarks, parse_aggregate, parse_expression, parse_qualified
from tidegate.expressions.secrets import put_stand_ins
from tidegate.formats.columns import polars_type
from tidegate.plan.build import check_pipeline

ROOM = Path(parse.__file__).parent
CODE = re.compile("`([^`]+)`")
WORDS = {
    "key",
    "aggregate",
    "window",
    "async",
    "tidegate docs expressions",
    "keep",
    "tidegate docs python",
    "tidegate init --example change_of_value",
    "name: ${file:...}",
    "secrets",
}
"""Settings of steps, and a command."""
STEPS = {
    "explode: {column: item}",
    "explode: {column: item, outer: true}",
    "explode: {column: item, position: n}",
    "metadata: {partition: p, offset: o, topic: t}",
    'select: {"*": all}',
}
"""Settings of steps and sources; the pipelines below have them."""
EACH = [pytest.param(one, id=one.text[:60]) for one in REFUSED]


def schema_of(refused: Refused) -> dict[str, DataType]:
    return Case((), refused.columns, ()).schema


def frame_of(refused: Refused) -> pl.DataFrame:
    columns = zip(schema_of(refused).items(), refused.row, strict=True)
    return pl.DataFrame([pl.Series(name, [value], dtype=polars_type(kind)) for (name, kind), value in columns])


def remedy_of(refused: Refused) -> str:
    with pytest.raises(ExpressionError) as caught:
        if refused.aggregate:
            parse_aggregate(refused.text, schema_of(refused), windowed=refused.windowed)
        else:
            parse_expression(refused.text, schema_of(refused))
    return caught.value.remedy


def evaluate(refused: Refused, text: str) -> Any:
    frame, schema = frame_of(refused), schema_of(refused)
    if refused.aggregate or refused.then_aggregate:
        frame = frame.with_columns(k=pl.lit("k"), at=pl.lit(0).cast(polars_type(TIMESTAMP)))
        [(_, found)] = reduce_text(frame, {**schema, "k": STRING, "at": TIMESTAMP}, [text])
        return found
    expression = put_stand_ins(parse_expression(text, schema))
    found, failures = compile_projection([("r", expression)]).apply(frame)
    assert not failures
    return found["r"].item() if not found["r"].dtype.is_nested() else found["r"].to_list()[0]


@pytest.mark.parametrize("refused", EACH)
def test_the_remedy_gives_what_was_asked_for(refused: Refused) -> None:
    remedy = remedy_of(refused)
    for code in CODE.findall(remedy):
        known = code in {*REGISTRY, *AGGREGATES, *WORDS, *STEPS} or len(code) <= 2
        assert known or any(code in text for text in refused.followed), f"nothing follows `{code}`"
    for text, wanted in refused.followed.items():
        found = evaluate(refused, text)
        assert (type(found), found) == (type(wanted), wanted), text


_HEAD = """name: remedy
version: 1
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: /tmp/remedy}
"""
CALLED = {
    "parse.ELSEWHERE": (parse.ELSEWHERE, ELSEWHERE),
    "parse.CHANGING": (parse.CHANGING, CHANGING),
    "parse.TOTALS_ELSEWHERE": (parse.TOTALS_ELSEWHERE, TOTALS),
}


@pytest.mark.parametrize("table", CALLED)
def test_every_remedy_of_a_table_is_run(table: str) -> None:
    remedies, rows = CALLED[table]
    called = {re.match(r"[a-z_0-9]*", one.text)[0] for one in rows}  # type: ignore[index]  # it matches nothing as well
    told = {remedy for name, remedy in remedies.items() if name in called}
    assert {name for name, remedy in remedies.items() if remedy not in told} == set()


@pytest.mark.parametrize("text", sorted(STEPS))
def test_a_setting_in_a_remedy_is_one(text: str) -> None:
    setting = f"    {text}\n" if text.startswith("metadata") else ""
    step = "select: {x: id}" if setting else text
    pipeline = f"""{_HEAD}sources:
  rows:
    topic: rows
    schema: {{id: int, column: array<int>}}
{setting}steps:
  - {{name: made, from: rows, {step.replace("column: item", "column: column")}}}
sinks:
  out: {{from: made, topic: out}}
"""
    assert not check_pipeline(parse_pipeline(pipeline, "remedy.yaml", {})).problems


@pytest.mark.parametrize(
    "place",
    [
        "steps: [{name: made, from: rows, where: HERE}]\nsinks: {out: {from: made, topic: out}}",
        "steps: [{name: made, from: rows, route: {big: HERE}}]\nsinks: {out: {from: made.big, topic: out}}",
        "sinks: {out: {from: rows, topic: {expression: HERE, allow: [a]}}}",
        "sinks: {out: {from: rows, topic: out, headers: {add: {kind: HERE}}}}",
    ],
)
def test_what_is_advised_where_another_type_is_needed_is_accepted_there(place: str) -> None:
    def problems_with(text: str) -> tuple[Problem, ...]:
        sources = "sources: {rows: {topic: rows, schema: {id: int, x: double}}}\n"
        return check_pipeline(parse_pipeline(f"{_HEAD}{sources}{place.replace('HERE', text)}\n", "p.yaml", {})).problems

    [problem] = problems_with("id + x")
    [code] = CODE.findall(problem.remedy)
    assert code != "id + x"
    assert problems_with(f'"{code}"') == ()


class Sites:
    """Where refusals are made: the calls of `ExpressionRefusal` in the source of the room, and those that were made."""

    def __init__(self) -> None:
        self._calls = {path: [*_calls(path)] for path in sorted(ROOM.rglob("*.py"))}
        self.reached: set[str] = set()

    @property
    def all(self) -> dict[str, str]:
        """Place -> the source of the remedy."""
        return {_place(path, call): ast.unparse(call.args[2]) for path, calls in self._calls.items() for call in calls}

    def record(self, path: Path, line: int) -> None:
        """A refusal is made in this line."""
        found = [one for one in self._calls.get(path, ()) if one.lineno <= line <= (one.end_lineno or one.lineno)]
        self.reached |= {_place(path, one) for one in found[-1:]}


def _place(path: Path, call: ast.Call) -> str:
    return f"{path.relative_to(ROOM)}:{call.lineno}"


def _calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ExpressionRefusal":
            yield node


def test_every_remedy_is_run_or_says_in_words_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left says in words what to change, and is listed here: so a new message is noticed."""
    sites, make = Sites(), ExpressionRefusal.__init__

    def recording(refusal: ExpressionRefusal, *arguments: Any) -> None:
        frame = sys._getframe(1)
        sites.record(Path(frame.f_code.co_filename), frame.f_lineno)
        make(refusal, *arguments)

    monkeypatch.setattr(ExpressionRefusal, "__init__", recording)
    for refused in REFUSED:
        remedy_of(refused)
    for text in ("order.idd", "order", "idd"):  # `test_parse.py` has what these say
        with pytest.raises(ExpressionError):
            parse_qualified(text, {"order": {"id": STRING}}, {})
    assert find_remarks("regexp_replace(s, '(.)', '\\1')")
    left = {place: remedy for place, remedy in sites.all.items() if place not in sites.reached}
    assert {place: remedy for place, remedy in left.items() if remedy not in IN_WORDS} == {}
    assert set(IN_WORDS) - set(left.values()) == set()
