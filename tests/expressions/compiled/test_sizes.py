"""Results that would be too large fail their record before they are made (X15)."""

from __future__ import annotations

import json
import subprocess
import sys

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.waiting import PATIENCE_S
from tidegate.datatypes import BINARY, INT, STRING, DataType
from tidegate.expressions.bounds import Bound, derive_bound
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.expression import can_fail
from tidegate.expressions.parse import parse_expression

COLUMNS = {"s": STRING, "t": STRING, "b": BINARY, "n": INT, "l": DataType("array", element=STRING)}
MIB = 1 << 20


def evaluate(text: str, **values: list[object]) -> tuple[list[object], list[str]]:
    """Values of the good rows, and the reasons of the others."""
    height = max(map(len, values.values()))
    kinds = {"b": pl.Binary(), "n": pl.Int32(), "l": pl.List(pl.String)}
    frame = pl.DataFrame(
        [pl.Series(name, values.get(name, [None] * height), dtype=kinds.get(name, pl.String())) for name in COLUMNS]
    )
    expression = parse_expression(text, COLUMNS)
    assert can_fail(expression)
    found, failures = compile_projection([("r", expression)]).apply(frame)
    return found["r"].to_list(), [str(failure) for failure in failures]


def size_in_mib(value: object) -> float:
    return len(value if isinstance(value, bytes) else str(value).encode()) / MIB


FITTING: list[tuple[str, int, int]] = [
    ("repeat(s, 16)", MIB, MIB + 1),
    ("repeat(repeat(s, 4), 4)", MIB, MIB + 1),
    ("concat(s, s, 'ab')", 8 * MIB - 1, 8 * MIB),
    ("s || s", 8 * MIB, 8 * MIB + 1),
    ("concat_ws(', ', s, s)", 8 * MIB - 1, 8 * MIB),
    ("replace(s, 'xx', 'yyy')", 11_184_810, 11_184_812),
    ("regexp_replace(s, 'x', 'yz')", 5 * MIB, 9 * MIB),
    ("hex(s)", 8 * MIB, 8 * MIB + 1),
    ("base64(s)", 12 * MIB, 12 * MIB + 1),
    ("array_join(split(concat(s, 'a,b,c'), ','), '')", 16 * MIB - 5, 16 * MIB),
    ("url_encode(concat(s, '/'))", 16 * MIB - 3, 16 * MIB - 2),
    ("format_string('%s%s', s, s)", 8 * MIB, 8 * MIB + 1),
    ("format_string('%s', concat(s, '\u00e9'))", 16 * MIB - 2, 16 * MIB - 1),
    ("encode(s, 'utf-16le')", 8 * MIB, 8 * MIB + 1),
    ("decode(cast(concat(s, s) as binary), 'iso-8859-1')", 8 * MIB, 8 * MIB + 1),
    ("to_json(array(s))", 16 * MIB - 20, 16 * MIB - 3),
]
"""An expression, how long an `s` of x can be, and how long it cannot."""


@pytest.mark.slow
@pytest.mark.parametrize(("text", "fits", "too_long"), FITTING)
def test_X15_a_result_has_at_most_16_mib(text: str, fits: int, too_long: int) -> None:
    values, reasons = evaluate(text, s=["x" * fits, "x" * too_long, "", None])
    assert len(reasons) == 1, reasons
    assert reasons[0].startswith("RESULT_TOO_LARGE: the result has more than 16 MiB in `")
    assert 0 < size_in_mib(values[0]) <= 16
    assert len(values) == 3


def test_X15_a_text_in_which_little_is_replaced_does_not_fail_for_what_could_be() -> None:
    text = "x" + "y" * (4 * MIB)
    values, reasons = evaluate("replace(s, 'x', 'zzzzzzzzzz')", s=[text])
    assert (len(str(values[0])), reasons) == (len(text) + 9, [])
    values, reasons = evaluate("regexp_replace(s, 'x', 'zzzzzzzzzz')", s=[text])
    assert (len(str(values[0])), reasons) == (len(text) + 9, [])


def test_X15_a_branch_that_is_not_taken_neither_fails_nor_is_made() -> None:
    text = "case when length(s) < 10 then repeat(s, 10000) else 'long' end"
    values, reasons = evaluate(text, s=["x", "x" * 50_000])
    assert (len(str(values[0])), values[1], reasons) == (10_000, "long", [])


def test_X15_arrays_maps_and_structs_are_bounded_with_all_they_hold() -> None:
    _, reasons = evaluate("array(s, s, s)", s=["x" * (6 * MIB)])
    assert len(reasons) == 1
    _, reasons = evaluate("named_struct('a', array(s, s), 'b', s)", s=["x" * (6 * MIB)])
    assert len(reasons) == 1
    _, reasons = evaluate("map('a', s, t, s)", s=["x" * (9 * MIB), "x"], t=["b", "a"])
    assert [reason.split(":")[0] for reason in reasons] == ["RESULT_TOO_LARGE", "DUPLICATED_MAP_KEY"]
    values, reasons = evaluate("array(s, t, null)", s=["x", None], t=["y", None])
    assert (values, reasons) == ([["x", "y", None], [None, None, None]], [])


