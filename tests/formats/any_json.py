"""Texts of JSON for a schema: as producers write them, odd ones, and damaged ones."""

from __future__ import annotations

import base64
import datetime as dt
import math
import random
import struct
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final

from tidegate.datatypes import MAX_PRECISION, DataType, decimal_of_units

LETTERS: Final = (
    *("a", "abcdefgh", " ", "é", "Ж", "中", "😀", "жжжж", "\x7f", "\\n", "\\/", '\\"', "\\\\", "\\u0000", "\\u00e9"),
    *("\\uD83d\\uDe00", "\\u0041"),
)
BAD_LETTERS: Final = (
    *("\\ud800", "\\udc00", "\\ud800\\u0041", "\\ud83d\\", "\\q", "\\u12g4", "\\u00", "\\", "\n", "\t", "\x00", "\x1f"),
    *("\udcff", "\udcc3", "\udced\udca0\udc80", "\udcc0\udc80", "\udcf4\udc90\udc80\udc80"),  # bytes that are no UTF-8
)
NUMBERS: Final = (
    *(
        "-0",
        "0",
        "-0.0",
        "0.0",
        "0e5",
        "-0e0",
        "-0E-3",
        "0e500",
        "00",
        "01",
        "-",
        "+1",
        "1.",
        "1.e3",
        ".5",
        "1e",
        "1e+",
    ),
    *("1e+05", "1E-0", "1e00000001", "1e99999", "1e-99999", "NaN", "Infinity", "-Infinity", "0x1", "1_0", "1e400"),
    *("3.4028234663852886e38", "3.4028235e38", "-3.4028235e38", "3.4028235677973362e38", "-3.4028235677973362e38"),
    *("3.4028235677973364e38", "3.4028235677973366e38", "-3.4028235677973366e38", "3.4028235677973366162e38"),
    *(str(2**128 - 2**103 - 2**74 - 1), str(2**128 - 2**103 - 2**74), str(2**128 - 2**103 - 1), str(2**128 - 2**103)),
    *(str(2**128 - 2**104), "3.5e38"),
    *("1e-45", "5e-324", "2e-324", "1e-320"),
    *("2.2250738585072014e-308", "1.7976931348623157e308", "1.7976931348623159e308", "9007199254740993.0"),
    *("9007199254740993", "9007199254740992.5", "1.00000000000000011102230246251565", "5.00", "5e0", "50e-1"),
    *("4888346891131452321e-19", "8502838348080404285e-19", "0.1940071283736367197"),  # just above half of the last bit
    *(str(2**63 - 1), str(2**63), str(-(2**63)), str(-(2**63) - 1), str(2**64 - 1), str(2**64), "127", "128", "-129"),
    *("99999999.99", "99999999.990", "100000000", "100000000.00", "100000000.0000", "-99999999.99", "-100000000.0000"),
    *(f"0.{'0' * 30}1", f"1{'0' * 30}", f"1{'0' * 30}.0", f"0.{'3' * 40}", "12.340000000000", "12.345"),
)
OFFSETS: Final = (
    "",
    "Z",
    "z",
    "+01:00",
    "-09:30",
    "+0100",
    "+01",
    "+23:59",
    "-23:59",
    "+24:00",
    "+14:60",
    "-00:00",
    " Z",
)
FRACTIONS: Final = ("", ".", ".5", ".123", ".123456", ".1234567", ".999999999", ".9999995", ".9999994", ".000001")
STRANGERS: Final = ("z", "unknown", "é", "i2", "k\udcff", "")
SYNTAX: Final = b'{}[]",:\\0123456789.eE-+ntfuTZ/ \x00\x7f\xc3\xa9\xff'
BITS: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


