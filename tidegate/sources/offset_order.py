"""Checks that records of a partition arrive in offset order and only once; exactly-once depends on it.

Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from tidegate.ids import TopicPartition
from tidegate.sources.errors import SourceUnavailable
from tidegate.sources.messages import OutOfOrder, Records
from tidegate.sources.positions import Positions

KeyT = TypeVar("KeyT", bound=Hashable)


def find_last_offsets(
    messages: Records, origins: Sequence[KeyT], partitions: Mapping[KeyT, TopicPartition], positions: Positions
) -> dict[KeyT, int]:
    """Returns the last offset by partition key; `origins` has the key of each message.

    Raises SourceUnavailable for a record that is before the position, or not after its predecessor: the position would
    imply that others were read, and its row would overtake theirs. The next attempt reads from a checkpoint.
    """
    found: dict[KeyT, int] = {}
    offsets, start = messages.offsets, 0
    try:
        ends = messages.run_ends
    except OutOfOrder as error:
        raise _refuse(partitions[origins[error.row]], offsets[error.row], positions) from error
    for row in ends:
        key, offset = origins[row], offsets[start]
        least = found[key] + 1 if key in found else positions.next_offsets[partitions[key]]
        if offset < least:
            raise _refuse(partitions[key], offset, positions)
        found[key], start = offsets[row], row + 1
    return found


def _refuse(part: TopicPartition, offset: int, positions: Positions) -> SourceUnavailable:
    return SourceUnavailable(
        f"source {positions.source}: the client gave offset {offset} of {part} twice, or after a higher one; "
        "the attempt ends, and the next one reads from the last checkpoint",
        partition=str(part),
        offset=offset,
        position=positions.next_offsets[part],
    )
