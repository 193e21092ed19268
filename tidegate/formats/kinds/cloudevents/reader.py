"""Events to columns: attributes from headers or from the event's object, and its data by the JSON reader.

In both modes an event becomes the texts of its attributes and the bytes of its data. What is wrong with them is found
column by column. Events in structured mode are decoded in C where that is certain (`in_memory.py`), otherwise taken
apart one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

import polars as pl
from typing_extensions import override

from tidegate.datatypes import BINARY, STRING
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns, Decoded, Decoder, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.in_memory import MemoryDecoder
from tidegate.formats.kinds.cloudevents.attributes import (
    CONTENT_TYPE,
    DATA,
    PREFIX,
    attribute_of,
    fields_of,
    is_json,
)
from tidegate.formats.kinds.cloudevents.checks import AttributeReader
from tidegate.formats.kinds.cloudevents.headers import EventHeaders, text_of
from tidegate.formats.kinds.cloudevents.in_memory import find_certain
from tidegate.formats.kinds.cloudevents.structured import Parsed, StructuredParser
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.formats.schemas import FormatOptions

_EVENT: Final = "application/cloudevents"
_BATCH: Final = f"{_EVENT}-batch"
_JSON_EVENTS: Final = (_EVENT, f"{_EVENT}+json")
_NO_DATA: Final = (None, b"", b"null")
"""Events without data: without value or with an empty one in binary mode, or with a null."""
_NO_FIELDS: Final = b"{}"
"""Takes its place where fields are read, which are all missing then."""


class EventDecoder(Decoder):
    """Decodes events into frames with exactly the columns of `output`."""

    def __init__(self, declared: Columns, output: Columns, options: FormatOptions) -> None:
        kinds = dict(declared)
        self._attributes = {name: kind for column, kind in declared if (name := attribute_of(column))}
        self._checks = AttributeReader(self._attributes)
        self._output = output
        wanted = {name for name, _ in output}
        fields = tuple(fields_of(kinds).items())
        self._fields: JsonDecoder | None = None
        if fields:
            read = [one for one in fields if one[0] in wanted]
            self._fields = JsonDecoder(fields, read, options=options, needs_field=True)
        self._data = kinds.get(DATA)
        reads_data = bool(fields) or self._data is not None
        self._parser = StructuredParser(self._attributes, reads_data=reads_data)
        certain = None if self._data is not None else find_certain(self._attributes, fields, output, options)
        self._in_memory = None if certain is None else MemoryDecoder(certain, self._decode_structured)

    @override
    def decode(self, messages: Messages) -> Decoded:
        failures: dict[int, RecordFailure] = {}
        headers = EventHeaders(messages, failures)
        structured = self._structured_rows(headers, failures)
        memory = messages.memory
        if len(structured) == len(messages) and not failures:
            if memory is None or self._in_memory is None:
                return self._decode_structured(messages.values)
            return self._in_memory.decode(memory)
        unreadable: dict[int, RecordFailure] = {}
        texts = {name: headers.text(_header_of(name), unreadable) for name in self._attributes}
        apart = set(structured) if unreadable else set()  # their headers have no meaning
        failures |= {row: one for row, one in unreadable.items() if row not in apart and row not in failures}
        values: list[bytes | None] | None = None
        if len(structured):
            values = list(messages.values)
            self._take_apart(values, structured.to_list(), texts, failures)
        return self._finish(messages, values, texts, failures)

    def _decode_structured(self, values: Sequence[bytes | None]) -> Decoded:
        """Decodes events that are all in structured mode."""
        failures: dict[int, RecordFailure] = {}
        found = list(values)
        none = pl.Series([None], dtype=pl.String).new_from_index(0, len(found))
        texts = dict.fromkeys(self._attributes, none)
        self._take_apart(found, range(len(found)), texts, failures)
        return self._finish(None, found, texts, failures)

    def _finish(
        self,
        messages: Messages | None,
        values: list[bytes | None] | None,
        texts: dict[str, pl.Series],
        failures: dict[int, RecordFailure],
    ) -> Decoded:
        columns = self._checks.read(texts, failures)
        self._check_content(texts["datacontenttype"], failures)
        data, height = self._read_data(messages, values, failures), len(texts["id"])
        bad = sorted(failures)
        if bad:
            good = ~pl.int_range(height, eager=True).is_in(bad)
            columns = {name: column.filter(good) for name, column in columns.items()}
        series = [
            (columns[name] if (name := attribute_of(column)) else data[column]).alias(column)
            for column, _ in self._output
        ]
        frame = pl.DataFrame(series) if series else pl.DataFrame(height=height - len(bad))
        return Decoded(frame, sorted(failures.values(), key=attrgetter("row")))

    # -- attributes ----------------------------------------------------------------------------------------------------

    def _structured_rows(self, headers: EventHeaders, failures: dict[int, RecordFailure]) -> pl.Series:
        """Returns the rows in structured mode, without those whose format is not supported."""
        types = headers.text(CONTENT_TYPE, failures)
        found = types.is_null() & ~headers.have_attributes()
        for text in _different(types):
            media_type = text.partition(";")[0].strip().lower()
            if not media_type.startswith(_EVENT):
                continue
            if media_type in _JSON_EVENTS:
                found |= (types == text).fill_null(value=False)
                continue
            what = "a batch of events" if media_type.startswith(_BATCH) else f"an event in the format {media_type[:60]}"
            for row in (types == text).arg_true():
                message = f"it is {what}; only single events in JSON are supported"
                failures.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))
        return found.arg_true()

    def _take_apart(
        self,
        values: list[bytes | None],
        structured: Sequence[int],
        texts: dict[str, pl.Series],
        failures: dict[int, RecordFailure],
    ) -> None:
        """Replaces texts and values of rows in structured mode by the attributes and the data of their events."""
        rows: list[int] = []
        parsed: list[Parsed] = []
        for row in structured:
            found = self._parser.parse(row, values[row])
            if isinstance(found, Parsed):
                rows.append(row)
                parsed.append(found)
                values[row] = found.data
            else:
                failures.setdefault(row, found)
        lists: Iterable[Sequence[str | None]] = (
            zip(*(one.attributes for one in parsed), strict=True) if parsed else ([] for _ in texts)
        )
        places = pl.Series(rows, dtype=pl.UInt32)
        for (name, text), column in zip(texts.items(), lists, strict=True):
            found_text = pl.Series(name, column, dtype=pl.String)
            texts[name] = found_text if len(rows) == len(values) else text.clone().scatter(places, found_text)

    # -- data ----------------------------------------------------------------------------------------------------------

    def _check_content(self, types: pl.Series, failures: dict[int, RecordFailure]) -> None:
        """Finds events whose data is not JSON although fields of it are read."""
        for text in _different(types) if self._fields is not None else ():
            if is_json(text):
                continue
            message = (
                f"`datacontenttype` is {text[:60]!r}, and the source reads fields of JSON; `{DATA}` would hold any"
            )
            for row in (types == text).arg_true():
                failures.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))

    def _read_data(
        self, messages: Messages | None, values: list[bytes | None] | None, failures: dict[int, RecordFailure]
    ) -> dict[str, pl.Series]:
        """Returns columns with the rows that have no failure after it. `values` are those of `messages` by default."""
        if self._fields is None:
            return self._whole_data(messages, values, failures) if self._data is not None else {}
        if messages is not None and values is None and not failures and messages.memory is not None:
            decoded = self._fields.decode(messages)
            found = messages.values if decoded.failures else ()
            if not any(found[one.row] in _NO_DATA for one in decoded.failures):
                failures |= {one.row: one for one in decoded.failures}
                return dict(zip(decoded.frame.columns, decoded.frame.get_columns(), strict=True))
        taken = _values_of(messages, values)
        rows = [row for row in range(len(taken)) if row not in failures]
        bodies = [_NO_FIELDS if taken[row] in _NO_DATA else taken[row] for row in rows]
        decoded = self._fields.decode_values(bodies)
        failures |= {rows[one.row]: RecordFailure(rows[one.row], one.kind, one.message) for one in decoded.failures}
        return dict(zip(decoded.frame.columns, decoded.frame.get_columns(), strict=True))

    def _whole_data(
        self, messages: Messages | None, values: list[bytes | None] | None, failures: dict[int, RecordFailure]
    ) -> dict[str, pl.Series]:
        found = pl.Series(DATA, _values_of(messages, values), dtype=polars_type(BINARY))
        if self._data == STRING:
            text = text_of(found)
            for row in (text.is_null() & found.is_not_null()).arg_true():
                failures.setdefault(row, RecordFailure(row, FailureKind.NOT_UTF8, f"the data is not UTF-8: `{DATA}`"))
            found = text
        bad = sorted(failures)
        return {DATA: found.filter(~pl.int_range(len(found), eager=True).is_in(bad)) if bad else found}


def _different(texts: pl.Series) -> list[str]:
    """Returns the different texts of a column, which often has only one."""
    if not len(texts) or texts.null_count() == len(texts):
        return []
    first = texts[0]
    return [first] if first is not None and (texts == first).all() else texts.unique().drop_nulls().to_list()


def _header_of(attribute: str) -> str:
    return CONTENT_TYPE if attribute == "datacontenttype" else f"{PREFIX}{attribute}"


def _values_of(messages: Messages | None, values: list[bytes | None] | None) -> Sequence[bytes | None]:
    if values is not None:
        return values
    assert messages is not None
    return messages.values
