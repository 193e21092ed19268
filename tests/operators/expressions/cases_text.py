"""Conformance rows of the functions of strings, patterns and hashes."""

from __future__ import annotations

from tests.operators.expressions.like_spark import Case

WORDS = tuple((word,) for word in (None, "", " ", "abc", "  ab c ", "ÄÖß", "straße İI", "a\U0001f600b", "é", "e\u0301x", "\tx\n", "ΑΣ", "a,b,,c,", ",", "aXbXc", "line\nbreak", "line\n", "x1y22", "A.b*C", "100%", "a_b", "\\", "l\r\n", "\u2028z", "K\u212a", "\u00a0s\u00a0", "٣", "a\x00b"))  # fmt: skip
PLACES = tuple((word, place, size) for word in ("hello", "a\U0001f600bc", "", None) for place in (0, 1, 2, -1, -3, -9, 9, 2147483647, -2147483648) for size in (2, 0, -1, 2147483647)) + (("abc", None, 1), ("abc", 1, None))  # fmt: skip
PARTS = (("hello", "l"), ("hello", ""), ("", ""), ("", "x"), ("äöü", "ö"), ("a\U0001f600b", "b"), ("aaa", "aa"), ("abc", "abc"), ("abc", "abcd"), (None, "a"), ("a", None), ("a.b", "."), ("xxaxx", "x"), ("  a ", " "))  # fmt: skip
RLIKE = (
    "b", "^a", "c$", "^$", "a.b", "(?s)a.b", "[a-c]+", "[^a-z]", "\\\\d+", "\\\\w", "\\\\W", "\\\\s", "\\\\S\\\\s", "x|y", "(a|b)c", "a{2,3}", "a*", "a+?b", "\\\\.",
    "\\\\bb", "(?i)ABC", "(?i)k", "(?i)[a-k]\\\\d", "(?i)ß", "k", "[\\\\d,]", "[^\\\\w]", "\\\\t", "\\\\u00e9", "\\\\x41", "\\\\p{Alpha}\\\\d", "\\\\p{Punct}", "\\\\Q.b*\\\\E", "line$", "line\\\\z",
    "[-a]", "[a-]", "[.*+]", "(?:a)(b)?", "(?<n>a)", "\\\\P{Alpha}", "^.$", "^..$", "\\\\D$",
)  # fmt: skip
LIKES = ("abc", "a%", "%c", "%b%", "_bc", "%", "", "_", "__", "a\\\\_b", "100\\\\%", "%\\n%", "a%c", "\\\\\\\\", "A.b*C", "%ß")

CASES = (
    Case(("upper(s)", "ucase(s)", "lower(s)", "lcase(s)", "length(s)", "len(s)", "char_length(s)", "character_length(s)", "octet_length(s)", "trim(s)", "ltrim(s)", "rtrim(s)", "btrim(s)", "reverse(s)", "repeat(s, 3)", "repeat(s, 0)", "repeat(s, -1)", "md5(s)", "sha1(s)", "sha(s)", "sha2(s, 0)", "sha2(s, 224)", "sha2(s, 256)", "sha2(s, 384)", "sha2(s, 512)", "s || '|' || s", "concat_ws('-', s, 'x', s)", "concat_ws('', s)", "trim(both 'a ' from s)", "trim(leading 'a' from s)", "trim(trailing 'c' from s)", "trim('xa' from s)", "btrim(s, 'ac')"), "s string", WORDS),
    Case(("lpad(s, 5)", "lpad(s, 5, 'xy')", "lpad(s, 1, 'x')", "lpad(s, 0, 'x')", "lpad(s, -1, 'x')", "lpad(s, 4, '')", "rpad(s, 5)", "rpad(s, 5, 'xyz')", "rpad(s, 2, 'ä')", "rpad(s, 3, '')", "left(s, 2)", "left(s, 0)", "left(s, -1)", "right(s, 2)", "right(s, 0)", "right(s, -5)", "right(s, 99)", "substring(s, 2)", "substr(s, -2)", "substring(s, 2, 2)", "substring(s from 2 for 1)", "substring(s, 0, 1)"), "s string", WORDS),
    Case(("substring(s, p, n)", "substring(s, p)", "left(s, n)", "right(s, n)"), "s string, p int, n int", PLACES),
    Case(("contains(s, t)", "startswith(s, t)", "endswith(s, t)", "instr(s, t)", "locate(t, s)", "position(t in s)", "position(t, s)", "btrim(s, t)", "trim(leading t from s)", "trim(trailing t from s)", "concat_ws('/', s, t, null)", "contains(s, 'l')", "instr(s, 'l')"), "s string, t string", PARTS),
    Case(("replace(s, 'a', 'xx')", "replace(s, 'X')", "replace(s, '', 'q')", "replace(s, 'zz', '$1')", "replace(s, 'b', '\\\\')", "split_part(s, ',', 1)", "split_part(s, ',', 3)", "split_part(s, ',', 9)", "split_part(s, ',', -1)", "split_part(s, 'X', -2)", "split_part(s, ',', -9)", "split(s, ',')", "split(s, 'X')", "split(s, '[,X]')", "split(s, '\\\\.')", "split(s, ',+')", "split(s, '(a|b)')"), "s string", WORDS),
    Case(tuple(f"s rlike '{pattern}'" for pattern in RLIKE) + ("regexp_like(s, 'a')", "regexp(s, 'a')", "s regexp '^l'", "s not rlike 'a'"), "s string", WORDS),
    Case(tuple(f"s like '{pattern}'" for pattern in LIKES) + ("s like 'a!_b' escape '!'", "s not like 'a%'", "s ilike 'ABC'", "s ilike '%B%'", "s ilike 'É'", "s not ilike 'STR%'", "s ilike 'a_x%'"), "s string", WORDS),
    Case(("regexp_extract(s, '(a)(b)?', 1)", "regexp_extract(s, '(a)(b)?', 2)", "regexp_extract(s, '([a-z])')", "regexp_extract(s, '\\\\d+', 0)", "regexp_extract(s, '(x)|(y)', 2)", "regexp_extract(s, '^(.*)$', 1)", "regexp_extract(s, '(\\\\d+)\\\\D*$', 1)", "regexp_extract(s, '(.)(.)(.)', 3)"), "s string", WORDS),
    Case(("regexp_replace(s, 'a', 'x')", "regexp_replace(s, '([a-z])([0-9])', '$2-$1')", "regexp_replace(s, '[aeiou]', '')", "regexp_replace(s, '\\\\s+', ' ')", "regexp_replace(s, '(b)', '\\\\$1$1')", "regexp_replace(s, '(b)(c)?', '<$2>')", "regexp_replace(s, '(a)', '$10')", "regexp_replace(s, '\\\\.', '\\\\\\\\')", "regexp_replace(s, '^a', 'z')", "regexp_replace(s, '\\\\s+\\\\z', '')", "regexp_replace(s, '.', '.')"), "s string", WORDS),
    Case(("length(b)", "octet_length(b)", "md5(b)", "sha1(b)", "sha2(b, 256)", "b = x'61'", "cast(cast('é' as binary) as string)"), "b binary", ((b"",), (b"a",), (b"\xff\x00",), (None,))),
    Case(("upper(n)", "concat(n, d, f)", "length(cast(n as string))", "substring(d, 1, 2)", "n like '1%'", "lpad(n, 5, '0')", "contains(d, '.')"), "n int, d double, f boolean", ((12, 1.5, True), (-1, -0.0, False), (None, 0.1, None))),
)  # fmt: skip
