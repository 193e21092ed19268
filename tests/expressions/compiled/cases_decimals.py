"""Conformance rows of decimals: literals, arithmetic, casts, rounding, comparisons."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

from tests.expressions.compiled.like_spark import Case

MOST = Decimal("9" * 38)
MOST_BUT_ONE = Decimal("9" * 37 + ".9")
MONEY = (
    (Decimal("12.50"), Decimal("3.125")),
    (Decimal("-12.50"), Decimal("3.125")),
    (Decimal("0.01"), Decimal("-0.001")),
    (Decimal("99999999.99"), Decimal("99.999")),
    (Decimal("-99999999.99"), Decimal("0.001")),
    (Decimal("0.00"), Decimal("0.000")),
    (Decimal("7.00"), Decimal("0.000")),
    (Decimal("0.05"), Decimal("2.000")),
    (Decimal("-0.05"), Decimal("2.000")),
    (Decimal("1.00"), Decimal("3.000")),
    (Decimal("2.00"), Decimal("3.000")),
    (None, Decimal("0.000")),
    (Decimal("5.00"), None),
)
WIDE = (
    (Decimal("1.000000000000000001"), Decimal("0.5")),
    (Decimal("99999999999999999999.999999999999999999"), Decimal("0.1")),
    (Decimal("-99999999999999999999.999999999999999999"), MOST_BUT_ONE),
    (Decimal("0.000000000000000005"), Decimal("3.0")),
    (Decimal("-0.000000000000000005"), Decimal("10.0")),
    (Decimal("12345678901234567890.123456789012345678"), Decimal("-7.7")),
    (None, Decimal("1.0")),
    (Decimal("1.5"), None),
)
ARITHMETIC = ("a + b", "a - b", "a * b", "a / b", "a % b", "mod(b, a)", "pmod(a, b)", "abs(a)", "+a", "a + a * 2")
COMPARISON = (
    "a = b",
    "a != b",
    "a < b",
    "a >= b",
    "a <=> b",
    "a in (b, 12.5, 7)",
    "a between b and 10",
    "greatest(a, b)",
    "least(b, a, 1)",
    "coalesce(a, b)",
    "coalesce(a, 0)",
    "nullif(a, 7)",
    "if(a > b, a, b)",
    "case when a > 1 then 1.5 when a > 0 then 22 end",
    "nvl2(a, b, 0)",
    "isnull(a)",
)
LITERALS = ("12.50", "0.05", "0.0", "00012.5", "1.", ".5", "1e2", "1.5BD", "1e3BD", "1.5e-2BD", "-0.5", "9" * 20)
TEXTS = tuple(
    (text,)
    for text in (
        "1",
        " 12.345\t",
        "+3",
        "0.00499999999999999999999999999999999999999999999",
        "-0.005",
        "12345678901234567890.5",
        "123456789012345678901.5",
        "5\n",
        "-4.5",
        "",
        " ",
        "1.",
        ".5",
        "-.005",
        "1e3",
        "1E-3",
        "1.5d",
        "x",
        "NaN",
        "Infinity",
        "0x1",
        "999.994",
        "999.995",
        "1000",
        "1e400",
        "1e-400",
        "1_000",
        "--1",
        "1 2",
        "\u0663",
        "\U0001d7d3",
        "9" * 39,
        "0" * 50 + "1",
        "1e99999999999",
        "\x7f1",
        "\u00a01",
        "1e",
        "e1",
        ".",
        None,
    )
)
DOUBLES = (0.0, -0.0, 0.5, 2.675, 1.005, -1.005, 999.994, 999.995, 1e15, 1e300, 5e-324, 0.1, 123456789.125, None)
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string")


def numbers(texts: str) -> tuple[tuple[Decimal | None], ...]:
    """Rows of one decimal, and one of NULL."""
    return (*((Decimal(text),) for text in texts.split(" ")), (None,))


CASES = (
    Case(
        (
            *LITERALS,
            "1.5 + 1",
            "1.5 * null",
            "1.5 + '2.5'",
            "1.5 = '1.5'",
            "1.5 + 1e0",
            "1.5 + 1.5F",
            "1 / 3.0",
            "7.5 div 2",
            "7.5 div 2.0",
            "concat('a', 1.50)",
            "sqrt(2.25)",
            "isnan(1.5)",
            "sign(-1.5)",
            "array(1.5, 22.25)",
            "round(99.5)",
            "round(12.345, 10)",
            "cast('1.5' as decimal(3, 1))",
            "cast(2 as decimal)",
            "cast(5 as dec(3)) / 2",
            "try_divide(1.5, 0)",
            "1.5 + cast(n as bigint)",
            "n + 1.5",
            "n * 1.10",
            "n / 2.0",
            "n = 1.5",
            "n in (1, 1.0, 7.5)",
            "n > 1.5",
            "n <= 0.5",
            "n % 2.5",
            "1.5 - 2L",
            "1.5 * 5Y",
            "1.5 * 5S",
            "coalesce(n, 1.5)",
            "n div 2.5",
            "12.5 > n",
        ),
        "n int",
        ((1,), (-7,), (2**31 - 1,), (None,)),
    ),
    Case(
        (
            *ARITHMETIC,
            *COMPARISON,
            "-a",
            "a + 1",
            "a * 1.1",
            "2 / a",
            "a / 0.5",
            "a div b",
            "a * 2D",
            "a < 1.5D",
            "a + cast(1.5 as float)",
        ),
        "a decimal(10,2), b decimal(5,3)",
        MONEY,
    ),
    Case((*ARITHMETIC[:7], *COMPARISON), "a decimal(38,18), b decimal(38,1)", WIDE),
    Case(
        (
            "a + b",
            "a - b",
            "a * b",
            "a / b",
            "a % b",
            "pmod(a, b)",
            "a = b",
            "round(a)",
            "round(a, -1)",
            "round(a, -38)",
            "floor(a)",
        ),
        "a decimal(38,0), b decimal(38,38)",
        (
            (MOST, Decimal("0.5")),
            (Decimal("-" + "9" * 38), Decimal("1E-38")),
            (Decimal(5), Decimal("0.3")),
            (Decimal("5" + "0" * 37), Decimal("-0.7")),
            (Decimal(0), Decimal(0)),
            (None, Decimal(0)),
            (Decimal(1), None),
            (Decimal(15), Decimal("0." + "3" * 38)),
        ),
    ),
    Case(
        ("a * b", "a + b", "a - 1", "a / b", "a > b", "b * 1.5", "b % 3.5", "b + c", "c / 3.0", "c * 2.5"),
        "a decimal(18,2), b bigint, c tinyint",
        (
            (Decimal("1.25"), 3, 7),
            (Decimal("-9999999999999999.99"), 2**63 - 1, -128),
            (Decimal("0.01"), -(2**63), 127),
            (None, 1, None),
            (Decimal(1), None, 0),
        ),
    ),
    Case(
        (
            "round(a)",
            "round(a, 1)",
            "round(a, 2)",
            "round(a, 5)",
            "round(a, -1)",
            "round(a, -3)",
            "bround(a)",
            "bround(a, 2)",
            "bround(a, -1)",
            "floor(a)",
            "ceil(a)",
            "ceiling(-a)",
        ),
        "a decimal(6,3)",
        (
            *tuple(
                (Decimal(text),)
                for text in (
                    "0",
                    "0.5",
                    "-0.5",
                    "1.005",
                    "-1.005",
                    "0.045",
                    "2.5",
                    "999.999",
                    "-999.999",
                    "5",
                    "-15",
                    "500",
                )
            ),
            (None,),
        ),
    ),
    Case(
        (
            *(f"cast(a as {kind})" for kind in NUMBERS),
            *(f"try_cast(a as {kind})" for kind in NUMBERS[:4]),
            "a::decimal(5,1)",
            "try_cast(a as decimal(3,0))",
            "cast(a as decimal(20,10))",
            "cast(a as decimal(38,30))",
            "upper(a)",
            "a || 'x'",
        ),
        "a decimal(13,3)",
        (
            *tuple(
                (Decimal(text),)
                for text in (
                    "0",
                    "0.001",
                    "-0.5",
                    "127.999",
                    "-128.999",
                    "128",
                    "32768.5",
                    "2147483647.9",
                    "2147483648",
                    "999999999.999",
                    "-999999999.950",
                    "9999.94",
                    "9999.95",
                    "16777217.123",
                    "0.1",
                )
            ),
            (None,),
        ),
    ),
    Case(
        (
            "cast(a as bigint)",
            "cast(a as double)",
            "cast(a as float)",
            "cast(a as string)",
            "cast(a as boolean)",
            "cast(a as decimal(38,5))",
        ),
        "a decimal(38,10)",
        (
            *tuple(
                (Decimal(text),)
                for text in (
                    "9223372036854775807.9999999999",
                    "9223372036854775808",
                    "-9223372036854775808.5",
                    "0.0000000001",
                    "1234567890123456789012345678.0123456789",
                    "9007199254740993",
                    "0.3",
                )
            ),
            (None,),
        ),
    ),
    Case(
        ("cast(a as timestamp)", "cast(b as timestamp)"),
        "a decimal(20,10), b decimal(38,18)",
        (
            (Decimal("1.5"), Decimal("1234567890.123456789012345678")),
            (Decimal("-1.9999999999"), Decimal("-0.0000001")),
            (None, Decimal("99999999999.999999999999999999")),
        ),
    ),
    Case(
        ("cast(t as decimal(20,6))", "cast(t as decimal(10,0))"),
        "t timestamp",
        (
            (dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC),),
            (dt.datetime(2255, 6, 5, 23, 47, 34, 740993, dt.UTC),),  # in microseconds no double has it
            (None,),
        ),
    ),
    Case(("cast(s as decimal(5,2))", "try_cast(s as decimal(38,0))", "try_cast(s as decimal(3,3))"), "s string", TEXTS),
    Case(
        ("cast(x as decimal(5,2))", "cast(x as decimal(38,20))", "try_cast(x as decimal(16,1))"),
        "x double",
        tuple((value,) for value in (*DOUBLES, float("nan"), float("inf"), -float("inf"))),
    ),
    Case(("cast(x as decimal(20,18))", "x * 1.5", "x > 1.5"), "x float", ((0.1,), (-2.5,), (None,), (float("nan"),))),
    Case(("cast(b as decimal(1,0))", "cast(b as decimal(5,5))"), "b boolean", ((True,), (False,), (None,))),
    Case(
        (
            "cast(n as decimal(10,2))",
            "cast(n as decimal(38,19))",
            "cast(n as decimal(3,3))",
            "try_cast(n as decimal(19,0))",
        ),
        "n bigint",
        ((0,), (-5,), (99999999,), (100000000,), (2**63 - 1,), (-(2**63),), (None,)),
    ),
    Case(
        (
            "l[0] + 1",
            "element_at(l, -1)",
            "array_contains(l, 1.5)",
            "size(l)",
            "s.p * 2.5",
            "array(s.p, 1.5)",
            "named_struct('q', s.p / 3.0)",
            "cast(l as array<decimal(10,4)>)",
            "array(l, l)",
            "coalesce(l, array(1.00))",
        ),
        "l array<decimal(5,2)>, s struct<p:bigint>",
        (([Decimal("1.50"), Decimal("-2.25")], {"p": 5}), ([None, Decimal("1.50")], {"p": None})),
    ),
    Case(
        ("a / b", "b / a", "try_divide(a, b)", "try_multiply(a, b)", "try_add(a, a)", "try_mod(a, b)"),
        "a decimal(38,6), b decimal(38,0)",
        (
            (Decimal("49999999999999999999999999999999.999999"), MOST),
            (Decimal("4.5"), Decimal("9" + "0" * 36 + "1")),
            (Decimal("0.499999"), Decimal(1_000_000)),
            (Decimal("1.5"), Decimal(0)),
            (Decimal("9" * 32 + ".999999"), Decimal(5)),
        ),
    ),
    Case(
        ("a / b",),
        "a decimal(38,38), b decimal(38,0)",
        ((Decimal("45E-38"), Decimal(100)), (Decimal("445E-38"), Decimal(1000)), (Decimal("5E-38"), Decimal(10))),
    ),
)
