"""A record of Avro with a field of every type, and what may be in it; and records that are damaged."""

from __future__ import annotations

import random
from typing import Any

from tests.formats.avro.any_avro import record_of

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "LONGER_THAN_A_VIEW_HOLDS", "C"]}
INNER = record_of(("x", "long"), ("y", ["null", "string"]), name="Inner")
ORDINARY = record_of(
    ("flag", "boolean"),
    ("small", "int"),
    ("large", "long"),
    ("narrow", "float"),
    ("wide", ["null", "double"]),
    ("text", "string"),
    ("data", ["bytes", "null"]),
    ("fixed", {"type": "fixed", "name": "F", "size": 20}),
    ("symbol", ENUM),
    ("day", {"type": "int", "logicalType": "date"}),
    ("clock", {"type": "long", "logicalType": "time-micros"}),
    ("at_ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("at_us", ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]),
    ("at_ns", {"type": "long", "logicalType": "timestamp-nanos"}),
    ("money", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}),
    ("price", {"type": "fixed", "name": "P", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 4}),
    ("id", {"type": "string", "logicalType": "uuid"}),
    ("list", {"type": "array", "items": ["null", INNER]}),
    ("map", {"type": "map", "values": "Inner"}),
    ("choice", ["null", "string", "long", "Inner"]),
)
READ = tuple(field["name"] for field in ORDINARY["fields"] if field["name"] != "choice")


def ordinary(rnd: random.Random) -> dict[str, Any]:
    """A record as it is on the wire."""

    def text() -> str:
        return "".join(rnd.choices('ab \n"é水🜁\0', k=rnd.choice((0, 3, 12, 13, 40))))

    def inner() -> dict[str, Any]:
        return {"x": rnd.choice((0, -1, 63, 64, 2**63 - 1, -(2**63))), "y": rnd.choice((None, text()))}

    def units(digits: int, size: int | None = None) -> bytes:
        value = rnd.choice((0, 1, -1, 127, 128, -128, -129, 10**digits - 1, 1 - 10**digits))
        return value.to_bytes(size or (value.bit_length() + 8) >> 3, "big", signed=True)

    return {
        "flag": rnd.random() < 0.5,
        "small": rnd.choice((0, -1, 2**31 - 1, -(2**31))),
        "large": rnd.choice((0, -1, 2**63 - 1, -(2**63))),
        "narrow": rnd.choice((0.0, -0.0, 1.5, float("inf"))),
        "wide": rnd.choice((None, -0.0, 0.1, 5e-324)),
        "text": text(),
        "data": rnd.choice((None, b"", rnd.randbytes(40))),
        "fixed": rnd.randbytes(20),
        "symbol": rnd.choice(ENUM["symbols"]),
        "day": rnd.choice((0, -719_162, 2_932_896)),
        "clock": rnd.choice((0, 86_399_999_999)),
        "at_ms": rnd.choice((0, -1, -62_135_596_800_000, 253_402_300_799_999)),
        "at_us": rnd.choice((None, -1, 253_402_300_799_999_999)),
        "at_ns": rnd.choice((0, -1, -1_001, 1_999)),
        "money": units(38),
        "price": units(20, 9),
        "id": "0f0e0d0c-0b0a-0908-0706-050403020100",
        "list": rnd.choices((None, inner()), k=rnd.choice((0, 1, 5))),
        "map": {text(): inner() for _ in range(rnd.choice((0, 2)))},
        "choice": rnd.choice((None, text(), 7, inner())),
    }


def raw_of(schema: dict[str, Any]) -> dict[str, Any]:
    """Without logical types."""
    plain = {key: value for key, value in schema.items() if key != "logicalType"}
    for key, value in plain.items():
        if isinstance(value, dict):
            plain[key] = raw_of(value)
        elif isinstance(value, list):
            plain[key] = [raw_of(one) if isinstance(one, dict) else one for one in value]
    return plain


def damaged(rnd: random.Random, message: bytes) -> bytes:
    """Cut off, longer, or with another byte."""
    match rnd.randrange(4):
        case 0:
            return message[: rnd.randrange(len(message) + 1)]
        case 1:
            return message + bytes([rnd.choice((0, 1, 2, 0x80, 0xFF))])
        case _:
            made, place = bytearray(message), rnd.randrange(len(message))
            made[place] = rnd.choice((0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF, rnd.randrange(256)))
            return bytes(made)
