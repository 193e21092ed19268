"""Records in MessagePack for a schema: as producers write them, odd ones, and damaged ones."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import Any, Final

import msgpack

from tidegate.datatypes import DataType, decimal_of_units

TEXTS: Final = ("", "a", "é" * 20, "x" * 300, "2026-01-31", "2026-01-31T12:00:00.5Z", "2026-01-31T12:00:00", "5.00")
BITS: Final = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
STRANGERS: Final = ("z", "unknown", "é", "x" * 40, "y" * 300)
ODD: Final = (
    *(b"\xc0", b"\xc1", b"\xc2", b"\x05", b"\xff", b"\xcf" + b"\xff" * 8, b"\xcc\x05", b"\xd3" + b"\0" * 8),
    b"\xd1\xff",
    *(b"\xca\x3f\x80\0\0", b"\xca\x7f\xc0\0\0", b"\xcb" + struct.pack(">d", 3.4028235677973366e38)),
    *(b"\xcb\xff\xf0" + b"\0" * 6, b"\xcb\x7f\xf8" + b"\0" * 6, b"\xcb\x80" + b"\0" * 7),
    *(b"\xa1\xff", b"\xd9\x01a", b"\xda\0\x01a", b"\xdb\0\0\0\x01a", b"\xc4\x01a", b"\xc5\0\x01a", b"\xc6\0\0\0\x01a"),
    *(b"\xd6\xff\0\0\0\x01", b"\xd7\xff\xff\xff\xff\xff\0\0\0\x01", b"\xd7\xff\0\0\x1f\x3c\0\0\0\x01", b"\xd4\x05a"),
    *(b"\xc7\x04\xff\0\0\0\x01", b"\xc7\x0c\xff" + b"\0" * 12, b"\xc7\x0c\xff" + b"\0" * 4 + b"\x80" + b"\0" * 7),
    *(b"\xc7\x0c\xff" + struct.pack(">Iq", 999_999_999, 253402300799), b"\xc8\0\x04\xff\0\0\0\x01", b"\xd5\xffab"),
    *(b"\xc7\x0c\xff" + struct.pack(">Iq", 5, -62135596801), b"\xc7\x0c\xff" + struct.pack(">Iq", 999, -62135596800)),
    *(b"\x90", b"\xdc\0\x01\x05", b"\xdd\xff\xff\xff\xff", b"\x80", b"\xde\0\x01\xa1a\x05", b"\xdf\0\0\0\0"),
    *(b"\x81\x05\x05", b"\x82\xa1a\x05\xa1a\x06", b"\x81\xc0\x05", b"\x81\xd9\x01a\x05", b"\x91" * 70 + b"\x90"),
    *(msgpack.packb(one) for one in TEXTS),
    *(msgpack.packb(one.encode()) for one in TEXTS[:4]),
)  # fmt: skip
"""Values of no type in particular, or encoded in an unusual way."""


class MsgpackRecords:
    """Draws records. `oddity` is the share of values that are not what producers write, and mostly bad."""

    def __init__(self, rnd: random.Random, oddity: float = 0.0, *, strangers: bool = True) -> None:
        self._rnd = rnd
        self._oddity = oddity
        self._strangers = strangers

    def record(self, fields: Iterable[tuple[str, DataType]]) -> bytes:
        """One record, with some of its fields missing, some in another order, and some that are not declared."""
        rnd, chosen = self._rnd, list(fields)
        if rnd.random() < 0.2:
            rnd.shuffle(chosen)
        if rnd.random() < 0.2:
            chosen = [one for one in chosen if rnd.random() < 0.7]
        members = [(msgpack.packb(name), self.value(kind)) for name, kind in chosen]
        if self._strangers and rnd.random() < 0.3:
            name = rnd.choice(STRANGERS)
            members.insert(rnd.randrange(len(members) + 1), (msgpack.packb(name), rnd.choice((b"\x05", b"\x91\x80"))))
        if rnd.random() < self._oddity:
            members.append((rnd.choice((b"\xd9\x01z", b"\xa1\xff", b"\x05")), rnd.choice(ODD)))
        return self._map(members)

    def value(self, kind: DataType) -> bytes:
        """The bytes of a value of a type, or what should be one."""
        rnd = self._rnd
        if rnd.random() < self._oddity:
            return bytes(rnd.choice(ODD))
        if rnd.random() < 0.06:
            return b"\xc0"
        count = rnd.choice((0, 1, 2, 3, 20))
        match kind.kind:
            case "array":
                assert kind.element is not None
                head = bytes([0x90 | count]) if count < 16 else struct.pack(">BH", 0xDC, count)
                return head + b"".join(self.value(kind.element) for _ in range(count))
            case "map":
                assert kind.element is not None
                short = rnd.random() < self._oddity * 3
                keys = [msgpack.packb("k" if short else f"k{place}") for place in range(count)]
                return self._map([(key, self.value(kind.element)) for key in keys])
            case "struct":
                return self.record(kind.fields)
        return self._scalar(kind)

    @staticmethod
    def _map(members: list[tuple[bytes, bytes]]) -> bytes:
        count = len(members)
        head = bytes([0x80 | count]) if count < 16 else struct.pack(">BH", 0xDE, count)
        return head + b"".join(map(b"".join, members))

    def _scalar(self, kind: DataType) -> bytes:
        rnd = self._rnd
        narrow = kind.kind == "float" and rnd.random() < 0.3
        return bytes(msgpack.packb(self._plain(kind), use_single_float=narrow))

    def _plain(self, kind: DataType) -> Any:
        rnd = self._rnd
        match kind.kind:
            case "boolean":
                return rnd.random() < 0.5
            case "float":
                return rnd.choice((rnd.uniform(-1e30, 1e30), 5, -0.0))
            case "double":
                return rnd.choice((rnd.uniform(-1e6, 1e6), rnd.random() * 1e300, 2**62 - 1, -5))
            case "string":
                return "".join(rnd.choice("aé中😀") for _ in range(rnd.choice((0, 3, 12, 40))))
            case "binary":
                return rnd.randbytes(rnd.choice((0, 3, 12, 40, 300)))
            case "date":
                return f"{rnd.randrange(1, 10000):04d}-{rnd.randrange(1, 13):02d}-{rnd.randrange(1, 29):02d}"
            case "timestamp":
                seconds = rnd.choice((rnd.randrange(2**31), rnd.randrange(2**35), -rnd.randrange(2**35)))
                return msgpack.Timestamp(seconds, rnd.choice((0, 1999, 500_000_000, rnd.randrange(10**9))))
            case "timestamp_ntz":
                return f"{rnd.randrange(2, 9999):04d}-01-31T23:59:59.{rnd.randrange(10**6):06d}"
            case "decimal":
                return f"{decimal_of_units(rnd.randrange(10 ** rnd.randrange(1, kind.precision + 1)), kind.scale):f}"
        most = 2 ** BITS[kind.kind]
        return rnd.choice((0, -most, most - 1, rnd.randrange(-most, most), rnd.randrange(-100, 100)))


def damaged(rnd: random.Random, value: bytes) -> bytes:
    """A record with some bytes changed, left out, repeated or put in, or cut off."""
    found = bytearray(value)
    for _ in range(rnd.choice((1, 1, 2))):
        place, other = rnd.randrange(len(found) + 1), rnd.randrange(len(found) + 1)
        match rnd.randrange(5):
            case 0:
                found[place : place + 1] = rnd.randbytes(1)
            case 1:
                found[place : place + 1] = rnd.choice(ODD)
            case 2:
                del found[place : place + rnd.randrange(1, 6)]
            case 3:
                found[place:place] = found[other : other + rnd.randrange(1, 20)]
            case _:
                del found[place:]
    return bytes(found)
