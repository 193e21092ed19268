"""Conformance rows of the functions of JSON text."""

from __future__ import annotations

import datetime
import json
import random

from tests.expressions.compiled.like_spark import Case

UTC = datetime.UTC
SEED = 20_261_123
"""Of the generated texts: a failing row shows its text."""

FIXED = (
    "",
    " ",
    "null",
    "{}",
    "[]",
    '0"a"',
    "1 x",
    "1,2",
    "true]",
    "true x",
    "truex",
    "null,",
    '"a"b',
    "1",
    "true",
    '"x"',
    "NaN",
    "[null]",
    '{"a":1}',
    ' {"a" : 1 } ',
    '{"a":1',
    '{"a":1,}',
    "{'a':1}",
    '{"a":1} x',
    '{"a":1}{"a":2}',
    "{a:1}",
    '{"a":01}',
    '{"a":"1","b":2}',
    '{"a":1.0,"b":1.50}',
    '{"a":3000000000,"b":{"x": 1.0 }}',
    '{"a":true,"b":true}',
    '{"a":null,"b":null}',
    '{"a":"x","b":[1, 2.0,"y"]}',
    '{"a":1,"a":2}',
    '{"a":1,"a":null}',
    '{"a":1,"a":"x"}',
    '{"a":null,"a":2}',
    '{"a":1, "b": tru}',
    '{"b":"\\ud800","a":1}',
    '{"b":"\\ud83d\\ude00"}',
    '{"b":{"x":"\\ud800"}}',
    '{"b":"x\ty"}',
    '{"b":["\\u0001\\u001f\\b\\f\\/"]}',
    '{"b":\'x"y\'}',
    '{"b":"x\\\'y"}',
    "{\"b\":'x\\'y'}",
    '{"b":"\\x"}',
    '{"a":1 "b":2}',
    '{"a":1;}',
    '{"a":1x}',
    '{"a":[1 2]}',
    '{"a":[1,]}',
    '{"b":--1}',
    '{"b":1e}',
    '{"b":nul}',
    '{"b":True}',
    '{"a"}',
    '{"a":}',
    "{,}",
    '{"a":1}}',
    '\x0b{"a":1}',
    '\u00a0{"a":1}',
    '{"a":nullx}',
    '{"b":-}',
    '{"b":1.10}',
    '{"b":1e5}',
    '{"b":-0}',
    '{"b":-0.0}',
    '{"b":1E400}',
    '{"b":NaN}',
    '{"b":-INF}',
    '{"b":+Infinity}',
    '{"b":INF}',
    '{"b":123456789012345678901}',
    '{"b":123456789012345678901.5}',
    '{"b":.5}',
    '{"b":1.}',
    '{"A":1,"B":"x"}',
    '[{"a":1,"b":"x"}]',
    '[{"a":1},{"a":"x"},null]',
    "[[1,2],[3]]",
    '{"a":{"a":1},"b":{"a":[1,{"b":2}]}}',
    '{"b":{"x":1},"b":{"a":2}}',
    "[1,2",
    '[1,"x"]',
    '{"a":128,"b":""}',
    '\ufeff{"a":1}',
    '{"b":"\\u00e9é\\n"}',
    '{"b":1e-5}',
    '/*c*/{"a":1}',
    '{"b":"\\u00zz"}',
    '{"b":"x',
    '{"b":0.001,"a":-2147483649}',
    '{"b":1234567.5}',
    '{"b":12345678.5}',
    '{"a":[{"b":1},{"b":2}]}',
    '{"a b":{"c.d":5}}',
    '{"b":[]}',
    '{"b":{}}',
    '{"b": {"a": [ ] , "c" : { } } }',
    "[1e5, -0, 1.0]",
)


def generated(count: int, damaged: float) -> list[str]:
    """JSON texts, a share of them damaged in one place."""
    chosen = random.Random(SEED)

    def value(depth: int) -> object:
        kind = chosen.randrange(9 if depth else 6)
        if kind < 6:
            leaves = [
                chosen.randint(-300, 300),
                chosen.randint(-(2**65), 2**65),
                chosen.uniform(-1e9, 1e9),
                'é"x\\\n',
                True,
                None,
            ]
            return leaves[kind]
        if kind == 6:
            return [value(depth - 1) for _ in range(chosen.randrange(4))]
        return {name: value(depth - 1) for name in chosen.sample(["a", "b", "c", "a b"], chosen.randrange(5) % 5)}

    texts: list[str] = []
    for _ in range(count):
        text = json.dumps({"a": value(0), "b": value(2), "c": value(1)}, ensure_ascii=chosen.random() < 0.5)
        if chosen.random() < damaged:
            place = chosen.randrange(len(text))
            text = text[:place] + chosen.choice(["", "'", '"', ",", "}", " ", "0", "\\", "[", "x"]) + text[place + 1 :]
        texts.append(text)
    return texts


