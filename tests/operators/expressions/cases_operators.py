"""Conformance rows of operators, conditions and casts."""

from __future__ import annotations

from tests.operators.expressions.like_spark import Case

NAN, INF = float("nan"), float("inf")
MAX, MIN = 2**63 - 1, -(2**63)
BIGINTS = ((1, 2), (-7, 3), (7, -3), (-7, -3), (0, 0), (MAX, 1), (MIN, -1), (MAX, MAX), (MIN, MIN), (MIN, 1), (2**32, 2**31), (-(2**32), 2**31), (None, 0), (5, None), (None, None))  # fmt: skip
INTS = ((1, 2), (-7, 3), (7, -3), (0, 0), (2**31 - 1, 1), (-(2**31), -1), (2**31 - 1, 2**31 - 1), (65536, 65536), (None, 0), (5, None))  # fmt: skip
SMALLS = ((1, 2), (-7, 3), (7, -3), (0, 0), (127, 1), (-128, -1), (127, 127), (-128, 1), (None, 0), (5, None))
DOUBLES = ((1.5, 0.5), (-7.25, 3.0), (7.5, -2.5), (0.0, -0.0), (-0.0, 0.0), (1.0, 0.0), (NAN, 1.0), (1.0, NAN), (NAN, NAN), (INF, 2.0), (2.0, INF), (-INF, INF), (1e308, 10.0), (5e-324, 0.5), (1e20, 3.0), (5.5, 0.1), (0.1, 0.2), (None, 0.0), (1.0, None))  # fmt: skip
TEXTS = (("a", "b"), ("", "a"), ("ä", "z"), ("\U0001f600", "\uffee"), ("a", "a "), ("A", "a"), (None, "a"), ("a", None), (None, None))  # fmt: skip
BOOLS = tuple((a, b) for a in (True, False, None) for b in (True, False, None))
ARITHMETIC = ("a + b", "a - b", "a * b", "a / b", "a % b", "mod(a, b)", "-a", "+a", "negative(a)", "positive(a)")
INTEGER = ("a div b", "a & b", "a | b", "a ^ b", "~a", "-b - a * 2", "a + 1", "1 - b", "a - b > 0", "try_divide(a, b)")
COMPARISON = ("a = b", "a == b", "a != b", "a <> b", "a < b", "a <= b", "a > b", "a >= b", "a <=> b", "not a = b", "a in (b, a)", "a not in (b)", "a between b and b", "a is not distinct from b", "a is distinct from b", "coalesce(a, b)", "nullif(a, b)", "greatest(a, b)", "least(b, a)", "if(a > b, a, b)", "nvl(a, b)", "ifnull(a, b)", "nvl2(a, b, a)", "isnull(a)", "isnotnull(b)", "a is null", "b is not null", "case when a > b then a when a < b then b end", "case a when b then 1 else 2 end")  # fmt: skip

CASES = (
    Case((*ARITHMETIC, *INTEGER, *COMPARISON), "a bigint, b bigint", BIGINTS),
    Case((*ARITHMETIC, *INTEGER), "a int, b int", INTS),
    Case((*ARITHMETIC, *INTEGER[:6]), "a tinyint, b tinyint", SMALLS),
    Case((*ARITHMETIC, "a = b"), "a smallint, b tinyint", SMALLS),
    Case((*ARITHMETIC, *COMPARISON, "try_divide(a, b)", "isnan(a)", "nanvl(a, b)"), "a double, b double", DOUBLES),
    Case((*ARITHMETIC, "a < b", "a = b"), "a float, b float", DOUBLES[:16]),
    Case((*ARITHMETIC, *COMPARISON[:9], "coalesce(a, b)", "greatest(a, b)"), "a int, b bigint", INTS),
    Case((*ARITHMETIC, *COMPARISON[:9], "coalesce(a, b)"), "a bigint, b double", ((1, 0.5), (2**53 + 1, 1.0), (MAX, 2.0), (3, 0.0), (None, NAN))),
    Case((*ARITHMETIC, *COMPARISON[:9], "coalesce(a, b)"), "a int, b float", ((1, 0.5), (2**24 + 1, 1.0), (3, 0.0), (None, NAN))),
    Case(COMPARISON, "a string, b string", TEXTS),
    Case((*COMPARISON, "a and b", "a or b", "not a", "!a", "a and not b or b", "a is true", "a is not false", "b is unknown", "if(a, 1, 2)"), "a boolean, b boolean", BOOLS),
    Case(("a || b", "concat(a, b)", "concat(a)", "concat(a, b, 'x', a)", "a || 1 || b"), "a string, b string", TEXTS),
    Case(("a + b", "a = b", "a < b", "a * 2", "coalesce(a, 1)", "a / b", "a in (1, 2, 3)", "a between 1 and 5"), "a string, b bigint", (("5", 5), (" 7 ", 1), ("+3", 3), ("x", 1), ("", 1), ("1.5", 1), (None, 2), ("99999999999999999999", 1))),
    Case(("n > 1.5", "n >= 1.5", "n < 1.5", "n <= 1.5", "1.5 < n", "-1.5 >= n", "n >= -0.5"), "n bigint", ((1,), (2,), (-1,), (-2,), (0,), (None,))),
    Case(("x > 1.5", "x * 1.2", "x / 1.2 + 1", "coalesce(x, 0.0)", "x = 0.1", "x in (0.1, 0.2)", "1e3 + x", "x - .5"), "x double", ((0.1,), (1.5,), (-2.0,), (None,), (NAN,))),
    Case(("i + 1L", "i * 2S", "i - 3Y", "i + 1.5D", "i + 1F", "i = -2147483648", "i > 2147483648", "- - i", "2 + 3 * i - 4 / 2", "i & 6 | 1 ^ 3", "not i > 1 and i < 5 or i = 7", "(1 + i) * 2", "i + 2 = 3 is null", "i % 3 * 2", "-i % 3"), "i int", ((1,), (0,), (-5,), (7,), (2147483647,), (None,))),
    Case(("case when b = 0 then 0 else a / b end", "if(b = 0, null, a div b)", "b = 0 or a / b > 1", "b <> 0 and a / b > 1", "coalesce(a, 1 div b)", "a + 1 div b", "nvl2(a, a, 1 div b)", "a in (1, 1 div b)", "case when 1 div b > 0 then 1 when a = 1 then 2 end", "a / b > 1 and b <> 0", "coalesce(1 div b, a)", "nullif(a, 1 div b)", "try_divide(a, b)", "a = 5 and 1 div b = 1", "greatest(a, 1 div b)", "a is null or 1 div b = 1"), "a bigint, b bigint", ((1, 0), (4, 2), (None, 0), (5, None), (None, None), (0, 1), (5, 0))),
    Case(("'it''s'", "'a\\'b'", "\"d\"", "r'a\\d'", "'\\u00e4\\n\\t\\\\'", "'a' 'b'", "x'4142'", "1Y", "2S", "3L", "1.5F", "1e2", "true", "date'2020-02-29'", "timestamp'2020-02-29 12:34:56.789'", "timestamp'2020-02-29 12:34:56+02:00'", "'\\101'", "'50\\%'", "null is null", "cast(null as string)"), "z int", ((1,),)),
    Case(("a in ('x', 'y', 'z')", "a in ('x', null)", "a not in ('x', null, 'y')", "a in ('x')"), "a string", (("x",), ("q",), (None,), ("",))),
    Case(("a in (1, 2, 3)", "a in (1, null, 3)", "a in (1, 2L)", "a in (1, 2.5D)"), "a int", ((1,), (9,), (None,))),
)  # fmt: skip
