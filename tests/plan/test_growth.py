"""How many rows a vertex takes at a time, so that what it makes of them has room (X15)."""

from __future__ import annotations

import json

import pytest

from tidegate.config.load import parse_pipeline
from tidegate.expressions.bounds import BATCH_BYTES_MAX
from tidegate.plan.build import build_plan
from tidegate.plan.growth import BatchLimits, derive_batch_limits

MIB = 1 << 20
HEAD = """\
version: 1
name: growing
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/growing}
sources:
  orders: {topic: orders, schema: {id: bigint, s: string, t: string, x: double}}
"""


def all_limits_of(steps: str, last: str = "s9") -> list[BatchLimits]:
    """Of each vertex."""
    text = f"{HEAD}steps:\n{steps}\nsinks:\n  out: {{from: {last}, topic: out}}\n"
    plan = build_plan(parse_pipeline(text, "p.yaml", {}))
    return [derive_batch_limits(plan, vertex) for vertex in plan.vertices]


def limits_of(*selects: dict[str, str]) -> BatchLimits:
    """Of a chain of selects."""
    names = ["orders", *(f"s{number}" for number in range(len(selects) - 1)), "s9"]
    steps = [
        f"  - {{name: {names[number + 1]}, from: {names[number]}, select: {json.dumps(columns)}}}"
        for number, columns in enumerate(selects)
    ]
    (limits,) = all_limits_of("\n".join(steps))
    return limits


def test_an_ordinary_chain_takes_what_a_source_gathers() -> None:
    limits = limits_of({"id": "id", "s": "upper(s)", "n": "concat(s, '-', t)", "half": "x / 2"})
    assert limits.size_bytes >= 4 * MIB
    assert limits.rows > 100_000


@pytest.mark.parametrize(
    ("selects", "factor"),
    [
        ([{"s": "repeat(s, 10000)"}], 10_000),
        ([{"s": "repeat(repeat(s, 1000), 10)"}], 10_000),
        ([{"s": "repeat(s, 100)"}, {"s": "repeat(s, 100)"}], 10_000),
        (
            [
                {"a": "s", "b": "s", "c": "s"},
                {"d": "concat(a, b, c)", "e": "concat(c, b, a)"},
                {"f": "repeat(concat(d, e), 100)"},
            ],
            600,
        ),
        ([{"s": "replace(s, 'a', 'bcdefghijk')"}], 10),
        ([{"s": "hex(hex(hex(s)))"}], 8),
    ],
)
def test_X15_what_multiplies_is_taken_in_small_parts(selects: list[dict[str, str]], factor: int) -> None:
    size_bytes = limits_of(*selects).size_bytes
    assert BATCH_BYTES_MAX / factor / 5 <= size_bytes <= BATCH_BYTES_MAX / factor


def test_X15_padding_is_counted_by_rows() -> None:
    limits = limits_of({"a": "lpad(s, 10000, 'ä')", "b": "rpad(s, 10000, 'x')"})
    assert limits.rows < BATCH_BYTES_MAX / 80_000 / 2 + 1
    assert limits.rows > 100


def test_X15_growth_beyond_all_bounds_takes_one_row_at_a_time() -> None:
    limits = limits_of(*[{"s": "repeat(s, 10000)"}] * 9)
    assert limits == BatchLimits(limits.rows, 1)


def test_each_vertex_has_limits_of_its_own() -> None:
    steps = """\
  - {name: big, from: orders, select: {id: id, s: 'repeat(s, 1000)'}}
  - {name: s9, from: big, key: id, aggregate: {last: last(s), n: count(*)}}"""
    first, second = all_limits_of(steps)
    assert first.size_bytes < MIB
    assert second.size_bytes > 8 * MIB