TIMES = (
    "2020-01-02",
    "2020-1-2",
    "2020",
    " 2020-01-02 ",
    "2020-01-02T03:04:05",
    "2020-01-02 03:04:05.678901Z",
    "x",
    "",
    "2020-01-02T03:04:05+02:00",
    "2020-13-01",
    "2020-02-30",
    "2020-01-02T25:00:00",
    "0001-01-01",
    "9999-12-31T23:59:59.999999",
)
NUMBERS = (
    "1",
    "-0",
    "-0.0",
    "0.1",
    "16777217",
    "16777217.0",
    "1.00000017881393432617187499",
    "9007199254740993",
    "1e400",
    "1e39",
    "-1e-400",
    "1e-46",
    "3.4028235677973366e38",
    "NaN",
    '"NaN"',
    '"Infinity"',
    '"-INF"',
    '"+Infinity"',
    '"INF"',
    '"1"',
    '""',
    "true",
    "1.401298464324817e-45",
    "7.006492321624086e-46",
)
MOMENT = datetime.datetime(2026, 1, 31, 12, 34, 56, 678901, UTC)
CASES = (
    Case(
        (
            *(
                f"get_json_object(s, '{path}')"
                for path in ("$", "$.a", "$.b", "$.b.a", "$.a.b", "$[0]", "$[0].a", "$.b[1]")
            ),
            "get_json_object(s, \"$['a b']['c.d']\")",
            "json_array_length(s)",
            "json_object_keys(s)",
        ),
        "s string",
        tuple((text,) for text in (None, *FIXED, *generated(60, damaged=0.5))),
    ),
    Case(
        (
            "from_json(s, 'a int, b string')",
            "from_json(s, 'b string, A bigint')",
            "from_json(s, 'a tinyint, b double')",
            "from_json(s, 'a smallint, b boolean')",
            "from_json(s, 'a float, b array<int>')",
            "from_json(s, 'a struct<a:int,b:string>, b struct<a:array<string>>')",
            "from_json(s, 'array<int>')",
            "from_json(s, 'array<struct<a:int,b:string>>')",
            "from_json(s, 'struct<b: array<double>, c: map<string, bigint>>').b",
            "to_json(from_json(s, 'a bigint, b string, c array<string>'))",
            "from_json(s, 'b double, a float')",
        ),
        "s string",
        tuple((text,) for text in (None, *FIXED, *generated(40, damaged=0.0))),
    ),
    Case(
        ("from_json(s, 'map<string,string>')", "from_json(s, 'm map<string,int>')", "from_json(s, '`a b` int')"),
        "s string",
        tuple(
            (text,)
            for text in (
                None,
                "",
                "{}",
                '{"a":"1"}',
                '{"a":[1]}',
                '{"m":{"x":1}}',
                '{"m":{"x":"y"}}',
                '{"a b":1}',
                "[1]",
            )
        ),
    ),
    Case(
        (
            "from_json(s, 'd date, t timestamp').d",
            "from_json(s, 'd date, t timestamp').t",
            "from_json(s, 'f float, g double')",
        ),
        "s string",
        (
            *((f'{{"d":"{text}","t":"{text}"}}',) for text in TIMES),
            *((f'{{"f":{text},"g":{text}}}',) for text in NUMBERS),
            ('{"d":1,"t":1}',),
            ('{"d":true,"t":true}',),
            ('{"d":1.5,"t":1.5}',),
            ('{"t":-5}',),
        ),
    ),
    Case(
        (
            "to_json(named_struct('p', p, 'i', i, 'l', l, 'f', f, 'd', d, 's', s, 'b', b, 'y', y, 'm', m))",
            "to_json(array(i, null, i))",
            "to_json(array(named_struct('s', s, 'm', m)))",
            "to_json(named_struct('x', array(s, s), 'y', named_struct('z', d)))",
            "to_json(named_struct('f', f))",
        ),
        "p boolean, i int, l bigint, f float, d double, s string, b binary, y date, m timestamp",
        (
            (
                True,
                1,
                -5,
                0.1,
                1e10,
                'é"\\/\n\x01\x1f\x7f\u2028\U0001f600',
                b"\x01\xff",
                datetime.date(2026, 1, 31),
                MOMENT,
            ),
            (False, -1, 2**63 - 1, -0.0, -0.0, "", b"", datetime.date(1, 1, 1), datetime.datetime(1, 1, 1, tzinfo=UTC)),
            (None, None, None, None, None, None, None, None, None),
            (None, 0, 0, 16777216.0, 0.001, "\t\b\f\r", b"x", datetime.date(9999, 12, 31), None),
            (
                None,
                0,
                0,
                3.4028234663852886e38,
                9999999.0,
                "'",
                None,
                None,
                datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            ),
            (None, 0, 0, 1e-3, 1e7, "a", None, None, None),
            (None, 0, 0, float("nan"), float("-inf"), "a", None, None, None),
            (None, 0, 0, 100.0, 1e-4, "a", None, None, None),
        ),
    ),
)