def test_concat_with_null_stays_null() -> None:
    values, reasons = evaluate("concat(s, t, 'x')", s=["a", None, None], t=["b", "c", None])
    assert (values, reasons) == (["abx", None, None], [])
    values, reasons = evaluate("concat_ws('-', s, t, 'x')", s=["a", None, None], t=["b", "c", None])
    assert (values, reasons) == (["a-b-x", "c-x", "x"], [])


WASTEFUL = [
    ("repeat(repeat(s, 10000), 3)", 50_000),
    ("concat(s, s, s)", 7 * MIB),
    ("concat_ws(s, s, s)".replace("(s,", "('-',") + " || s || s", 7 * MIB),
    (f"replace(s, 'x', '{'y' * 5_000}')", 50_000),
    (f"regexp_replace(s, '[xz]', '{'y' * 5_000}')", 50_000),
    ("repeat(hex(s), 9000)", 7 * MIB),
    ("array(s, s, s)", 7 * MIB),
]


@pytest.mark.slow
def test_X15_what_fails_is_not_made() -> None:
    code = """
import ctypes, json, sys
from pathlib import Path
PR_SET_THP_DISABLE = 41
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0  # with huge pages each arena takes whole ones
from tests.expressions.compiled.test_sizes import evaluate
def peak():  # of this program: ru_maxrss begins at what the process had that started it
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024
for text, size in json.loads(sys.argv[1]):
    _, reasons = evaluate(text, s=["x" * size] * 8)
    print(len(reasons), peak())
"""
    command = [sys.executable, "-c", code, json.dumps(WASTEFUL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    lines = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert [failed for failed, _ in lines] == [8] * len(WASTEFUL)
    assert max(peak for _, peak in lines) < 450, (
        lines
    )  # the arguments alone are 56 MiB, and once more as they are handed over


PIECES = ["s", "t", "'ab'", "cast(n as string)", "l[0]", "cast(b as string)"]


@st.composite
def texts(draw: st.DrawFn, depth: int = 3) -> str:
    """Expressions of text that may be larger than what they are made of."""
    if depth == 0:
        return draw(st.sampled_from(PIECES))
    inner = [draw(texts(depth - 1)) for _ in range(2)]
    shapes = ["concat({0}, {1})", "concat_ws('--', {0}, {1}, {0})", "repeat({0}, 7)", "hex({0})", "upper({0})"]
    shapes += [
        "replace({0}, 'x', 'yyy')",
        "regexp_replace({0}, '(x)|y', '$1zz$1')",
        "lpad({0}, 40, 'ä')",
        "base64({0})",
    ]
    shapes += ["array_join(split({0}, 'x'), '<->')", "case when n > 1 then {0} else {1} end", "substring({0}, 1, 5)"]
    shapes += ["map('k', {0}, 'l', {1})['k']", "array_join(map_values(map('k', {0}, 'l', {1})), '-')"]
    shapes += ["url_encode({0})", "url_decode(url_encode({0}))", "format_string('%5s|%s|%1$s', {0}, {1})"]
    shapes += ["to_json(named_struct('k', {0}, 'n', n, 'a', split({1}, 'x')))", "regexp_substr({0}, '[xy]+')"]
    shapes += [
        "array_join(transform(split({0}, 'x'), z -> concat(z, '--', {1}, z)), '-')",
        "decode(encode({0}, 'utf-16'), 'utf-16')",
    ]
    shapes += ["get_json_object(to_json(array({0}, {1})), '$')", "array_join(regexp_extract_all({0}, '.', 0), 'ab')"]
    shapes += [
        "array_join(array_append(array_repeat({0}, 3), {1}), '')",
        "array_join(filter(split({0}, 'x'), z -> z <> {1}), '')",
    ]
    shapes += [
        "to_json(from_json(to_json(map('k', {0}, 'l', {1})), 'map<string,string>'))",
        "coalesce({0}, {1})",
        "reverse({0})",
        "trim({0})",
        "{0}",
    ]
    return draw(st.sampled_from(shapes)).format(*inner)


@pytest.mark.slow
@settings(max_examples=70 * DEPTH, deadline=None)
@given(texts(), st.lists(st.text("xyäß ", max_size=12), min_size=1, max_size=4))
def test_X15_no_value_is_larger_than_the_bound_of_its_expression(text: str, words: list[str]) -> None:
    rows = [(word, word[:3], word.encode(), len(word), [word]) for word in words]
    kinds = {"b": pl.Binary(), "n": pl.Int32(), "l": pl.List(pl.String)}
    schema = {name: kinds.get(name, pl.String()) for name in COLUMNS}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    expression = parse_expression(text, COLUMNS)
    bound = derive_bound(expression, {name: Bound({name: 1.0}, 16.0) for name in COLUMNS})
    found, failures = compile_projection([("r", expression)]).apply(frame)
    assert failures == []
    for row, value in enumerate(found["r"]):
        most = bound.constant + sum(
            factor * len(str(frame[name][row] if name != "l" else rows[row][4][0]).encode())
            for name, factor in bound.factors.items()
        )
        assert len((value or "").encode()) <= most
