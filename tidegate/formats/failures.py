"""A record that could not be decoded, computed or encoded: its row in the batch, the kind of failure, and the reason.

The same type is used from a source's decoder through the operators to a sink's encoder. `BadRecordPolicy` determines
how such records are handled. The kinds are labels of `tidegate_bad_records_total` and rows of a table in
docs/operations/bad-records.md. A new kind is added in both places, and none is ever renamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Final

import msgspec


class FailureKind(StrEnum):
    """The kind under which a bad record is counted. Kinds of expressions are Spark's error classes."""

    MALFORMED_JSON = "MALFORMED_JSON"
    EMPTY_VALUE = "EMPTY_VALUE"
    NULL_VALUE = "NULL_VALUE"
    MALFORMED_AVRO = "MALFORMED_AVRO"
    MALFORMED_PROTOBUF = "MALFORMED_PROTOBUF"
    MALFORMED_MSGPACK = "MALFORMED_MSGPACK"
    MALFORMED_DELIMITED = "MALFORMED_DELIMITED"
    PATTERN_MISMATCH = "PATTERN_MISMATCH"
    UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
    INCOMPATIBLE_SCHEMA = "INCOMPATIBLE_SCHEMA"
    NOT_UTF8 = "NOT_UTF8"
    TOO_DEEP = "TOO_DEEP"
    WRONG_TYPE = "WRONG_TYPE"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"
    NO_DECLARED_FIELD = "NO_DECLARED_FIELD"
    INCOMPLETE_CHANGE = "INCOMPLETE_CHANGE"
    UNSUPPORTED_CHANGE = "UNSUPPORTED_CHANGE"
    INCONSISTENT_CHANGE = "INCONSISTENT_CHANGE"
    INVALID_EVENT = "INVALID_EVENT"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    ARITHMETIC_OVERFLOW = "ARITHMETIC_OVERFLOW"
    CANNOT_PARSE_TIMESTAMP = "CANNOT_PARSE_TIMESTAMP"
    CAST_INVALID_INPUT = "CAST_INVALID_INPUT"
    CAST_OVERFLOW = "CAST_OVERFLOW"
    DATETIME_FIELD_OUT_OF_BOUNDS = "DATETIME_FIELD_OUT_OF_BOUNDS"
    DATETIME_OVERFLOW = "DATETIME_OVERFLOW"
    DIVIDE_BY_ZERO = "DIVIDE_BY_ZERO"
    INVALID_ARRAY_INDEX = "INVALID_ARRAY_INDEX"
    INVALID_ARRAY_INDEX_IN_ELEMENT_AT = "INVALID_ARRAY_INDEX_IN_ELEMENT_AT"
    INVALID_INDEX_OF_ZERO = "INVALID_INDEX_OF_ZERO"
    INVALID_PARAMETER_VALUE = "INVALID_PARAMETER_VALUE"
    NUMERIC_VALUE_OUT_OF_RANGE = "NUMERIC_VALUE_OUT_OF_RANGE"
    DUPLICATED_MAP_KEY = "DUPLICATED_MAP_KEY"
    NULL_MAP_KEY = "NULL_MAP_KEY"
    MALFORMED_CHARACTER_CODING = "MALFORMED_CHARACTER_CODING"
    CANNOT_DECODE_URL = "CANNOT_DECODE_URL"
    INVALID_URL = "INVALID_URL"
    RESULT_TOO_LARGE = "RESULT_TOO_LARGE"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    TIMESTAMP_OUT_OF_RANGE = "TIMESTAMP_OUT_OF_RANGE"
    TIMESTAMP_NOT_STORABLE = "TIMESTAMP_NOT_STORABLE"
    NO_KEY = "NO_KEY"
    NULL_KEY = "NULL_KEY"
    KEY_IN_TWO_PARTITIONS = "KEY_IN_TWO_PARTITIONS"
    NO_TABLE_ROW = "NO_TABLE_ROW"
    NO_PARTITION = "NO_PARTITION"
    NO_TOPIC = "NO_TOPIC"
    NO_EVENT_TIME = "NO_EVENT_TIME"
    EVENT_TIME_OUT_OF_RANGE = "EVENT_TIME_OUT_OF_RANGE"
    TOO_MANY_ROWS = "TOO_MANY_ROWS"
    CALL_FAILED = "CALL_FAILED"
    CALL_TIMED_OUT = "CALL_TIMED_OUT"
    PYTHON_FAILED = "PYTHON_FAILED"
    CANNOT_RETRY = "CANNOT_RETRY"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    """A record for which the program raises an unforeseen exception."""


class RecordFailure(msgspec.Struct, frozen=True):
    """A failed record. `row` is its index in the batch that was processed, counting failed rows."""

    row: int
    kind: FailureKind
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class RecordPlace(msgspec.Struct, frozen=True, order=True):
    """The position of a record in Kafka. Places are ordered by topic, partition and offset."""

    topic: str
    partition: int
    offset: int


class BadRecordPolicy(StrEnum):
    """How a failed record is handled: the value of `bad_records` of its source."""

    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


def describe_undeclared(fields: Iterable[str], declared: Iterable[str], hint: str = "") -> str:
    """Explains why a record or schema with these undeclared fields is rejected. `hint` names what it looks like."""
    names = list(fields)
    shown = ", ".join(f"`{name[:_NAME_SHOWN_MAX]}`" for name in names[:_NAMES_SHOWN_MAX])
    more = ", ..." if len(names) > _NAMES_SHOWN_MAX else ""
    if not hint:
        written = {name.lower(): name for name in names}
        other = next((one for one in declared if one.lower() in written), None)
        hint = "" if other is None else f"`{written[other.lower()]}` is not `{other}`: names must match exactly"
    return f"it has none of the declared fields; its fields are {shown}{more}" + (f"; {hint}" if hint else "")


_NAMES_SHOWN_MAX: Final = 5
_NAME_SHOWN_MAX: Final = 60


def combine_policies(policies: Iterable[BadRecordPolicy]) -> BadRecordPolicy:
    """Returns the strictest policy for records that arrive over several paths; `FAIL` if there are none.

    Records are skipped only if all policies skip them, and without a dead letter only if all policies agree on that.
    """
    found = set(policies)
    if not found or BadRecordPolicy.FAIL in found:
        return BadRecordPolicy.FAIL
    return BadRecordPolicy.SKIP if found == {BadRecordPolicy.SKIP} else BadRecordPolicy.DEAD_LETTER


def gather_failures(
    raising: Iterable[RecordFailure], parts: Iterable[tuple[int, Sequence[RecordFailure]]]
) -> list[RecordFailure]:
    """Merges the failures of a batch that was processed in parts, in the order of its rows.

    :param raising: rows of the batch that raise on their own.
    :param parts: the first row of each part and its failures, whose row numbers are relative to that row.
    """
    shifted = (msgspec.structs.replace(one, row=start + one.row) for start, found in parts for one in found)
    return sorted([*raising, *shifted], key=attrgetter("row"))
