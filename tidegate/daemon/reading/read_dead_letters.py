"""The process that reads the newest dead letters: `python -m tidegate.daemon.reading.read_dead_letters`.

Each partition is read backwards in windows that double, until all letters that are newer than the oldest one to return
have been read. So a topic of any length costs little more than the letters that are returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from tidegate.daemon.reading.answering import answer_request
from tidegate.formats.contract import Headers
from tidegate.formats.dead_letters.letter import DeadLetter
from tidegate.sources.dead_letter_topic import DeadLetterPlace, DeadLetterTopic, Marks, dead_letter_of

if TYPE_CHECKING:  # the library is imported where it runs
    import confluent_kafka as ck

FIRST_WINDOW: Final = 64
"""Offsets that are read first, in all partitions together."""
BYTES_MAX: Final = 64 << 20
"""A window that makes more bytes than this is given up, unless nothing has been found yet."""
TIME_MAX_S: Final = 10.0
PART_MAX: Final = 8192
"""Longer values, keys and texts are cut. Secrets are removed from them afterwards, so this is more than is shown."""
HEADERS_MAX: Final = 20
HEADERS_BYTES_MAX: Final = 4 * PART_MAX
ROW_CHARACTERS_MAX: Final = 16_384
"""Larger rows are left out."""

_TEXTS: Final = ("pipeline", "step", "kind", "message", "topic", "cluster", "known")

Bounds = Mapping[int, tuple[int, int]]


class NewestRequest(msgspec.Struct, frozen=True):
    """Which letters are wanted."""

    place: DeadLetterPlace
    count: int


class NewestLetter(msgspec.Struct, frozen=True):
    """A dead letter whose parts may be cut, with their whole sizes."""

    letter: DeadLetter
    replayed_to: str | None
    key_bytes: int
    value_bytes: int


class NewestLetters(msgspec.Struct, frozen=True):
    """The newest letters, newest first."""

    letters: tuple[NewestLetter, ...]
    complete: bool
    """False if newer ones than the oldest of `letters` may be missing, because the topic is too large or too slow."""


class Topic(Protocol):
    """The part of `DeadLetterTopic` that is used."""

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Returns the first offset and the end of each partition."""

    def read(self, bounds: Bounds) -> Iterator[ck.Message]:
        """Yields the records within the bounds."""


class _TooMuch(Exception):
    """A window is too large."""


class NewestFirst:
    """One search for the newest letters of a pipeline. `elapsed` returns monotonic seconds."""

    def __init__(self, topic: Topic, pipeline: str, count: int, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._topic = topic
        self._pipeline = pipeline
        self._count = count
        self._elapsed = elapsed
        self._until_s = elapsed() + TIME_MAX_S
        self._bytes = 0
        self._marks = Marks()
        self._found: list[NewestLetter] = []
        self._oldest: dict[int, int] = {}
        """When the oldest record was written that was read in a partition."""

    def read(self) -> NewestLetters:
        """Reads the letters. Raises DeadLettersRefused, BrokerUnavailable."""
        bounds = self._topic.bounds()
        starts = {number: end for number, (_, end) in bounds.items()}
        window = max(1, FIRST_WINDOW // max(1, len(bounds)))
        complete = True
        while wanted := self._derive_window(bounds, starts, window):
            try:
                letters = self._read_window(wanted)
            except _TooMuch:
                complete = False
                break
            self._found = sorted([*self._found, *letters], key=_age, reverse=True)[: self._count]
            starts |= {number: start for number, (start, _) in wanted.items()}
            window *= 2
        # A mark follows its letters in their partition, so all marks of what was found have been read.
        found = (msgspec.structs.replace(one, replayed_to=self._marks.of(one.letter)) for one in self._found)
        return NewestLetters(tuple(found), complete)

    def _derive_window(self, bounds: Bounds, starts: Mapping[int, int], window: int) -> dict[int, tuple[int, int]]:
        """Returns what to read next of the partitions that may have letters that are newer than the oldest found."""
        full = len(self._found) >= self._count
        cutoff = self._found[-1].letter.written_ms or 0 if full else 0
        return {
            number: (max(first, starts[number] - window), starts[number])
            for number, (first, _) in bounds.items()
            if starts[number] > first and (not full or self._oldest.get(number, cutoff) >= cutoff)
        }

    def _read_window(self, wanted: Bounds) -> list[NewestLetter]:
        """Reads the letters of a window. Raises _TooMuch, so that no newer letters are missing than those before it."""
        from tidegate.sources.messages import stamp_of

        letters: list[NewestLetter] = []
        for message in self._topic.read(wanted):
            self._bytes += len(message.value() or b"") + len(message.key() or b"")
            if self._elapsed() > self._until_s or (self._bytes > BYTES_MAX and self._found):
                raise _TooMuch
            number, at_ms = message.partition() or 0, stamp_of(message) or 0
            self._oldest[number] = min(at_ms, self._oldest.get(number, at_ms))
            if self._marks.note(message):
                continue
            letter = dead_letter_of(message)
            if letter is not None and letter.pipeline == self._pipeline:
                letters.append(_cut(letter))
        return letters


def _age(one: NewestLetter) -> tuple[int, int, int]:
    return one.letter.written_ms or 0, one.letter.partition, one.letter.offset


def _cut(letter: DeadLetter) -> NewestLetter:
    row_fits = letter.row is not None and len(letter.row) <= ROW_CHARACTERS_MAX
    cut = msgspec.structs.replace(
        letter,
        key=_cut_bytes(letter.key),
        value=_cut_bytes(letter.value),
        headers=tuple(_cut_headers(letter.headers)),
        reason=(),  # its parts have fields of their own
        row=letter.row if row_fits else None,
        row_size=letter.row_size if row_fits or letter.row is None else len(letter.row.encode()),
        row_types=None,
        **{name: getattr(letter, name)[:PART_MAX] for name in _TEXTS},
    )
    return NewestLetter(cut, None, len(letter.key or b""), len(letter.value or b""))


def _cut_bytes(data: bytes | None) -> bytes | None:
    return None if data is None else data[:PART_MAX]


def _cut_headers(headers: Headers) -> Iterator[tuple[str, bytes | None]]:
    size = 0
    for name, value in headers[:HEADERS_MAX]:
        yield name[:PART_MAX], _cut_bytes(value)
        size += min(len(name), PART_MAX) + min(len(value or b""), PART_MAX)
        if size > HEADERS_BYTES_MAX:
            return


def read_newest(request: NewestRequest) -> NewestLetters:
    """Reads the newest letters from the broker. Raises DeadLettersRefused, BrokerUnavailable."""
    with DeadLetterTopic(request.place) as topic:
        return NewestFirst(topic, request.place.pipeline, request.count).read()


if __name__ == "__main__":
    answer_request(NewestRequest, read_newest)
