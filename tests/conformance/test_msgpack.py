"""msgpack-test-suite and the decoder of MessagePack: every encoding of a value, as a column and as an unknown field."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.formats.batches import messages_of
from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, DOUBLE, STRING, TIMESTAMP, DataType, map_of
from tidegate.formats.columns import plain_values
from tidegate.formats.contract import Decoded
from tidegate.formats.kinds.msgpack import FORMAT
from tidegate.formats.plain import render_json
from tidegate.formats.schemas import FormatOptions, KnownSchemas, UnknownFields

LINES: Final = Path(__file__).with_name("msgpack").joinpath("cases.jsonl").read_text().splitlines()
CASES: Final = [tuple(json.loads(line)) for line in LINES]
KEEP: Final = FormatOptions(unknown_fields=UnknownFields.KEEP, rest="rest")
TEXTS: Final = DataType("array", element=STRING)
MAPS: Final[dict[str, DataType]] = {
    "array": DataType("array", element=BIGINT),
    "map": map_of(STRING, BIGINT),
}
LAST_BIGINT: Final = 2**63 - 1
YEAR_ZERO: Final = [-62167219200, 0]
"""The only value that no column holds: timestamps begin with the year 1."""


def expected(case: dict[str, Any]) -> tuple[DataType, Any] | None:
    """A type of a column, and the plain value that it has; None if a field of this kind has no type."""
    (name, value), *others = case.items()
    match name:
        case "nil":
            return BIGINT, None
        case "bool":
            return BOOLEAN, value
        case "binary":
            return BINARY, bytes.fromhex(value.replace("-", ""))
        case "string":
            return STRING, value
        case "number" | "bignum":
            return DOUBLE, float(dict(others).get("bignum", value))
        case "timestamp":
            seconds, nanos = value
            return TIMESTAMP, seconds * 1_000_000 + nanos // 1000
        case "array" | "map" if _is_flat(value):
            kind = TEXTS if name == "array" and value and isinstance(value[0], str) else MAPS[name]
            return kind, tuple(value.items() if name == "map" and isinstance(value, dict) else value)
    return None


def _is_flat(value: list[Any] | dict[str, Any]) -> bool:
    inner = list(value.values()) if isinstance(value, dict) else value
    return all(isinstance(one, int) for one in inner) or (
        isinstance(value, list) and all(isinstance(one, str) for one in inner)
    )


def field(name: str, data: bytes) -> bytes:
    return b"\x81" + bytes([0xA0 | len(name)]) + name.encode() + data


def decode(columns: dict[str, DataType], value: bytes, options: FormatOptions) -> Decoded:
    pairs = tuple(columns.items())
    decoded = FORMAT.decoder(pairs, pairs, options, KnownSchemas()).decode(messages_of([value]))
    assert isinstance(decoded, Decoded)
    return decoded


@pytest.mark.parametrize(("name", "case", "encodings"), CASES)
def test_every_encoding_is_the_value(name: str, case: dict[str, Any], encodings: list[str]) -> None:
    for text in encodings:
        data = bytes.fromhex(text.replace("-", ""))
        found = expected(case)
        if found is not None:
            kind, value = found
            decoded = decode({"v": kind}, field("v", data), FormatOptions())
            if value == YEAR_ZERO[0] * 1_000_000:
                assert [one.kind for one in decoded.failures] == ["OUT_OF_RANGE"]
                continue
            assert not decoded.failures, (name, text, decoded.failures)
            (read,) = plain_values(decoded.frame["v"])
            assert read == value, (name, text)
        kept = decode({"v": BIGINT, "rest": map_of(STRING, STRING)}, field("other", data), KEEP)
        assert not kept.failures, (name, text, kept.failures)
        assert dict(plain_values(kept.frame["rest"])[0]).keys() == {"other"}


@pytest.mark.parametrize("case", [case for _, case, _ in CASES if case.keys() & {"number", "bignum"}], ids=str)
def test_integers_are_read_up_to_the_largest_bigint(case: dict[str, Any]) -> None:
    encodings = next(encodings for _, one, encodings in CASES if one is case)
    value = int(case.get("bignum") or case["number"])
    for text in encodings:
        data = bytes.fromhex(text.replace("-", ""))
        decoded = decode({"v": BIGINT}, field("v", data), FormatOptions())
        is_whole = data[0] not in (0xCA, 0xCB)
        if is_whole and -LAST_BIGINT - 1 <= value <= LAST_BIGINT:
            assert plain_values(decoded.frame["v"]) == [value]
        else:
            assert [one.kind for one in decoded.failures] == ["OUT_OF_RANGE" if is_whole else "WRONG_TYPE"]


@pytest.mark.parametrize("case", [case for _, case, _ in CASES if "ext" in case], ids=str)
def test_other_extensions_are_kept_only(case: dict[str, Any]) -> None:
    encodings = next(encodings for _, one, encodings in CASES if one is case)
    code, text = case["ext"]
    for encoding in encodings:
        data = bytes.fromhex(encoding.replace("-", ""))
        for kind in (STRING, BINARY, TIMESTAMP, BIGINT):
            assert [one.kind for one in decode({"v": kind}, field("v", data), FormatOptions()).failures] == [
                "WRONG_TYPE"
            ]
        kept = decode({"v": BIGINT, "rest": map_of(STRING, STRING)}, field("other", data), KEEP)
        body = base64.b64encode(bytes.fromhex(text.replace("-", ""))).decode()
        assert dict(plain_values(kept.frame["rest"])[0]) == {"other": render_json({"ext": code, "data": body})}
