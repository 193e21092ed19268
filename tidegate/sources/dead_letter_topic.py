"""Reads the dead-letter topic from beginning to end without storing offsets."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from tidegate.config.clusters import properties_of
from tidegate.config.fields.secrets import reveal
from tidegate.config.models import PipelineSettings
from tidegate.errors import TidegateError
from tidegate.formats.contract import Headers
from tidegate.formats.dead_letters.letter import DeadLetter, read_dead_letter, read_mark
from tidegate.ids import ClusterName
from tidegate.sources.topic_reader import TopicReader

if TYPE_CHECKING:  # the library is imported where it runs
    import confluent_kafka as ck

OPEN_S: Final = 60.0
"""Timeout for open transactions in the topic: a running pipeline ends one with every checkpoint."""
WAIT_S: Final = 0.2


class DeadLettersRefused(TidegateError):
    """The file, the cluster or the topic does not permit the command."""

    code = "dead-letters-refused"
    exit_code = 1
    retriable = False


class DeadLetterPlace(msgspec.Struct, frozen=True):
    """Where the dead letters of a pipeline are. It holds passwords."""

    pipeline: str
    topic: str
    cluster: ClusterName
    kafka: dict[str, str]
    """The properties of the cluster."""


def find_place(settings: PipelineSettings) -> DeadLetterPlace:
    """Returns where the dead letters of the pipeline are. Raises DeadLettersRefused if it writes none."""
    own = settings.dead_letters
    if own is None:
        raise DeadLettersRefused(
            f"pipeline {settings.name} has no `dead_letters`: nothing is written and nothing to read"
        )
    return DeadLetterPlace(settings.name, own.topic, own.cluster, reveal(properties_of(settings, own.cluster)))


class DeadLetterTopic:
    """The topic as read-committed readers see it. A context manager that closes its clients."""

    def __init__(self, place: DeadLetterPlace) -> None:
        self.topic = place.topic
        self._pipeline = place.pipeline
        self.cluster = place.cluster
        self.kafka = place.kafka
        self._committed = TopicReader(place.kafka, place.topic, committed=True, refused=DeadLettersRefused)
        self._written = TopicReader(place.kafka, place.topic, committed=False, refused=DeadLettersRefused)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._committed.__exit__(*exc_info)
        self._written.__exit__(*exc_info)

    def bounds(self, *, settled: bool = False) -> dict[int, tuple[int, int]]:
        """Returns the first offset and the end of each partition. By default the end is the last stable offset.

        `settled`: the end of all written records, once no transaction is open before it, so that everything committed
        until now is included. Raises DeadLettersRefused, BrokerUnavailable.
        """
        if not settled:
            return self._committed.bounds()
        bounds = self._written.bounds()
        deadline = time.monotonic() + OPEN_S
        while (partition := self._find_open(bounds)) is not None:
            if time.monotonic() > deadline:
                raise DeadLettersRefused(
                    f"a transaction has been open in {self.topic}[{partition}] for {OPEN_S:g} s, and the "
                    "records after it cannot be read: try again when the pipeline has completed a checkpoint or "
                    "has been started again",
                    partition=partition,
                )
            time.sleep(WAIT_S)
        return bounds

    def _find_open(self, bounds: Mapping[int, tuple[int, int]]) -> int | None:
        """Returns a partition with a transaction that is open before its end, if there is one."""
        stable = self._committed.bounds()
        return next((number for number, (_, end) in bounds.items() if stable[number][1] < end), None)

    def read(self, bounds: Mapping[int, tuple[int, int]]) -> Iterator[ck.Message]:
        """Yields records within the bounds, in the order of each partition.

        Raises DeadLettersRefused, BrokerUnavailable.
        """
        starts = {number: first for number, (first, _) in bounds.items()}
        return self._committed.read(starts, {number: end for number, (_, end) in bounds.items()})

    def letters(self, bounds: Mapping[int, tuple[int, int]]) -> Iterator[DeadLetter]:
        """Yields the dead letters of this pipeline, because others may write to the topic as well.

        Raises the same errors as `read`.
        """
        for letter in filter(None, map(dead_letter_of, self.read(bounds))):
            if letter.pipeline == self._pipeline:
                yield letter


class Marks:
    """Records which dead letters were replayed, and to which topic."""

    def __init__(self) -> None:
        self._ranges: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
        """First offset, last offset and topic by partition.

        Ranges, because one mark can cover any number of offsets.
        """
        self._sorted = True

    @property
    def empty(self) -> bool:
        """True if no mark was noted."""
        return not self._ranges

    def note(self, message: ck.Message) -> bool:
        """Notes a mark; returns whether the message is one."""
        value: Any = message.value()
        mark = read_mark(value, _headers(message))
        if mark is None:
            return False
        number: Any = message.partition()
        self._ranges[number] += [(first, last, mark.to) for first, last in mark.offsets]
        self._sorted = False
        return True

    def of(self, letter: DeadLetter) -> str | None:
        """Returns the topic that the record was written to, or None if the dead letter is still open."""
        if not self._sorted:
            self._sorted = True
            self._ranges.update({number: _disjoint(ranges) for number, ranges in self._ranges.items()})
        found = self._ranges.get(letter.partition, [])
        place = bisect_right(found, letter.offset, key=itemgetter(0)) - 1
        return found[place][2] if place >= 0 and letter.offset <= found[place][1] else None


def _disjoint(ranges: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Sorts ranges and removes overlaps, which occur if two replays ran concurrently."""
    found: list[tuple[int, int, str]] = []
    for first, last, to in sorted(ranges):
        begin = max(first, found[-1][1] + 1) if found else first
        if begin <= last:
            found.append((begin, last, to))
    return found


def dead_letter_of(message: ck.Message) -> DeadLetter | None:
    """Parses a dead letter. Returns None for a record that is not one."""
    from tidegate.sources.messages import stamp_of

    return read_dead_letter(
        message.partition() or 0,
        message.offset() or 0,
        stamp_of(message),
        message.key(),
        message.value(),
        _headers(message),
    )


def _headers(message: ck.Message) -> Headers:
    """Returns the headers; empty for a foreign record with header names that are not UTF-8."""
    from tidegate.sources.messages import KafkaMessages

    return KafkaMessages([message]).headers[0] or ()
