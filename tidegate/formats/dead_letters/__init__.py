"""Dead letters: records that could not be processed, as rows of the pipeline and as records of the dead-letter topic.

`frames.py` makes the rows where a record fails, `rows.py` the text of what failed, `encoder.py` the records where they
are written. Where KIP-1034 (Kafka
Streams) has a header for something, the letter has that one, so that tools which know those letters know these.
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
)
"""Of rows about failed records. `bytes` says what is known of key, value, headers and timestamp (ms since 1970), one of
the words below; `row` is the row that failed and `row_types` its types (`rows.py`), NULL where there is none;
`row_bytes` is the size of a row that is left out."""

ORIGINAL: Final = "original"
"""Key, value, headers and timestamp are those of the record."""
NO_HEADERS: Final = "no-headers"
"""So are they, but for headers whose names are not UTF-8."""
WANTED: Final = "wanted"
"""They are to be read back; never in a letter."""
GONE: Final = "gone"
"""Retention or compaction has removed the record."""
UNREAD: Final = "unread"
"""The broker has not given it within the time that a letter waits."""
NO_RECORD: Final = "no-record"
"""What failed is a result of several records, or nobody knows of which."""
TOO_LARGE: Final = "too-large"
"""The dead-letter topic does not take a record of this size: the value, or more, is left out."""

# KIP-1034
EXCEPTION: Final = "__streams.errors.exception"
MESSAGE: Final = "__streams.errors.message"
TOPIC: Final = "__streams.errors.topic"
PARTITION: Final = "__streams.errors.partition"
OFFSET: Final = "__streams.errors.offset"

# our own
PIPELINE: Final = "__tidegate.errors.pipeline"
STEP: Final = "__tidegate.errors.step"
KIND: Final = "__tidegate.errors.kind"
ATTEMPT: Final = "__tidegate.errors.attempt"
TIMESTAMP: Final = "__tidegate.errors.timestamp"
BYTES: Final = "__tidegate.errors.bytes"
VALUE_SIZE: Final = "__tidegate.errors.value-size"
"""Bytes of a value that is left out."""
ROW: Final = "__tidegate.errors.row"
ROW_TYPES: Final = "__tidegate.errors.row-types"
ROW_MASKED: Final = "__tidegate.errors.row-masked"
"""How many texts of the row had a secret of the pipeline in them, and are not what they were."""
ROW_SIZE: Final = "__tidegate.errors.row-size"
"""Bytes of a row that is left out."""
HEADERS: Final = "__tidegate.errors.headers"
"""How many of the letter's first headers are the record's own."""

REPLAYED_FROM: Final = "__tidegate.replayed.from"
"""Of a record that was written again: `TOPIC[PARTITION]@OFFSET` of its letter."""
MARKER: Final = "__tidegate.replayed.letters"
"""Of a record in the dead-letter topic that is no letter, its only header: it names letters that were written again."""

MESSAGE_CHARACTERS_MAX: Final = 2000
ROW_BYTES_MAX: Final = 65_536
"""Larger rows are left out."""
DEAD_LETTER_BYTES_MIN: Final = 16_384
"""A topic that takes less is refused: a letter without value, key, headers and row always has room in this."""
