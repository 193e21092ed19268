"""Messages that are damaged: nothing is accepted that fastavro refuses, and the records next to them are unharmed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.depth import DEPTH
from tests.formats.avro.any_avro import Refused, decoder_of, encode, record_of, reference
from tidegate.formats.contract import Decoded

ADDRESS = record_of(("street", "string"), ("zip", ["null", "int"]), name="Address")
FLAT = record_of(
    ("id", "long"),
    ("customer", "string"),
    ("amount", "double"),
    ("quantity", "int"),
    ("paid", "boolean"),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("country", ["null", "string"]),
    ("note", ["string", "null"]),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}),
)
NESTED = record_of(
    ("id", "long"),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}),
    ("home", ADDRESS),
    ("other", ["null", "Address"]),
    ("tags", {"type": "array", "items": "string"}),
    ("counts", {"type": "map", "values": "long"}),
    ("hash", {"type": "fixed", "name": "Hash", "size": 4}),
    ("day", ["null", {"type": "int", "logicalType": "date"}]),
)
SCHEMAS = {"flat": FLAT, "nested": NESTED}
COUNT = 1_250

Make = Callable[[random.Random], dict[str, Any]]


def flat(rnd: random.Random) -> dict[str, Any]:
    return {
        "id": rnd.randrange(-(2**40), 2**40),
        "customer": f"customer {rnd.randrange(1000)}",
        "amount": rnd.random(),
        "quantity": rnd.randrange(100),
        "paid": rnd.random() < 0.5,
        "at": rnd.randrange(2 * 10**12),
        "country": rnd.choice([None, "DE"]),
        "note": rnd.choice([None, "é" * rnd.randrange(8)]),
        "kind": rnd.choice(["NEW", "OLD"]),
    }


def nested(rnd: random.Random) -> dict[str, Any]:
    address = {"street": "s" * rnd.randrange(5), "zip": rnd.choice([None, 12345])}
    unscaled = rnd.randrange(-(10**12) + 1, 10**12)
    return {
        "id": rnd.randrange(100),
        "price": unscaled.to_bytes(6, "big", signed=True),
        "home": address,
        "other": rnd.choice([None, address]),
        "tags": ["a"] * rnd.randrange(3),
        "counts": {str(key): key for key in range(rnd.randrange(3))},
        "hash": rnd.randbytes(4),
        "day": rnd.choice([None, 20_000]),
    }


MAKERS: dict[str, Make] = {"flat": flat, "nested": nested}


def damage(messages: list[bytes], row: int, rnd: random.Random) -> None:
    """One message, or it and the next."""
    message = messages[row]
    match rnd.randrange(6):
        case 0:
            place = rnd.randrange(len(message))
            messages[row] = message[:place] + bytes([message[place] ^ 1 << rnd.randrange(8)]) + message[place + 1 :]
        case 1:
            messages[row] = message[: rnd.randrange(len(message))]
        case 2:
            messages[row] = message + rnd.randbytes(rnd.randrange(1, 4))
        case 3:
            place = rnd.randrange(5, len(message))
            messages[row] = message[:place] + rnd.randbytes(rnd.randrange(1, 12)) + message[place + rnd.randrange(3) :]
        case 4:  # one is as many bytes short as the next is long
            cut = rnd.randrange(1, 6)
            if row + 1 < len(messages) and len(message) > 5 + cut:
                other = messages[row + 1]
                messages[row], messages[row + 1] = message[:-cut], other[:5] + message[-cut:] + other[5:]
        case 5:
            messages[row] = message[:5] + rnd.randbytes(len(message) - 5)


def without_logical_decimal(schema: Any, message: bytes) -> list[Any] | None:
    try:
        return reference(schema, message)
    except Refused:
        return None


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("seed", range(4 * DEPTH))
@pytest.mark.parametrize("share", [0.02, 1.0])
@pytest.mark.usefixtures("reader_name")
def test_nothing_is_accepted_that_fastavro_refuses(name: str, seed: int, share: float) -> None:
    rnd = random.Random(f"{name} {seed} {share}")
    schema = SCHEMAS[name]
    decoder = decoder_of(schema)
    size = 250 if share < 1 else 50
    accepted = damaged = 0
    for _ in range(COUNT // size):
        raw = {**schema, "fields": [one | {"type": _unlogical(one["type"])} for one in schema["fields"]]}
        messages = [encode(raw, MAKERS[name](rnd)) for _ in range(size)]
        for row in range(size):
            if rnd.random() < share:
                damage(messages, row, rnd)
                damaged += 1
        decoded = decoder.decode_values(messages)
        assert isinstance(decoded, Decoded)
        bad = {failure.row for failure in decoded.failures}
        rows = iter(decoded.frame.rows())
        for row, message in enumerate(messages):
            expected = without_logical_decimal(schema, message)
            if row in bad:
                assert expected is None or _rounded(decoded, row), (message, expected)
            else:
                found = list(next(rows))
                assert expected is not None, (message, found)
                assert list(map(_comparable, found)) == list(map(_comparable, expected)), message
                accepted += 1
        assert next(rows, None) is None
    assert accepted
    assert damaged


def _comparable(value: Any) -> Any:
    return repr(value) if isinstance(value, float) else value  # NaN is like itself


def _rounded(decoded: Decoded, row: int) -> bool:
    """fastavro rounds decimals, and takes ints that are none."""
    return any(one.row == row and one.kind == "OUT_OF_RANGE" for one in decoded.failures)


def _unlogical(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_unlogical(one) for one in kind]
    if isinstance(kind, dict) and "logicalType" in kind:
        return kind["type"]
    return kind
