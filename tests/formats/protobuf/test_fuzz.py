"""Schemas and messages at random, whole and damaged: as google's library reads them, and there and back again.

The reference takes messages apart by the library's own reflection, field by field.
"""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any, Final

import pytest
from google.protobuf.message import DecodeError

from tests.formats.protobuf.any_protobuf import PREFIX, decoder_of, file_of, text_of, type_of
from tidegate.formats.contract import Decoded
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.protobuf import FORMAT
from tidegate.formats.kinds.protobuf.encoder import ProtobufEncoder
from tidegate.formats.schemas import FormatOptions

SEEDS: Final = range(24)
ROWS: Final = 60
DAMAGED: Final = 400
SCALARS: Final = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes", "uint32"),
    *("sfixed32", "sfixed64", "sint32", "sint64", "enum:t.Kind"),
)
KEYS: Final = ("string", "int32", "uint64", "bool", "sfixed32")
OWN: Final = tuple(f"google.protobuf.{name}" for name in ("Timestamp", "Duration", "StringValue", "Int64Value"))
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def any_file(rnd: random.Random) -> Any:
    """Three messages, of which the first may have the others."""
    syntax = rnd.choice(["proto2", "proto3", "proto3"])
    messages = {}
    for name, others in (("A", ["t.B", "t.C"]), ("B", ["t.C"]), ("C", [])):
        fields = []
        for place in range(rnd.randrange(1, 6)):
            kind: Any = rnd.choice([*rnd.sample(SCALARS, 4), *others, *others, rnd.choice(OWN)])
            flag = rnd.choice(["optional", "repeated", "oneof:one", ""])
            if rnd.random() < 0.2:
                kind, flag = (rnd.choice(KEYS), kind), ""
            fields.append((f"f{place}", kind, flag, rnd.randrange(1, 4) + place * 5))
        messages[name] = fields
    imports = [f"google/protobuf/{name}.proto" for name in ("timestamp", "duration", "wrappers")]
    return file_of(messages, syntax=syntax, enums={"Kind": {"NEW": 0, "OLD": 1, "X": -5}}, imports=imports)


def fill(rnd: random.Random, message: Any) -> Any:
    """Sets some fields to values that they may have."""
    for field in message.DESCRIPTOR.fields:
        if rnd.random() < 0.2:
            continue
        below = field.message_type
        if below is not None and below.GetOptions().map_entry:
            key, value = (below.fields_by_name[name] for name in ("key", "value"))
            target = getattr(message, field.name)
            for _ in range(rnd.randrange(4)):
                if value.message_type is None:
                    target[scalar(rnd, key)] = scalar(rnd, value)
                else:
                    fill(rnd, target[scalar(rnd, key)])
        elif below is not None:
            targets = [getattr(message, field.name)]
            if field.is_repeated:
                targets = [targets[0].add() for _ in range(rnd.randrange(3))]
            for target in targets:
                fill(rnd, target)
                if not field.is_repeated:
                    target.SetInParent()
        elif field.is_repeated:
            getattr(message, field.name).extend(scalar(rnd, field) for _ in range(rnd.randrange(4)))
        else:
            setattr(message, field.name, scalar(rnd, field))
    return message


def scalar(rnd: random.Random, field: Any) -> Any:
    owner = field.containing_type.full_name
    if owner in OWN[:2]:
        return rnd.randrange(10**9)
    match field.cpp_type:
        case field.CPPTYPE_INT32:
            return rnd.choice([0, -1, 2**31 - 1, -(2**31), rnd.randrange(1000)])
        case field.CPPTYPE_INT64:
            return rnd.choice([0, -1, 2**63 - 1, -(2**63), rnd.randrange(1000)])
        case field.CPPTYPE_UINT32:
            return rnd.choice([0, 2**32 - 1, rnd.randrange(1000)])
        case field.CPPTYPE_UINT64:
            return rnd.choice([0, 2**64 - 1, rnd.randrange(1000)])
        case field.CPPTYPE_DOUBLE | field.CPPTYPE_FLOAT:
            return rnd.choice([0.0, -0.0, 0.5, -1e30, float("inf"), rnd.randrange(1000) / 8])
        case field.CPPTYPE_BOOL:
            return rnd.random() < 0.5
        case field.CPPTYPE_ENUM:
            return rnd.choice([0, 1, -5] if field.enum_type.is_closed else [0, 1, -5, 99])
    if field.type == field.TYPE_STRING:
        return rnd.choice(["", "a", "é" * rnd.randrange(5)])
    return rnd.randbytes(rnd.randrange(4))


# -- the reference -----------------------------------------------------------------------------------------------------


class NoRow(Exception):
    """A value that no column holds."""


def row_of(message: Any) -> dict[str, Any]:
    """Raises NoRow."""
    return {field.name: field_of(message, field) for field in message.DESCRIPTOR.fields}


