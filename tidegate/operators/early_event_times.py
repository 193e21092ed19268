"""Event times before 1971: mostly numbers in another unit than the file declares, or a producer's defaults. Pure.

They are not errors, since an archive may contain some. A source that has them is reported once, with a remedy.
"""

from __future__ import annotations

from tidegate.datatypes import TIMESTAMP
from tidegate.expressions.expression import quote_column
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_source import SourceOperator


def derive_remedy(source: SourceOperator) -> str:
    """Returns the remedy that fits the origin of the source's event time."""
    one = source.event_time
    if one is None or not one.text:
        return (
            "set `event_time` to the column that has the time, or correct the producer: a Kafka timestamp is in "
            "ms since 1970"
        )
    kind = dict(source.columns)[one.column] if one.column is not None else one.expression and one.expression.type
    if kind != TIMESTAMP:
        remedy = f"`event_time: timestamp_seconds({one.written or quote_column(one.column or '')})`"
        return f"`{one.text}` is read as ms since 1970: if it is in seconds, write {remedy}"
    return f"`{one.text}` is a timestamp: correct the unit in which it is read or computed, or the producer"


def describe_early(source: OperatorName, count: int, remedy: str) -> str:
    """Returns the message for the log and for `status`."""
    number = "1 record has an event time" if count == 1 else f"{count:,} records have event times"
    return f"source {source}: {number} before 1971; {remedy}"
