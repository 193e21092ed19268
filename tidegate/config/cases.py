"""`tests:` of a pipeline file: the declared cases for `tidegate test`. The code that runs them is in `testing/`."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from typing import Annotated, Any, ClassVar, Final

from pydantic import Discriminator, Field, SecretStr, Tag

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import (
    StepName,
    Topic,
    ValueCheck,
    derive_timestamp,
    describe_value,
    duration,
    integer,
    refusal,
    require_text,
)

PARTITION_MAX: Final = 9_999
NOW: Final = "2026-01-01T00:00:00Z"
"""The time at the beginning of a case that does not set `now`."""
_MOMENT_END: Final = 1 << 62
"""Half of Kafka's range, because time may advance in a case."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def moment_ms(text: str) -> int:
    """Returns the milliseconds since 1970 of a timestamp in its normal form."""
    return (dt.datetime.fromisoformat(text) - _EPOCH) // _MILLISECOND


def _moment(value: object) -> int:
    """Parses a timestamp, or milliseconds since 1970 as Kafka stores them."""
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) >= _MOMENT_END:
            raise refusal(f"{describe_value(value)} is out of range for a Kafka timestamp", "write the ms since 1970")
        return int(value)
    text = require_text(value, "a timestamp")
    try:
        return moment_ms(derive_timestamp(text))
    except ValueError as error:
        zone = "; add the time zone, for instance `Z`" if str(error) == "no time zone" else ""
        remedy = f"for instance 2026-11-01T00:00:00Z, or the ms since 1970{zone}"
        raise refusal(f"`{text[:60]}` is not a timestamp", remedy) from error


def _plain(value: object) -> Any:
    """Converts a YAML value. Refuses secrets, which would be compared, and shown if they differed."""
    if isinstance(value, SecretStr):
        raise refusal("a test contains a secret", "write the value out: ${file:...} is for properties only")
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)  # how the number was written does not matter
    return value


def _key(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool | int):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return require_text(value, "text, or null", "write text; for other bytes use `key_base64`")


def _text(value: object) -> str:
    """Accepts text that may be empty, as a record's value may be."""
    return "" if value == "" else require_text(value, "text")


def _base64(value: object) -> bytes:
    text = require_text(value, "base64")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise refusal(f"{describe_value(value)} is not base64", "for instance AAEC") from error


def _headers(value: object) -> tuple[tuple[str, bytes | None], ...]:
    remedy = 'write pairs, in order: [[source, "web"]]; null stands for a header without value'
    if not isinstance(value, list):
        raise refusal(f"expected a list of headers, got {describe_value(value)}", remedy)
    found: list[tuple[str, bytes | None]] = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise refusal(f"{describe_value(pair)} is not a header", remedy)
        found.append((pair[0], _header_value(pair[1])))
    return tuple(found)


def _header_value(value: object) -> bytes | None:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _base64(value["base64"])
    text = "" if value == "" else _key(value)
    return None if text is None else text.encode()


def _counts(value: object) -> int | dict[str, int]:
    return {name: _count(item) for name, item in value.items()} if isinstance(value, dict) else _count(value)


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        remedy = "write a number, or numbers by name, for instance {WRONG_TYPE: 1}"
        raise refusal(f"{describe_value(value)} is not a number of records", remedy)
    return int(value)


_TEXT_OR_NUMBER: Final = {"type": ["string", "integer", "boolean", "null"]}
_COUNTS: Final = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    ]
}
_BYTES: Final = {"type": "object", "properties": {"base64": {"type": "string"}}, "required": ["base64"]}
_HEADER: Final = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"anyOf": [_TEXT_OR_NUMBER, _BYTES]}}

Moment = Annotated[int, ValueCheck(_moment, {"type": ["string", "integer"]})]
PlainValue = Annotated[Any, ValueCheck(_plain, {})]
KeyText = Annotated[str | None, ValueCheck(_key, _TEXT_OR_NUMBER)]
Base64 = Annotated[bytes, ValueCheck(_base64, {"type": "string"})]
RecordHeaders = Annotated[
    tuple[tuple[str, bytes | None], ...], ValueCheck(_headers, {"type": "array", "items": _HEADER})
]
Counts = Annotated[int | dict[str, int], ValueCheck(_counts, _COUNTS)]