def field_of(message: Any, field: Any) -> Any:
    value, below = getattr(message, field.name), field.message_type
    if below is not None and below.GetOptions().map_entry:
        key, inner = (below.fields_by_name[name] for name in ("key", "value"))
        return [{"key": one_of(name, key), "value": one_of(value[name], inner)} for name in sorted(value)]
    if field.is_repeated:
        return [one_of(each, field) for each in value]
    if field.has_presence and not message.HasField(field.name) and not field.is_required:
        return one_of(value, field) if field.has_default_value else None
    return one_of(value, field)


def one_of(value: Any, field: Any) -> Any:
    if field.enum_type is not None:
        known = [one.name for one in field.enum_type.values if one.number == value]
        return known[0] if known else str(value)
    if isinstance(value, bytes) and field.type == field.TYPE_STRING:
        raise NoRow
    if field.cpp_type == field.CPPTYPE_UINT64:
        return Decimal(value)
    if field.message_type is None:
        return value
    if field.message_type.full_name not in OWN:
        return row_of(value)
    if hasattr(value, "value"):
        return value.value
    if field.message_type.full_name == OWN[0]:
        if not -62_135_596_800 <= value.seconds <= 253_402_300_799 or not 0 <= value.nanos < 10**9:
            raise NoRow
        return EPOCH + dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if abs(value.seconds) > 315_576_000_000 or abs(value.nanos) >= 10**9 or value.seconds * value.nanos < 0:
        raise NoRow
    return value.seconds * 10**6 + int(value.nanos / 1000)


def reference(made: Any, body: bytes) -> dict[str, Any] | None:
    """Of the class of a message. None: it is refused."""
    try:
        return row_of(made.FromString(body))
    except (DecodeError, NoRow):
        return None


# -- the tests ---------------------------------------------------------------------------------------------------------


def messages_of(file: Any, rnd: random.Random) -> list[bytes]:
    made = type_of(file).made
    return [fill(rnd, made()).SerializeToString() for _ in range(ROWS)]


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_are_rows_as_the_library_has_them_and_the_same_messages_again(seed: int) -> None:
    rnd = random.Random(seed)
    file = any_file(rnd)
    bodies = messages_of(file, rnd)
    decoded = decoder_of(file).decode_values([PREFIX + body for body in bodies])
    assert isinstance(decoded, Decoded)
    assert list(decoded.failures) == []
    assert decoded.frame.rows(named=True) == [reference(type_of(file).made, body) for body in bodies]
    columns = tuple(FORMAT.schema_columns(text_of(file)).items())
    encoded = ProtobufEncoder(columns, FormatOptions(text_of(file))).encode(decoded.frame)
    assert list(encoded.failures) == []
    again = decoder_of(file).decode_values(encoded.columns["value"].to_list())
    assert isinstance(again, Decoded)
    assert again.frame.equals(decoded.frame)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_accepted_that_the_library_refuses_and_neighbours_are_unharmed(seed: int) -> None:
    rnd = random.Random(seed)
    file = any_file(rnd)
    whole = messages_of(file, rnd)
    bodies = [
        damage(rnd.choice(whole), whole, rnd) if rnd.random() < 0.5 else rnd.choice(whole) for _ in range(DAMAGED)
    ]
    decoded = decoder_of(file).decode_values([PREFIX + body for body in bodies])
    assert isinstance(decoded, Decoded)
    made = type_of(file).made
    expected = [reference(made, body) for body in bodies]
    assert [one.row for one in decoded.failures] == [row for row, one in enumerate(expected) if one is None]
    kinds = {FailureKind.MALFORMED_PROTOBUF, FailureKind.OUT_OF_RANGE, FailureKind.NOT_UTF8}
    assert {one.kind for one in decoded.failures} <= kinds
    good = [one for one in expected if one is not None]
    assert comparable(decoded.frame.rows(named=True)) == comparable(good)


def comparable(value: Any) -> Any:
    """NaN is no equal of itself."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return [comparable(one) for one in value]
    return {name: comparable(one) for name, one in value.items()} if isinstance(value, dict) else value


def damage(body: bytes, others: list[bytes], rnd: random.Random) -> bytes:
    if not body:
        return rnd.randbytes(rnd.randrange(1, 6))
    place = rnd.randrange(len(body))
    match rnd.randrange(5):
        case 0:
            return body[:place] + bytes([body[place] ^ 1 << rnd.randrange(8)]) + body[place + 1 :]
        case 1:
            return body[:place]
        case 2:
            return body + rnd.choice(others)[: rnd.randrange(1, 9)]
        case 3:
            return body[:place] + rnd.randbytes(rnd.randrange(1, 4)) + body[place:]
        case _:
            return body[:place] + body[place + 1 :]
