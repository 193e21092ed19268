"""Conformance rows of the functions of arrays and of those with lambda functions."""

from __future__ import annotations

from tests.expressions.compiled.like_spark import Case, Row

NAN, INF = float("nan"), float("inf")
INTS: tuple[Row, ...] = (
    ([1, 2, 3], [3, 4], 2, 1),
    ([], [], 0, 2),
    ([None], [None], 1, 1),
    ([3, None, 1, 3], [1, None, 1], 3, -2),
    (None, [1], 1, 1),
    ([1], None, None, 1),
    ([2147483647, -2147483648, 0], [0], 0, -1),
    ([5, 5, 5], [5], 5, 3),
    ([1, 2], [7, 8], -1, None),
)
DOUBLES: tuple[Row, ...] = (
    ([0.0, -0.0, NAN, None, 1.5], [-0.0, NAN], -0.0),
    ([-0.0, 0.0, -INF, INF], [], 0.0),
    ([NAN, NAN, None, None], [None, NAN], NAN),
    ([-0.0], [0.0], None),
    ([], None, 1.0),
    (None, [1.0], 1.0),
    ([2.0, 1.0, -0.0, 1.0, 0.0, 3.0], [1.0, 2.0], 1.0),
)
TEXTS: tuple[Row, ...] = (
    (["b", "a", None, "ä", ""], ["a"], "a"),
    (["", None], [""], ""),
    ([], [None], "x"),
    (None, ["x"], None),
    (["é", "e\u0301", "\U0001f600", "\uffff"], ["é"], "\U0001f600"),
)
_OF_A = ("array_distinct(a)", "array_compact(a)", "array_sort(a)", "sort_array(a)", "sort_array(a, true)")
_OF_ONE = (
    *_OF_A,
    "sort_array(a, false)",
    "sort_array(a, null)",
    "sort_array(a, cast(null as boolean))",
    "array_max(a)",
    "array_min(a)",
    "array_repeat(a, 2)",
    "concat(a, b)",
)
_OF_TWO = (
    "array_union(a, b)",
    "array_intersect(a, b)",
    "array_except(a, b)",
    "arrays_overlap(a, b)",
    "concat(a, b, a)",
)
_OF_VALUE = ("array_append(a, v)", "array_prepend(a, v)", "array_position(a, v)", "array_remove(a, v)")
_EACH = (*_OF_ONE, *_OF_TWO, *_OF_VALUE, "array_append(a, null)", "array_prepend(a, null)", "array_repeat(v, 3)")


def _entry(key: str, value: int | None) -> dict[str, object]:
    return {"key": key, "value": value}