class JsonTexts:
    """Draws records. `oddity` is the share of values that are not what producers write, and mostly bad."""

    def __init__(
        self, rnd: random.Random, oddity: float = 0.0, *, spaced: bool = False, strangers: bool = True
    ) -> None:
        self._rnd = rnd
        self._oddity = oddity
        self._spaced = spaced
        self._unauthenticated = strangers

    def record(self, fields: Iterable[tuple[str, DataType]]) -> bytes:
        """One record, with some of its fields missing, some in another order, and some that are not declared."""
        return f"{self._space()}{self._object(fields)}{self._space()}".encode("utf-8", "surrogateescape")

    def value(self, kind: DataType) -> str:
        """A text that stands for a value of a type, or should."""
        if self._rnd.random() < self._oddity:
            return self._any(2) if self._rnd.random() < 0.1 else self._odd(kind)
        return "null" if self._rnd.random() < 0.06 else self._good(kind)

    def _space(self) -> str:
        return self._rnd.choice((" ", "\n", "\t", "\r", " \n ")) if self._spaced and self._rnd.random() < 0.1 else ""

    def _join(self, parts: Iterable[str], around: str) -> str:
        inner = f"{self._space()},{self._space()}".join(parts)
        return f"{around[0]}{self._space()}{inner}{self._space()}{around[1]}"

    def _object(self, fields: Iterable[tuple[str, DataType]]) -> str:
        rnd, chosen = self._rnd, list(fields)
        if rnd.random() < 0.2:
            rnd.shuffle(chosen)
        if rnd.random() < 0.2:
            chosen = [one for one in chosen if rnd.random() < 0.7]
        members: list[tuple[str, str]] = []
        for name, kind in chosen:
            if self._unauthenticated and rnd.random() < 0.08:
                members.append(self._stranger())
            escaped = rnd.random() < 0.02
            members.append((f"\\u{ord(name[0]):04x}{name[1:]}" if escaped else name, self.value(kind)))
        if members and rnd.random() < self._oddity / 5:
            members.append(rnd.choice(members))
        return self._join((f'"{name}"{self._space()}:{self._space()}{value}' for name, value in members), "{}")

    def _map(self, kind: DataType) -> str:
        """Keys are different, or a few of some letters, which may be equal."""
        assert kind.element is not None
        rnd = self._rnd
        short = rnd.random() < self._oddity * 3
        prefix = rnd.choice(("", self._letters(6)))
        keys = [self._letters(2) if short else f"{prefix}{place}" for place in range(rnd.choice((0, 1, 3, 10)))]
        return self._join((f'"{key}"{self._space()}:{self._space()}{self.value(kind.element)}' for key in keys), "{}")

    def _stranger(self) -> tuple[str, str]:
        name = self._letters(3) if self._rnd.random() < self._oddity else self._rnd.choice(STRANGERS)
        name = name or str(self._rnd.randrange(200))
        if self._rnd.random() < self._oddity:
            return name, self._any(2)
        plain = ("1", "null", "true", "-1.5e-3", "[]", '"x\\n\\u00e9é"', '"\udcff"', '{"a":[1,{}],"b":[null,"c"]}')
        return name, self._rnd.choice(plain)

    def _letters(self, most: int, *, bad: bool = False) -> str:
        letters = [self._rnd.choice(LETTERS) for _ in range(self._rnd.randrange(most + 1))]
        if bad:
            letters.insert(self._rnd.randrange(len(letters) + 1), self._rnd.choice(BAD_LETTERS))
        return "".join(letters)

    def _any(self, depth: int) -> str:
        """A value of no type in particular."""
        match self._rnd.randrange(6 if depth else 4):
            case 0:
                return self._number()
            case 1:
                return f'"{self._letters(8, bad=self._rnd.random() < 0.2)}"'
            case 2:
                return self._rnd.choice(("true", "false", "null", "nul", "True", "tru", "fals", "nulls", ""))
            case 3:
                return f'"{self._odd_moment()}"'
            case 4:
                return self._join((self._any(depth - 1) for _ in range(self._rnd.randrange(4))), "[]")
            case _:
                names = (self._letters(4, bad=self._rnd.random() < 0.1) for _ in range(self._rnd.randrange(4)))
                return self._join((f'"{name}":{self._any(depth - 1)}' for name in names), "{}")

    def _good(self, kind: DataType) -> str:
        rnd = self._rnd
        match kind.kind:
            case "array":
                assert kind.element is not None
                return self._join((self.value(kind.element) for _ in range(rnd.choice((0, 1, 2, 3, 20)))), "[]")
            case "map":
                return self._map(kind)
            case "struct":
                return self._object(kind.fields)
            case "boolean":
                return rnd.choice(("true", "false"))
            case "float" | "double":
                return self._double(narrow=kind.kind == "float")
            case "decimal":
                return self._decimal(kind)
            case "string":
                return f'"{self._letters(rnd.choice((0, 3, 8, 30)))}"'
            case "binary":
                return f'"{base64.b64encode(rnd.randbytes(rnd.randrange(40))).decode()}"'
            case "date":
                return f'"{self._day(1, 9999)}"'
            case "timestamp" | "timestamp_ntz":
                return f'"{self._moment(zoned=kind.kind == "timestamp")}"'
            case _:
                most = 2 ** BITS[kind.kind]
                return str(rnd.choice((0, -most, most - 1, rnd.randrange(-most, most), rnd.randrange(-100, 100))))

    def _double(self, *, narrow: bool) -> str:
        rnd = self._rnd
        most = 30 if narrow else 290
        wide: float = struct.unpack("<d", struct.pack("<Q", rnd.getrandbits(64)))[0]
        draws: tuple[Callable[[], str], ...] = (
            lambda: repr(rnd.random()),
            lambda: repr(rnd.uniform(-1e6, 1e6)),
            lambda: f"{rnd.randrange(10**8)}.{rnd.randrange(100):02d}",
            lambda: str(rnd.randrange(-(10**9), 10**9)),
            lambda: f"{rnd.randrange(10 ** rnd.randrange(1, 19))}e{rnd.randrange(-30, 18)}",
            lambda: f"{rnd.uniform(-1, 1):.17g}",
            lambda: f"{rnd.random() * 10.0 ** rnd.randrange(-most, most):.{rnd.randrange(25)}e}",
            lambda: _halfway(rnd),
            lambda: repr(wide) if 1e-300 < abs(wide) < (1e38 if narrow else math.inf) else "1.5",
        )
        return rnd.choice(draws)()

    def _decimal(self, kind: DataType) -> str:
        rnd = self._rnd
        digits = rnd.randrange(1, kind.precision + 1)
        text = f"{decimal_of_units(rnd.randrange(1 - 10**digits, 10**digits), kind.scale):f}"
        if "." in text and digits < MAX_PRECISION - 2:
            text = rnd.choice((text, text, f"{text}00", text.rstrip("0").rstrip(".")))
        return rnd.choice((text, text, f'"{text}"'))

    def _day(self, first: int, last: int) -> str:
        near = self._rnd.random() < 0.7
        year = self._rnd.randrange(1950, 2050) if near else self._rnd.randrange(first, last + 1)
        start = dt.date(year, 1, 1).toordinal()
        return dt.date.fromordinal(start + self._rnd.randrange(365)).isoformat()

    def _clock(self) -> str:
        return ":".join(f"{self._rnd.randrange(most):02d}" for most in (24, 60, 60))

    def _moment(self, *, zoned: bool) -> str:
        digits = self._rnd.choice(("", *(one for one in FRACTIONS if one != "."), f".{self._rnd.randrange(10**9)}"))
        offset = self._rnd.choice(("", "Z", "+01:00", "-09:30", "+23:59", "-00:00")) if zoned else ""
        return f"{self._day(2, 9998)}{self._rnd.choice('TTT ')}{self._clock()}{digits}{offset}"

    def _odd_moment(self) -> str:
        rnd = self._rnd
        year = rnd.choice((0, 1, 2, 1900, 1969, 1970, 2000, 2024, 2100, 9998, 9999))
        day = f"{year:04d}-{rnd.randrange(14):02d}-{rnd.choice((0, 1, 28, 29, 30, 31, 32)):02d}"
        clock = ":".join(f"{rnd.randrange(most):02d}" for most in (25, 61, 61))
        whole = f"{day}{rnd.choice('TTt _')}{clock}{rnd.choice(FRACTIONS)}{rnd.choice(OFFSETS)}"
        return rnd.choice((whole, day, f"{day}T{clock}", f"{day}T{self._clock()}{rnd.choice(FRACTIONS)}Z", whole[:-1]))

    def _number(self) -> str:
        rnd = self._rnd
        near = rnd.choice((2**7, 2**15, 2**31, 2**53, 2**63, 2**64, 10**18, 10**19, 10**20, 10**37, 10**38))
        draws: tuple[Callable[[], str], ...] = (
            lambda: rnd.choice(NUMBERS),
            lambda: str(rnd.choice((1, -1)) * (near + rnd.randrange(-2, 3))),
            lambda: f"{rnd.randrange(10 ** rnd.randrange(1, 22))}.{rnd.randrange(10 ** rnd.randrange(1, 22))}",
            lambda: f"{rnd.randrange(10 ** rnd.randrange(1, 20))}e{rnd.randrange(-330, 330)}",
            lambda: (
                f"-0.{'0' * rnd.randrange(25)}{rnd.randrange(10**19)}E{rnd.choice(('', '+', '-'))}{rnd.randrange(40)}"
            ),
            lambda: str(rnd.randrange(10 ** rnd.randrange(1, 45))),
        )
        return rnd.choice(draws)()

    def _odd(self, kind: DataType) -> str:
        rnd = self._rnd
        match kind.kind:
            case "string":
                return f'"{self._letters(8, bad=True)}"'
            case "binary":
                text = base64.b64encode(rnd.randbytes(rnd.randrange(1, 20))).decode()
                place = rnd.randrange(len(text))
                letter = rnd.choice(("=", "-", "_", " ", "A", "\\/", "é", ""))
                return f'"{text[:place]}{letter}{text[place + 1 :]}"'
            case "date" | "timestamp" | "timestamp_ntz":
                return f'"{self._odd_moment()}"'
            case "decimal":
                text = f"{rnd.choice(('', '+', '-', ' ', '0'))}{self._number()}{rnd.choice(('', '.', '0', ' '))}"
                return rnd.choice((f'"{text}"', self._number()))
            case "array" | "map" | "struct" | "boolean":
                return self._any(2)
            case _:
                return self._number()


