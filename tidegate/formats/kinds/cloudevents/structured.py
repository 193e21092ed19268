"""Structured mode: a JSON object of attributes and data, taken apart into texts and bytes as in binary mode."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tidegate.datatypes import STRING, Schema
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.cloudevents.attributes import CORE, is_json
from tidegate.formats.kinds.json.reader import explain_failure

_TRUTHS: Final = {True: "true", False: "false"}
_TEXT: Final = msgspec.json.Decoder(str).decode


class Parsed(msgspec.Struct, frozen=True):
    """The parts of one event."""

    attributes: Sequence[str | None]
    """The texts of the attributes, in the order of their names."""
    data: bytes | None
    """None if the event has no data."""


class StructuredParser:
    """Takes events apart."""

    def __init__(self, attributes: Schema, *, reads_data: bool) -> None:
        """`attributes` are the names and types of those that are read; without `reads_data` data is skipped."""
        extension = str | int | bool
        members: list[tuple[str, Any, Any]] = [
            (f"f{index}", (str if (kind == STRING and name in CORE) or name == "time" else extension) | None, None)
            for index, (name, kind) in enumerate(attributes.items())
        ]
        names = {f"f{index}": name for index, name in enumerate(attributes)}
        members += [
            ("data", msgspec.Raw if reads_data else Any, msgspec.UNSET),
            ("data_base64", str | None, None),
        ]
        event = msgspec.defstruct("Event", members, rename=names, gc=False)
        self._decode = msgspec.json.Decoder(event).decode
        self._plain = [name in CORE for name in attributes]
        self._content_type = list(attributes).index("datacontenttype")
        self._reads_data = reads_data

    def parse(self, row: int, value: bytes | None) -> Parsed | RecordFailure:
        """Takes one event apart. Never raises for what it contains."""
        try:
            event = self._decode(value or b"")
        except (ValueError, TypeError, RecursionError) as error:
            return explain_failure(row, value, error)
        *found, data, data_base64 = msgspec.structs.astuple(event)
        texts = [
            one if plain or one is None or one.__class__ is str else _canonical(one)
            for one, plain in zip(found, self._plain, strict=True)
        ]
        if data_base64 is not None and data is not msgspec.UNSET:
            return RecordFailure(row, FailureKind.INVALID_EVENT, "it has both `data` and `data_base64`")
        if not self._reads_data:
            return Parsed(texts, None)
        try:
            return Parsed(texts, _data_of(data, data_base64, texts[self._content_type]))
        except ValueError as error:
            return RecordFailure(row, FailureKind.INVALID_EVENT, str(error))


def _canonical(value: Any) -> str:
    return _TRUTHS[value] if isinstance(value, bool) else str(value)


def _data_of(data: Any, data_base64: str | None, content_type: str | None) -> bytes | None:
    """Returns what would be the value in binary mode. Raises ValueError."""
    if data_base64 is not None:
        try:
            return base64.b64decode(data_base64, validate=True)
        except ValueError:
            raise ValueError("`data_base64` is not base64") from None
    if data is msgspec.UNSET:
        return None
    raw = bytes(data)
    if content_type is None or is_json(content_type):
        return raw
    try:
        return _TEXT(raw).encode()
    except UnicodeDecodeError:
        raise ValueError("`data` is not UTF-8") from None
    except msgspec.DecodeError:
        raise ValueError(f"`data` is no string, and the `datacontenttype` is {content_type[:60]}, not JSON") from None