CASES = (
    Case(
        (
            *_EACH,
            "slice(a, 1, 2)",
            "slice(a, v, 2)",
            "slice(a, -2, v)",
            "slice(a, v, n)",
            "slice(a, n, v)",
            "slice(a, 2147483647, 2147483647)",
            "slice(array(1.5, 2, null, 0.25), n, 2)",
            "a[-1]",
            "a[v]",
            "get(a, -1)",
            "element_at(a, -2)",
            "try_element_at(a, v)",
            "try_element_at(array(1, 2), v)",
            "element_at(split(nullif('a', 'a'), ','), v)",
            "slice(a, -2147483648, 2147483647)",
            "array_repeat(v, 0)",
            "array_repeat(v, -1)",
            "sequence(1, v)",
            "sequence(v, 1)",
            "sequence(n, v, 2)",
            "sequence(v, n, -1)",
            "sequence(v, v, 0)",
            "sequence(n, v, n)",
            "sequence(cast(v as bigint), 3)",
            "flatten(transform(a, x -> array(x, v)))",
            "flatten(transform(a, x -> if(x > 2, null, array(x))))",
        ),
        "a array<int>, b array<int>, v int, n int",
        INTS,
    ),
    Case(_EACH, "a array<double>, b array<double>, v double", DOUBLES),
    Case(
        (
            "array_distinct(transform(a, x -> array(x)))",
            "array_union(transform(a, x -> named_struct('x', x)), transform(b, x -> named_struct('x', x)))",
        ),
        "a array<double>, b array<double>, v double",
        DOUBLES,
    ),
    Case(_EACH, "a array<string>, b array<string>, v string", TEXTS),
    Case(
        ("array_distinct(a)", "array_sort(a)", "array_max(a)", "array_position(a, v)", "array_append(a, v)"),
        "a array<timestamp>, v timestamp",
        ((None, None),),
    ),
    Case(
        (
            "transform(a, x -> x + 1)",
            "transform(a, x -> x * v)",
            "transform(a, (x, i) -> i)",
            "transform(a, (x, i) -> coalesce(x, i) + v)",
            "transform(a, A -> a / v)",
            "transform(a, `x y` -> `x y` > 1)",
            "transform(a, x -> named_struct('x', x, 'v', v))",
            "transform(a, x -> concat(cast(x as string), '-', cast(v as string)))",
            "transform(a, x -> 1)",
            "transform(a, x -> v)",
            "transform(a, x -> transform(b, y -> x + y))",
            "transform(a, x -> transform(b, x -> x))",
            "transform(a, x -> filter(b, y -> y = x))",
            "transform(a, x -> aggregate(b, x, (acc, y) -> acc + y))",
            "transform(filter(a, x -> x is not null), x -> array_repeat(x, 2))",
            "filter(a, x -> x > 1)",
            "filter(a, x -> x = v)",
            "filter(a, (x, i) -> i % 2 = 0)",
            "filter(a, x -> null)",
            "filter(a, x -> exists(b, y -> y = x))",
            "filter(a, x -> 6 / x > v)",
            "exists(a, x -> x > 1)",
            "exists(a, x -> x is null)",
            "exists(a, x -> 6 / (x - v) < 0)",
            "forall(a, x -> x > 0)",
            "forall(a, x -> x is not null)",
            "forall(a, x -> 6 / (x - v) < 0)",
            "aggregate(a, 0, (acc, x) -> acc + x)",
            "aggregate(a, 0L, (acc, x) -> acc + coalesce(x, v))",
            "aggregate(a, v, (acc, x) -> greatest(acc, x))",
            "aggregate(a, 1D, (acc, x) -> acc / x, acc -> acc * 2)",
            "reduce(a, 0, (acc, x) -> acc * 10 + x, acc -> acc + v)",
            "aggregate(a, true, (acc, x) -> acc and x > 0, acc -> not acc)",
            "size(filter(a, x -> x > 0)) + v",
            "case when v > 0 then transform(a, x -> 1 / x) end",
            "array_sort(transform(a, x -> -x))",
        ),
        "a array<int>, b array<int>, v int, n int",
        INTS,
    ),
    Case(
        (
            "transform(a, x -> upper(x))",
            "transform(a, x -> concat(x, v))",
            "filter(a, x -> x like 'a%')",
            "transform(a, x -> length(x))",
            "exists(a, x -> x = v)",
            "array_join(transform(a, x -> coalesce(x, v)), '/')",
            "transform(a, x -> try_cast(x as int))",
        ),
        "a array<string>, b array<string>, v string",
        TEXTS,
    ),
    Case(
        (
            "transform(s, x -> x.n + 1)",
            "filter(s, x -> x.t = 'a')",
            "transform(s, x -> x.t)",
            "array_distinct(s)",
            "array_position(s, s[0])",
            "array_union(s, s)",
            "array_except(s, array(s[0]))",
            "array_append(s, s[0])",
            "array_prepend(s, null)",
            "array_append(array_repeat(s, 1), s)",
        ),
        "s array<struct<n:int,t:string>>",
        (
            ([{"n": 1, "t": "a"}, {"n": None, "t": "b"}, {"n": 1, "t": "a"}],),
            ([{"n": 3, "t": None}],),
        ),
    ),
    Case(("transform(array(1, 2), x -> x + 1)", "array_max(array(1, n))"), "n int", ((1,), (5,), (None,))),
    Case(
        (
            "map_filter(m, (k, v) -> v > n)",
            "map_filter(m, (k, v) -> k like 'a%')",
            "transform_values(m, (k, v) -> v + n)",
            "transform_values(m, (k, v) -> concat(k, cast(v as string)))",
            "transform_values(m, (k, v) -> v / n)",
            "transform_keys(m, (k, v) -> upper(k))",
            "transform_keys(m, (k, v) -> v)",
            "map_entries(m)",
            "map_entries(transform_keys(m, (k, v) -> concat(k, 'x')))",
        ),
        "m map<string,int>, n int",
        (
            ([_entry("a", 1), _entry("A", 2), _entry("b", None)], 1),
            ([_entry("", 3), _entry("ab", 3)], 0),
            ([], 2),
            (None, 1),
            ([_entry("k", 5)], None),
        ),
    ),
)
