"""The resource `dead-letters`: the newest dead letters of the pipeline.

Reasons, keys and values are the data of records, so reading needs the role `operate`, and secrets of the pipeline file
are removed. If columns are masked, only the columns of a letter are shown: its bytes and its reason may contain what is
masked.
"""

from __future__ import annotations

import asyncio
import base64
import shlex
from collections.abc import Collection
from typing import Final

import msgspec

from tidegate.config.load import LoadedPipeline
from tidegate.daemon.http.redaction import MaskedRow, mask_json
from tidegate.daemon.http.resources import Resource, ResourceQuery, ResourceRefused
from tidegate.daemon.reading.child import ChildReader
from tidegate.daemon.reading.read_dead_letters import PART_MAX, NewestLetter, NewestLetters, NewestRequest
from tidegate.formats.dead_letters.letter import DeadLetter
from tidegate.process.logs import redact
from tidegate.sources.dead_letter_topic import find_place

MODULE: Final = "tidegate.daemon.reading.read_dead_letters"
LETTERS_MAX: Final = 100
KEPT_S: Final = 5.0
"""How long letters are kept, so that several viewers cost one read."""
BYTES_SHOWN: Final = 2000
"""Of a value, a key, a header, a reason."""
NAME_CHARACTERS_MAX: Final = 200
MARGIN: Final = PART_MAX // 2
"""What is not shown of the end of a part that was cut; a secret is not longer than this."""


class LetterBytes(msgspec.Struct, frozen=True):
    """Bytes of a record: the first of them, and how many there are."""

    text: str | None
    """None if they are not UTF-8, are NULL, or are left out."""
    base64: str | None
    size_bytes: int | None
    """None for NULL."""


class LetterPayload(LetterBytes, frozen=True):
    """The value of the record, and the row that failed."""

    columns: MaskedRow | None
    """The row as the step received it, an object; None if the record has failed in its source, or it is left out."""
    columns_left_out_bytes: int | None
    """The size of a row that is too large to be shown."""


class LetterHeader(msgspec.Struct, frozen=True):
    """A header of the record."""

    name: str
    value: LetterBytes


class LetterOrigin(msgspec.Struct, frozen=True):
    """Where the record was read."""

    cluster: str
    topic: str
    partition: int | None
    offset: int | None
    at_ms: int | None
    """The record's timestamp."""


class DeadLetterEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter."""

    partition: int
    """Of the dead-letter topic, like `offset`."""
    offset: int
    at_ms: int | None
    """When it was written."""
    step: str
    kind: str
    reason: str | None
    """None if it is left out because columns are masked."""
    tries: int
    """How often the row was replayed at the step before it failed again."""
    source: LetterOrigin
    key: LetterBytes
    headers: list[LetterHeader]
    payload: LetterPayload
    replayed_to: str | None
    """The topic that a replay has written the record to; None if the letter is open."""
    replay: str
    """The command that replays this letter."""


class DeadLetters(msgspec.Struct, frozen=True):
    """The newest dead letters, newest first."""

    topic: str
    cluster: str
    letters: list[DeadLetterEntry]
    complete: bool
    """False if newer ones than the oldest of `letters` may be missing, because the topic is too large or too slow."""
    masked: bool
    """True if bytes and reasons are left out because columns are masked."""
    replay: str
    """The command that replays all letters of the pipeline."""


def make_dead_letters_resource(loaded: LoadedPipeline, masked: Collection[str]) -> Resource[ResourceQuery]:
    """Makes the resource. `masked` are the columns that are never shown."""
    settings, renderer = loaded.settings, _Renderer(loaded.file, masked)
    child = ChildReader(MODULE, NewestLetters)

    async def read(_query: ResourceQuery) -> DeadLetters:
        if settings.dead_letters is None:
            raise ResourceRefused(
                404,
                "no-dead-letters",
                f"pipeline {settings.name} has no dead-letter topic: set `dead_letters: {{topic: ...}}` and, for a "
                "source, `bad_records: dead-letter` (tidegate docs operations/bad-records)",
            )
        place = find_place(settings)
        newest = await child.read(NewestRequest(place, LETTERS_MAX))
        letters = await asyncio.to_thread(renderer.render, newest)
        return DeadLetters(place.topic, str(place.cluster), letters, newest.complete, renderer.masks, renderer.replay)

    return Resource(
        name="dead-letters",
        summary="The newest 100 dead letters, with reason, payload and the command that replays each, newest first.",
        answer=DeadLetters,
        read=read,
        operates=True,
        kept_s=KEPT_S,
    )


class _Renderer:
    """Letters as they are shown: cut, without secrets, and without masked columns."""

    def __init__(self, file: str, masked: Collection[str]) -> None:
        self.replay = f"tidegate dead-letters replay {shlex.quote(file)}"
        self._masked = masked
        self.masks = bool(masked)

    def render(self, newest: NewestLetters) -> list[DeadLetterEntry]:
        """Renders all letters."""
        return list(map(self._render, newest.letters))

    def _render(self, one: NewestLetter) -> DeadLetterEntry:
        letter = one.letter
        value = self._render_bytes(letter.value, one.value_bytes)
        columns, left_out = self._render_columns(letter)
        return DeadLetterEntry(
            partition=letter.partition,
            offset=letter.offset,
            at_ms=letter.written_ms,
            step=_shorten(letter.step),
            kind=_shorten(letter.kind),
            reason=None if self.masks else _shorten(letter.message, BYTES_SHOWN),
            tries=letter.tries,
            source=LetterOrigin(
                _shorten(letter.cluster),
                _shorten(letter.topic),
                letter.source_partition,
                letter.source_offset,
                letter.timestamp_ms,
            ),
            key=self._render_bytes(letter.key, one.key_bytes),
            headers=[
                LetterHeader(_shorten(name), self._render_bytes(value, len(value or b"")))
                for name, value in letter.headers
            ],
            payload=LetterPayload(value.text, value.base64, value.size_bytes, columns, left_out),
            replayed_to=None if one.replayed_to is None else _shorten(one.replayed_to),
            replay=f"{self.replay} --partition {letter.partition} --offset {letter.offset}",
        )

    def _render_bytes(self, data: bytes | None, size_bytes: int) -> LetterBytes:
        if data is None:
            return LetterBytes(None, None, None)
        if self.masks:
            return LetterBytes(None, None, size_bytes)
        shown = _redact(data.decode(errors="surrogateescape"), len(data)).encode(errors="surrogateescape")[:BYTES_SHOWN]
        return LetterBytes(_decode(shown, is_cut=len(shown) < size_bytes), base64.b64encode(shown).decode(), size_bytes)

    def _render_columns(self, letter: DeadLetter) -> tuple[MaskedRow | None, int | None]:
        """Returns the columns, and the size of the row if they are left out."""
        if letter.row is None:
            return None, letter.row_size
        try:
            return mask_json(letter.row, self._masked), None
        except (ValueError, RecursionError):  # whoever may write to the topic has written it
            return None, len(letter.row.encode())


def _decode(shown: bytes, *, is_cut: bool) -> str | None:
    """Returns bytes as text, or None if they are not UTF-8. The last character may be incomplete if they were cut."""
    try:
        return shown.decode()
    except UnicodeDecodeError as error:
        cuts_character = is_cut and error.reason == "unexpected end of data"
        return shown[: error.start].decode() if cuts_character else None


def _shorten(text: str, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    return _redact(text, len(text))[:characters_max]


def _redact(text: str, size: int) -> str:
    """Removes secrets from a text that may have been cut: half a secret at its end would not be recognized."""
    shown = redact(text)
    return shown if size < PART_MAX else shown[:-MARGIN]
