"""Dead letters: records that could not be processed, as rows of the pipeline and as records of the dead-letter topic.

`frames.py` creates the rows where a record fails, `encoder.py` the records where they are written. If KIP-1034 (Kafka
Streams) defines a header for a fact, the dead letter uses that header, so that tools for those letters can read these.
"""

from __future__ import annotations

from typing import Final

from tidegate.datatypes import BIGINT, BINARY, INT, STRING, DataType
from tidegate.formats.record_parts import HEADERS_TYPE

DEAD_LETTER_COLUMNS: Final[tuple[tuple[str, DataType], ...]] = (
    ("topic", STRING),
    ("partition", INT),
    ("offset", BIGINT),
    ("bytes", STRING),
    ("key", BINARY),
    ("value", BINARY),
    ("headers", HEADERS_TYPE),
    ("timestamp", BIGINT),
    ("step", STRING),
    ("kind", STRING),
    ("message", STRING),
    ("row", STRING),
    ("row_types", STRING),
    ("row_bytes", BIGINT),
    ("port", INT),
    ("tries", INT),
    ("cluster", STRING),
)
"""Columns of rows about failed records.

`bytes` is one of the constants below and tells what is known of key, value, headers and timestamp (ms since 1970).
`row` is the failed row and `row_types` its types (`frames.py`), NULL if there is none. `row_bytes` is the size of a row
that is left out. `port` is the input of the step on which the row arrived, NULL if the row is a result of the step.
`tries` is how often the row was replayed at the step before, NULL if never. `cluster` is the one of the topic.
"""

RETRY_TRIES: Final = "__tidegate_tries"
"""System column of rows from the retry topic: how often the row was replayed at a step, including this time."""

ORIGINAL: Final = "original"
"""Key, value, headers and timestamp are those of the record."""
NO_HEADERS: Final = "no-headers"
"""Like `ORIGINAL`, but without headers, because a name is not UTF-8."""
WANTED: Final = "wanted"
"""The record must be read back from Kafka first; never in a dead letter."""
GONE: Final = "gone"
"""Retention or compaction has removed the record."""
UNREAD: Final = "unread"
"""The broker has not returned the record within the time that a dead letter waits."""
NO_RECORD: Final = "no-record"
"""The failed row results from several records, or its record is unknown."""
TOO_LARGE: Final = "too-large"
"""The record exceeds the size limit of the dead-letter topic: at least the value is left out."""

# KIP-1034
EXCEPTION: Final = "__streams.errors.exception"
MESSAGE: Final = "__streams.errors.message"
TOPIC: Final = "__streams.errors.topic"
PARTITION: Final = "__streams.errors.partition"
OFFSET: Final = "__streams.errors.offset"

# Tidegate's own headers.
PIPELINE: Final = "__tidegate.errors.pipeline"
STEP: Final = "__tidegate.errors.step"
KIND: Final = "__tidegate.errors.kind"
ATTEMPT: Final = "__tidegate.errors.attempt"
TIMESTAMP: Final = "__tidegate.errors.timestamp"
BYTES: Final = "__tidegate.errors.bytes"
CLUSTER: Final = "__tidegate.errors.cluster"
"""The cluster of the topic, by its name in the file; absent if it is the main one."""
VALUE_SIZE: Final = "__tidegate.errors.value-size"
"""Size in bytes of a value that is left out."""
ROW: Final = "__tidegate.errors.row"
ROW_TYPES: Final = "__tidegate.errors.row-types"
ROW_MASKED: Final = "__tidegate.errors.row-masked"
"""Number of texts in the row that contained a secret of the pipeline and were masked."""
ROW_SIZE: Final = "__tidegate.errors.row-size"
"""Size in bytes of a row that is left out."""
PORT: Final = "__tidegate.errors.port"
"""Number of the input of the step on which the failed row arrived."""
TRIES: Final = "__tidegate.errors.tries"
"""How often the row was replayed at the step before it failed again."""
HEADERS: Final = "__tidegate.errors.headers"
"""Number of the dead letter's first headers that are the record's own."""

REPLAYED_FROM: Final = "__tidegate.replayed.from"
"""Header of a replayed record: `TOPIC[PARTITION]@OFFSET` of its dead letter."""
MARKER: Final = "__tidegate.replayed.letters"
"""The only header of a record in the dead-letter topic that is not a dead letter but names replayed ones."""

MESSAGE_CHARACTERS_MAX: Final = 2000
ROW_BYTES_MAX: Final = 65_536
"""Larger rows are left out."""
DEAD_LETTER_BYTES_MIN: Final = 16_384
"""A topic with a lower limit is rejected: a dead letter without value, key, headers and row always fits into this size.
"""
