"""Checks that records of a partition arrive in offset order and only once; exactly-once depends on it.

Pure.
"""

from __future__ import annotations

from tidegate.ids import TopicPartition
from tidegate.sources.errors import SourceUnavailable
from tidegate.sources.messages import OutOfOrder, Records
from tidegate.sources.positions import Positions


def find_last_offsets(messages: Records, positions: Positions) -> dict[TopicPartition, int]:
    """Returns the last offset of each partition.

    Raises SourceUnavailable for a record that is before the position, or not after its predecessor: the position would
    imply that others were read, and its row would overtake theirs. The next attempt reads from a checkpoint.
    """
    offsets = messages.offsets
    try:
        parts, _, firsts, lasts = messages.origins
    except OutOfOrder as error:
        raise _refuse(messages.partition_at(error.row), offsets[error.row], positions) from error
    for part, first in zip(parts, firsts, strict=True):
        if offsets[first] < positions.next_offsets[part]:
            raise _refuse(part, offsets[first], positions)
    return {part: offsets[last] for part, last in zip(parts, lasts, strict=True)}


def _refuse(part: TopicPartition, offset: int, positions: Positions) -> SourceUnavailable:
    return SourceUnavailable(
        f"source {positions.source}: the client gave offset {offset} of {part} twice, or after a higher one; "
        "the attempt ends, and the next one reads from the last checkpoint",
        partition=str(part),
        offset=offset,
        position=positions.next_offsets[part],
    )
