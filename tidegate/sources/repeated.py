"""Errors that a partition gives at one place: nothing of it is read meanwhile, and librdkafka tries for ever.

Most of them somebody cures: a disk that cannot be read, a leader that moves. A batch that is damaged, or of a kind that
the client does not know, stays as it is.
"""

from __future__ import annotations

import logging
from typing import Final

import confluent_kafka as ck
import msgspec

from tidegate.clock import Clock
from tidegate.ids import TopicPartition
from tidegate.sources.errors import SourceFailed, SourceUnavailable

_LOG = logging.getLogger("tidegate.sources")

LASTING_SECONDS: Final = 30.0
APART_SECONDS: Final = 60.0
"""An error that comes later than this after the one before it is another one: an idle partition stays at its place."""

# The client's own codes begin with an underscore; they are public all the same.
_UNKNOWN_FORMAT: Final = ck.KafkaError._NOT_IMPLEMENTED  # noqa: SLF001  # see above
"""Of a batch, or its codec. The client goes past some of them."""
_CHECKSUM: Final = ck.KafkaError._BAD_MSG  # noqa: SLF001  # see above
"""With `check.crcs` only. The client goes past the batch, or somewhere else."""
_DAMAGED: Final = {
    ck.KafkaError._BAD_COMPRESSION,  # noqa: SLF001  # see above
    ck.KafkaError.INVALID_MSG,  # what a broker says of its own log: CORRUPT_MESSAGE
}
"""The client reads the same batch again: damage on its way is cured by that, damage of the log is not."""
_REMEDY: Final = (
    "make a replica the leader that has it whole; or delete the records of this partition up to the end of the batch "
    "(kafka-delete-records.sh), and accept the loss by `on_lost_input: continue`"
)


class _Place(msgspec.Struct):
    offset: int
    code: int
    since: float
    last: float
    told: bool = False


class RepeatedErrors:
    """Of one source: where each partition failed last."""

    def __init__(self, source: str, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._places: dict[TopicPartition, _Place] = {}

    def on_error(self, part: TopicPartition, offset: int, error: ck.KafkaError) -> None:
        """A partition cannot be read at this offset; a negative one is not known. What lasts is logged once.

        Raises SourceFailed for a batch that will never be read, and SourceUnavailable for one that has to be read
        again, but would be passed over.
        """
        place, now = self._place(part, offset, error.code()), self._clock.monotonic()
        seconds = now - place.since
        where = f"source {self._source}: {part}: the batch at offset {offset}"
        if place.code == _CHECKSUM:
            raise SourceUnavailable(f"{where} is damaged: {error.str()}; {_REMEDY}", partition=str(part), offset=offset)
        if place.code == _UNKNOWN_FORMAT or (place.code in _DAMAGED and seconds >= LASTING_SECONDS):
            text = f"{where} cannot be read: {error.str()}; {_REMEDY}"
            raise SourceFailed(text, partition=str(part), offset=offset)
        if not place.told and seconds >= LASTING_SECONDS:
            place.told = True
            at = f"at offset {offset}" if offset >= 0 else "at its position"
            text = "source %s: nothing was read of %s for %.0f s, %s: %s; it is tried again until it succeeds"
            _LOG.warning(text, self._source, part, seconds, at, error.str())

    def _place(self, part: TopicPartition, offset: int, code: int) -> _Place:
        now = self._clock.monotonic()
        place = self._places.get(part)
        if place is None or (place.offset, place.code) != (offset, code) or now - place.last > APART_SECONDS:
            place = self._places[part] = _Place(offset, code, now, now)
        place.last = now
        return place