def _halfway(rnd: random.Random) -> str:
    """Between two doubles, with all its digits or some: what is rounded wrongly first."""
    middle = Fraction(2 * rnd.randrange(2**52, 2**53) + 1) * Fraction(2) ** rnd.randrange(-54, 11)
    digits = f"{middle.numerator * 10**54 // middle.denominator:055d}"
    text = f"{digits[:-54]}.{digits[-54:]}"
    return rnd.choice((text, text.rstrip("0").rstrip("."), text[: rnd.randrange(18, 24)].rstrip(".")))


def damaged(rnd: random.Random, value: bytes) -> bytes:
    """A record with some bytes changed, left out, repeated or put in, or cut off."""
    text = bytearray(value)
    for _ in range(rnd.choice((1, 1, 2, 3))):
        place, other = rnd.randrange(len(text) + 1), rnd.randrange(len(text) + 1)
        match rnd.randrange(6):
            case 0:
                text[place : place + 1] = rnd.randbytes(1)
            case 1:
                text[place : place + 1] = bytes([rnd.choice(SYNTAX)])
            case 2:
                del text[place : place + rnd.randrange(1, 6)]
            case 3:
                text[place:place] = bytes(rnd.choice(SYNTAX) for _ in range(rnd.randrange(1, 4)))
            case 4:
                text[place:place] = text[other : other + rnd.randrange(1, 20)]
            case _:
                del text[place:]
    return bytes(text)