class RecordSettings(Settings):
    """What a record given and a record expected have in common. What is not in `given` was not written."""

    key: Annotated[KeyText, Field(description="Text of the key; null: none.")] = None
    key_base64: Annotated[Base64 | None, Field(description="Bytes of the key, if it is not text.")] = None
    value: Annotated[
        PlainValue, Field(description="The value as YAML, in the format of source or sink; null: a tombstone.")
    ] = None
    value_base64: Annotated[Base64 | None, Field(description="The value's bytes, if it is not text.")] = None
    headers: Annotated[
        RecordHeaders | None,
        Field(
            description='Pairs of name and text, in order: [[source, "web"]]; null is a header with a NULL '
            "value, {base64: AAEC} one that is not text."
        ),
    ] = None
    timestamp: Annotated[
        Moment | None,
        Field(description="Timestamp of the record; for input, by default the time of the clock. null: it has none."),
    ] = None

    @property
    def written(self) -> frozenset[str]:
        """Names of the fields that the file sets."""
        return frozenset(self.model_fields_set)


class GivenSettings(RecordSettings):
    """One element of `given`: a record, or time that passes between two of them."""

    text: Annotated[
        str | None,
        ValueCheck(_text, {"type": "string"}),
        Field(description="The value's bytes as text, whatever the format: for records that cannot be read."),
    ] = None
    partition: Annotated[int, integer(0, PARTITION_MAX), Field(description="Partition of the record.")] = 0
    topic: Annotated[Topic | None, Field(description="Topic of the record, for a source with several.")] = None
    watermark: Annotated[
        Moment | None,
        Field(
            description="Moves the watermark of all partitions of the source to this time, unless it is already "
            "past it."
        ),
    ] = None
    advance_ms: Annotated[
        int | None,
        duration("1ms", "366d"),
        Field(alias="advance", description="Moves the clock by this much before the rest of this list."),
    ] = None

    @property
    def is_record(self) -> bool:
        """True if this is a record rather than a change of time."""
        return not self.written & TIMES


class ExpectedSettings(RecordSettings):
    """A record that a sink must write. Parts that are not listed are not compared."""

    TITLE: ClassVar[str] = "Expected"
    partition: Annotated[
        int | None,
        integer(0, PARTITION_MAX),
        Field(description="Partition that the record is sent to, for a sink with `partition`."),
    ] = None
    topic: Annotated[Topic | None, Field(description="Topic of the record, for a sink that chooses it.")] = None


class ExpectedSet(Settings):
    """Records whose order does not matter."""

    TITLE: ClassVar[str] = "Expected in any order"

    set_: Annotated[
        list[ExpectedSettings],
        Field(alias="set", description="The records, in any order; each as often as it is listed."),
    ]


TIMES: Final = frozenset({"watermark", "advance_ms"})
"""Fields of an element that changes the time."""
ORDERED: Final = "<in order>"
UNORDERED: Final = "<set>"


def _form_of(value: object) -> str:
    return UNORDERED if isinstance(value, dict | ExpectedSet) else ORDERED


Expected = Annotated[
    Annotated[list[ExpectedSettings], Tag(ORDERED)] | Annotated[ExpectedSet, Tag(UNORDERED)], Discriminator(_form_of)
]


class CaseSettings(Settings):
    """A case: the records that sources are given, and those that sinks must write. See docs/testing.md."""

    name: Annotated[
        str,
        ValueCheck(lambda value: require_text(value, "a name"), {"type": "string"}),
        Field(description="What the case shows, in words; names are unique."),
    ]
    now: Annotated[Moment | None, Field(description=f"What the clock shows at the beginning, by default {NOW}.")] = None
    parallelism: Annotated[
        int,
        integer(1, 16),
        Field(description="Number of slots for the case; with several, records may arrive in another order."),
    ] = 1
    given: Annotated[
        dict[StepName, list[GivenSettings]], Field(description="For each source: records, and time between them.")
    ] = {}
    expect: Annotated[
        dict[StepName, Expected],
        Field(description="For each sink: the records that it writes, in order for each key, or {set: [...]}."),
    ] = {}
    bad_records: Annotated[
        Counts, Field(description="Number of records that are skipped, in total or by kind; by default none may be.")
    ] = 0
    late: Annotated[
        Counts | None,
        Field(description="Number of late records, in total or by step; by default they are not compared."),
    ] = None
    fails: Annotated[
        str | None,
        ValueCheck(lambda value: require_text(value, "a part of the message"), {"type": "string"}),
        Field(description="The pipeline stops with a message that contains this text."),
    ] = None

    @property
    def begins_ms(self) -> int:
        """The time at the beginning, ms since 1970."""
        return moment_ms(NOW) if self.now is None else self.now
