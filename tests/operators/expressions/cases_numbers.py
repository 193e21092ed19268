"""Conformance rows of the functions of numbers and of casts between numbers, booleans and text."""

from __future__ import annotations

from tests.operators.expressions.like_spark import Case

NAN, INF = float("nan"), float("inf")
MAX, MIN = 2**63 - 1, -(2**63)
DOUBLES = tuple((value,) for value in (0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 2.675, 1.005, -1.005, 0.285, 1e-5, 123456.789, 0.29, 0.49999999999999994, 1e15, 4503599627370497.5, 1e20, 1e300, -1e300, 5e-324, 9.2e18, 9.3e18, -9.3e18, 1234.5678, 99.995, NAN, INF, -INF, None, 1.0, -1.0, 2.0, 8.0, 10.0, 100.0, 2147483648.0, -2147483649.0, 127.9, -128.9, 1e7, 9999999.999, 0.001, 0.000999, 3.4e39, 1e22))  # fmt: skip
FLOATS = tuple((value,) for value in (0.0, -0.0, 0.5, 1.25, 2.5, -1.5, 16777216.0, 1.0e10, NAN, INF, None, 3.0e38, 1.0e-10))
BIGINTS = tuple((value,) for value in (0, 1, -1, 5, MAX, MIN, 127, 128, -129, 32768, 2**31, -(2**31), 2**53 + 1, None))
PAIRS = ((2.0, 3.0), (2.0, 0.5), (-2.0, 0.5), (-2.0, 3.0), (0.0, 0.0), (0.0, -1.0), (1.0, NAN), (NAN, 0.0), (1.0, INF), (-1.0, INF), (2.0, INF), (10.0, -2.0), (1e200, 2.0), (1.1, 10.0), (None, 1.0), (1.0, None))  # fmt: skip
TEXTS = tuple((text,) for text in ("1", " 12 ", "+3", "-4", "", " ", "1.5", "1.", ".5", "1e3", "1E-3", "1d", "2.5F", "x", "0x10", "99999999999", "-129", "127", "2147483648", "9223372036854775808", "NaN", "nan", "Infinity", "-inf", "+INF", "1e400", "1e-400", "true", "T", "yes", "Y", "0", "f", "FALSE", "no", "on", "tru", "\t7\n", "1 2", "--1", "1_000", "0.1", "00012", "٣", "\x001", "\u00a01", None))  # fmt: skip
NUMERIC = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string")

CASES = (
    Case(("abs(x)", "round(x)", "round(x, 1)", "round(x, 2)", "round(x, -2)", "round(x, 5)", "floor(x)", "ceil(x)", "ceiling(x)", "sqrt(x)", "sign(x)", "signum(x)", "isnan(x)", "greatest(x, 1.0D, null)", "least(x, 1.0D)", "round(x / 1.2, 2)", "-x"), "x double", DOUBLES),
    Case(("cbrt(x)", "exp(x)", "ln(x)", "log(x)", "log10(x)", "log2(x)"), "x double", DOUBLES, ulps=1),
    Case(("abs(x)", "round(x)", "round(x, 1)", "floor(x)", "ceil(x)", "sqrt(x)", "sign(x)", *(f"cast(x as {kind})" for kind in NUMERIC)), "x float", FLOATS),
    Case(("power(a, b)", "pow(a, b)", "power(a, 2)", "pow(2, b)"), "a double, b double", PAIRS, ulps=1),
    Case(("abs(n)", "round(n)", "round(n, 2)", "floor(n)", "ceil(n)", "sqrt(n)", "sign(n)", "-n", "greatest(n, 1)", "least(n, 5, null)", *(f"cast(n as {kind})" for kind in NUMERIC), *(f"try_cast(n as {kind})" for kind in NUMERIC[:4])), "n bigint", BIGINTS),
    Case(("abs(n)", "floor(n)", "cast(n as tinyint)", "cast(n as string)", "cast(n as boolean)", "n::double", "cast(n as timestamp)"), "n int", ((0,), (-5,), (2**31 - 1,), (-(2**31),), (None,))),
    Case(("pmod(a, b)", "a % b"), "a int, b int", ((7, 3), (-7, 3), (7, -3), (-7, -3), (5, 0), (0, 5), (None, 0), (5, None), (-(2**31), -1))),
    Case(tuple(f"cast(x as {kind})" for kind in NUMERIC) + ("x::string", "try_cast(x as int)", "cast(x as real)"), "x double", DOUBLES),
    Case(tuple(f"try_cast(s as {kind})" for kind in NUMERIC), "s string", TEXTS),
    Case(("cast(s as int)", "cast(s as double)", "cast(s as boolean)", "s::tinyint", "cast(s as float)"), "s string", tuple(TEXTS[i] for i in (0, 1, 2, 4, 6, 9, 13, 15, 20, 22, 27, 31, 46))),
    Case(tuple(f"cast(b as {kind})" for kind in NUMERIC), "b boolean", ((True,), (False,), (None,))),
    Case(("cast(null as int) + a", "a + null", "null = a", "coalesce(null, a)", "nvl2(null, 1, a)", "greatest(null, a)", "if(null, 1, 2)", "sqrt('4')", "abs('-1.5')", "'5' + a", "a / '2'"), "a int", ((1,), (None,))),
)  # fmt: skip
