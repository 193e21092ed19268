"""Dead letters in the plan: two operators in a vertex of their own, which no step creates.

Every operator whose policy is `dead-letter` emits rows about failed records on a side output. The first operator reads
the bytes of records again that failed after they were decoded; later letters wait for them. The second writes the
letters, in the transaction of the checkpoint that covers the progress past the records, or of a later one.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec
from typing_extensions import override

from tidegate.expressions.bounds import Bound, Bounds, sum_bounds
from tidegate.formats.dead_letters import DEAD_LETTER_BYTES_MIN, DEAD_LETTER_COLUMNS
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import MAIN_CLUSTER, ClusterName, OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.calls.caller import CallPolicy
from tidegate.operators.calls.spec import CallOperator

DEAD_LETTERS: Final = OperatorName("dead_letters")
"""The reserved name of the sink."""
READ_BACK: Final = OperatorName("dead_letters.bytes")

CAPACITY: Final = 100
"""How many letters of a slot may wait for bytes. Each may be as large as a record. Reading one takes about 1 ms."""
WAIT_MS: Final = 10_000
"""How long a letter waits for the bytes of its record; then it is written without them."""


class Origin(msgspec.Struct, frozen=True):
    """Where records are read again."""

    topics: tuple[str, ...]
    kafka: dict[str, str]
    pattern: str = ""
    cluster: ClusterName = MAIN_CLUSTER
    """`pattern` and `topics` are as in SourceOperator."""


class ReadBackOperator(CallOperator, frozen=True, tag="read-back"):
    """Adds the bytes of their records to letters."""

    BEGINS_VERTEX: ClassVar[bool] = True

    origins_read: tuple[Origin, ...] = ()

    @override
    def reads(self, port: int = 0) -> set[str]:
        return {name for name, _ in DEAD_LETTER_COLUMNS}

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Ignores the bytes that are read: like the answers of calls, they belong to no batch."""
        return columns, sum_bounds(columns.values())

    @override
    def describes(self) -> list[str]:
        return ["reads the bytes of failed records back by partition and offset"]


class DeadLetterOperator(SinkOperator, frozen=True, tag="dead-letters"):
    """Writes letters. A row that cannot become a letter is counted and dropped. A letter never causes another."""

    pipeline: str = ""
    per_minute_max: int | None = None
    """More letters in a minute than this stop the pipeline; None: no limit."""

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts the bytes, and the row once as text."""
        return {}, sum_bounds(columns.values())

    @override
    def describes(self) -> list[str]:
        limit = "without a limit" if self.per_minute_max is None else f"at most {self.per_minute_max} per minute"
        return [f"topic {self.topic}{self.in_cluster}; {limit}"]


def find_unfit(*, compacted: bool, batch_bytes: int | None) -> tuple[str, str] | None:
    """Returns why a topic cannot take every letter, and the remedy, or None. `batch_bytes` is as in TopicLimits."""
    if compacted:
        reason = "is compacted: dead letters without a key are refused, and older ones with a key are removed"
        return reason, "set its cleanup.policy to delete"
    if batch_bytes is not None and batch_bytes < DEAD_LETTER_BYTES_MIN:
        reason = f"accepts records of at most {batch_bytes} bytes, and a dead letter may have {DEAD_LETTER_BYTES_MIN}"
        return reason, "raise its max.message.bytes to that of the sources' topics"
    return None


def make_read_back(origins: tuple[Origin, ...]) -> ReadBackOperator:
    """Creates the operator that reads bytes."""
    return ReadBackOperator(
        name=READ_BACK,
        input=DEAD_LETTER_COLUMNS,
        answers=(),
        output=DEAD_LETTER_COLUMNS,
        ordered=True,
        capacity=CAPACITY,
        policy=CallPolicy(timeout_ms=2 * WAIT_MS, retries=0, backoff_ms=100, budget_ms=2 * WAIT_MS),
        bad_records=BadRecordPolicy.SKIP,
        origins_read=origins,
    )


def make_sink(
    topic: str, pipeline: str, per_minute_max: int | None, kafka: dict[str, str], cluster: ClusterName = MAIN_CLUSTER
) -> DeadLetterOperator:
    """Creates the operator that writes letters."""
    return DeadLetterOperator(
        name=DEAD_LETTERS,
        topic=topic,
        format="raw",
        columns=DEAD_LETTER_COLUMNS,
        key=None,
        timestamp=None,
        bad_records=BadRecordPolicy.SKIP,
        kafka=kafka,
        cluster=cluster,
        pipeline=pipeline,
        per_minute_max=per_minute_max,
    )
