"""Conformance rows of character sets, percent-encoding, URLs, base 64 and checksums."""

from __future__ import annotations

import datetime

from tests.expressions.compiled.like_spark import Case, Row
from tidegate.expressions.compiled.codecs import part_of_url
from tidegate.expressions.functions.codecs import CHARACTER_SETS, URL_PARTS

UTC = datetime.UTC
TEXTS: tuple[Row, ...] = tuple(
    (text,)
    for text in (
        None, "", "abc", "a b&c=d/e?f#g", "é\U0001f600", "~*-_.!()'", "a+b%20%C3%A9", "%", "%4", "%zz", "%ff", "%C3%A",
        "%41%zz", "%-1", "100%25", "%e9%80", "x\x00y", "%F0%9F%98%80", "%00", "%%41",
        "%+2f", "AQI=", "AQI", "A", "AQ=A", "=",
        "AQI=AQI=", "A Q\n==", "QUJD", "QQ=", "QQ==", "QQ===", "é", "x" * 70,
    )
)  # fmt: skip
URLS: tuple[Row, ...] = tuple(
    (text,)
    for text in (
        None, "", "http://u:p@spark.apache.org:80/path/x?query=1&b=2#Ref", "http://h", "http://h/", "http://h?b=1&bb=2",
        "http://h/p?b=&b=2", "http://h/p?xb=1", "/x?b=1", "x/y", "mailto:a@b.c", "http://h_x/p", "http://h x/", "http:",
        "http://", "http:///p", "://x", "1a:b", "a:b?c#d", "http://1.2.3.4:8/x", "http://1.2.3.4.5/x", "http://256.1.1.1/",
        "http://h/%zz", "http://h/%41?b=%20", "http://é/ü?b=ö", "http://h/[x]", "http://h/?b=[x]", "http://h#a#b",
        "http://h/a|b", "http://u@h:/x", "http://a-/x", "http://a.b-c.d1./x", "http://u:p@q@h/", "//h/p", "?b=1", "#r",
        "http://h:80x/", "file:///etc/x", "http://h/\\", "http://h/\u00a0", "HTTP://H/P",
        "http://[::1]/x",
        "http://u@[2001:db8::1]:8/x",
        "http://[::x]/",
        "http://[1.2.3.4]/",
    )
)  # fmt: skip


def _is_url(text: object) -> bool:
    """What Tidegate says: each row that fails takes a query of its own in Spark."""
    try:
        part_of_url(str(text), "HOST")
    except ValueError:
        return False
    return True


CASES = (
    Case(
        (
            "url_encode(s)",
            "url_decode(s)",
            "try_url_decode(s)",
            "url_decode(url_encode(s))",
            "unbase64(s)",
            "crc32(s)",
            "xxhash64(s)",
            "xxhash64(s, s, 'x')",
            *(f"encode(s, '{name}')" for name in CHARACTER_SETS),
            "decode(encode(s, 'UTF-16'), 'utf-16')",
        ),
        "s string",
        TEXTS,
    ),
    Case(
        (*(f"decode(b, '{name}')" for name in CHARACTER_SETS), "crc32(b)", "xxhash64(b)"),
        "b binary",
        tuple(
            (data,)
            for data in (
                None,
                b"",
                b"a",
                b"\xff",
                b"ab",
                b"\xfe\xff\x00a",
                b"\xff\xfea\x00",
                b"\xd8\x00\x00a",
                b"\xd8\x3d\xde\x00",
                b"\x00\x00\x00a",
                b"\x00\x11\x00\x00",
                b"\xc3\xa9",
                b"\xed\xa0\x80",
                b"\xf0\x9f\x98\x80",
                b"\x80a",
                b"\xff\xfe\x00\x00a\x00\x00\x00",
                b"\x00\x00\xfe\xff\x00\x00\x00a",
                b"\x00\x00\xfe\xff",
                b"\x00\x00\xd8\x00",
                b"\x00\x00\xd8\x3d\x00\x00\xde\x00",
                b"\x00\x00\xde\x00\x00\x00\xd8\x3d\x00\x00\x00a",
                b"\x00\x11\x00\x00\x00\x00\x00a",
            )
        ),
    ),
    Case(
        (*(f"parse_url(s, '{part}')" for part in URL_PARTS), "parse_url(s, 'QUERY', 'b')"),
        "s string",
        tuple(row for row in URLS if _is_url(row[0])),
    ),
    Case(("parse_url(s, 'HOST')",), "s string", tuple(row for row in URLS if not _is_url(row[0]))),
    Case(
        (
            *(f"xxhash64({name})" for name in ("p", "t", "s", "i", "l", "f", "d", "b", "y", "m")),
            "xxhash64(p, t, s, i, l, f, d, b, y, m)",
            "xxhash64(1L)",
        ),
        "p boolean, t tinyint, s smallint, i int, l bigint, f float, d double, b binary, y date, m timestamp",
        (
            (
                True,
                1,
                -1,
                5,
                -5,
                1.5,
                -0.0,
                b"x" * 33,
                datetime.date(2026, 1, 31),
                datetime.datetime(2026, 1, 31, tzinfo=UTC),
            ),
            (False, -128, 0, 0, 2**63 - 1, -0.0, float("nan"), bytes(range(64)), datetime.date(1, 1, 1), None),
            (
                None,
                None,
                32767,
                -(2**31),
                -(2**63),
                float("inf"),
                1e300,
                b"",
                None,
                datetime.datetime(1, 1, 1, tzinfo=UTC),
            ),
        ),
    ),
)
