"""Events to columns: attributes from headers or from the event's object, and its data by the JSON reader.

In both modes an event becomes the texts of its attributes and the bytes of its data. What is wrong with them is found
column by column; only events in structured mode are taken apart one by one.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Final, cast

import polars as pl
from typing_extensions import override

from tidegate.datatypes import BINARY, STRING
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns, Decoded, Decoder, FlatHeaders, Messages, ValueMemory
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.flat_headers import flatten_headers
from tidegate.formats.kinds.cloudevents.attributes import (
    CONTENT_TYPE,
    DATA,
    PREFIX,
    attribute_of,
    fields_of,
    is_json,
)
from tidegate.formats.kinds.cloudevents.checks import check_attributes
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
_UNREADABLE: Final = "the name of a header is not UTF-8"


class EventDecoder(Decoder):
    """Decodes events into frames with exactly the columns of `output`."""

    def __init__(self, declared: Columns, output: Columns, options: FormatOptions) -> None:
        self._attributes = {name: kind for column, kind in declared if (name := attribute_of(column))}
        self._output = output
        wanted = {name for name, _ in output}
        fields = tuple(fields_of(dict(declared)).items())
        self._fields: JsonDecoder | None = None
        if fields:
            read = [one for one in fields if one[0] in wanted]
            self._fields = JsonDecoder(fields, read, options=options, needs_field=True)
        self._data = dict(declared).get(DATA)
        reads_data = bool(fields) or self._data is not None
        self._parser = StructuredParser(self._attributes, reads_data=reads_data)

    @override
    def decode(self, messages: Messages) -> Decoded:
        failures: dict[int, RecordFailure] = {}
        headers = _read_headers(messages, failures)
        structured = self._structured_rows(headers, failures)
        texts = self._texts(headers, failures)
        values: list[bytes | None] | None = None
        if structured:
            texts, values = self._take_apart(messages, structured, texts, failures)
        columns = check_attributes(self._attributes, texts, failures)
        self._check_content(texts["datacontenttype"], failures)
        return self._frame(messages, values, columns, failures)

    # -- attributes ----------------------------------------------------------------------------------------------------

    def _structured_rows(self, headers: _Headers, failures: dict[int, RecordFailure]) -> list[int]:
        """Returns the rows in structured mode, without those whose format is not supported."""
        types = _text_of(headers.column(CONTENT_TYPE))
        found = types.is_null() & ~headers.has_attributes()
        for text in types.unique().drop_nulls().to_list():
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
        return found.arg_true().to_list()

    def _texts(self, headers: _Headers, failures: dict[int, RecordFailure]) -> dict[str, pl.Series]:
        """Returns the attributes in headers."""
        texts: dict[str, pl.Series] = {}
        for name in self._attributes:
            header = CONTENT_TYPE if name == "datacontenttype" else f"{PREFIX}{name}"
            found = headers.column(header)
            text = _text_of(found)
            if text.null_count() != found.null_count():
                for row in (text.is_null() & found.is_not_null()).arg_true():
                    message = f"the header `{header}` is not UTF-8"
                    failures.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))
            texts[name] = text
        return texts

    def _take_apart(
        self,
        messages: Messages,
        structured: Sequence[int],
        texts: dict[str, pl.Series],
        failures: dict[int, RecordFailure],
    ) -> tuple[dict[str, pl.Series], list[bytes | None]]:
        """Returns the texts and the data of all rows, with those in structured mode taken from their values."""
        values = list(messages.values)
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
            texts[name] = found_text if len(rows) == len(values) else text.scatter(places, found_text)
        return texts, values

    # -- data ----------------------------------------------------------------------------------------------------------

    def _check_content(self, types: pl.Series, failures: dict[int, RecordFailure]) -> None:
        """Finds events whose data is not JSON although fields of it are read."""
        for text in types.unique().drop_nulls().to_list() if self._fields is not None else ():
            if is_json(text):
                continue
            message = (
                f"`datacontenttype` is {text[:60]!r}, and the source reads fields of JSON; `{DATA}` would hold any"
            )
            for row in (types == text).arg_true():
                failures.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))

    def _frame(
        self,
        messages: Messages,
        values: list[bytes | None] | None,
        columns: dict[str, pl.Series],
        failures: dict[int, RecordFailure],
    ) -> Decoded:
        data = self._read_data(messages, values, failures)
        bad = sorted(failures)
        if bad:
            good = ~pl.int_range(len(messages), eager=True).is_in(bad)
            columns = {name: column.filter(good) for name, column in columns.items()}
        height = len(messages) - len(bad)
        series = [
            (columns[name] if (name := attribute_of(column)) else data[column]).alias(column)
            for column, _ in self._output
        ]
        frame = pl.DataFrame(series) if series else pl.DataFrame(height=height)
        return Decoded(frame, sorted(failures.values(), key=attrgetter("row")))

    def _read_data(
        self, messages: Messages, values: list[bytes | None] | None, failures: dict[int, RecordFailure]
    ) -> dict[str, pl.Series]:
        """Returns columns with the rows that have no failure after it."""
        if self._fields is None:
            return self._whole_data(messages, values, failures) if self._data is not None else {}
        if values is None and not failures and messages.memory is not None:
            decoded = self._fields.decode(messages)
            found = messages.values if decoded.failures else ()
            if not any(found[one.row] in _NO_DATA for one in decoded.failures):
                failures |= {one.row: one for one in decoded.failures}
                return dict(zip(decoded.frame.columns, decoded.frame.get_columns(), strict=True))
        values = list(messages.values) if values is None else values
        rows = [row for row in range(len(values)) if row not in failures]
        bodies = [_NO_FIELDS if values[row] in _NO_DATA else values[row] for row in rows]
        decoded = self._fields.decode(cast("Messages", _Values(bodies)))
        failures |= {rows[one.row]: RecordFailure(rows[one.row], one.kind, one.message) for one in decoded.failures}
        return dict(zip(decoded.frame.columns, decoded.frame.get_columns(), strict=True))

    def _whole_data(
        self, messages: Messages, values: list[bytes | None] | None, failures: dict[int, RecordFailure]
    ) -> dict[str, pl.Series]:
        found = pl.Series(DATA, messages.values if values is None else values, dtype=polars_type(BINARY))
        if self._data == STRING:
            text = _text_of(found)
            for row in (text.is_null() & found.is_not_null()).arg_true():
                failures.setdefault(row, RecordFailure(row, FailureKind.NOT_UTF8, f"the data is not UTF-8: `{DATA}`"))
            found = text
        bad = sorted(failures)
        return {DATA: found.filter(~pl.int_range(len(found), eager=True).is_in(bad)) if bad else found}


# -- headers and values ------------------------------------------------------------------------------------------------


class _Headers:
    """The headers of a batch, by name."""

    def __init__(self, flat: FlatHeaders, rows: int) -> None:
        self._count = rows
        self._names, self._values = flat.names, flat.values
        self._rows = (
            pl.int_range(rows, dtype=pl.UInt32, eager=True).repeat_by(flat.counts).explode(empty_as_null=False)
            if len(flat.names)
            else pl.Series(dtype=pl.UInt32)
        )

    def column(self, name: str) -> pl.Series:
        """Returns the value of a header for each message; NULL if it has none. Of several the last one counts."""
        found = self._names == name
        rows, values = self._rows.filter(found), self._values.filter(found)
        if len(rows) == self._count and rows.n_unique() == self._count:
            return values
        last = rows != rows.shift(-1)
        if not last.fill_null(value=True).all():
            rows, values = rows.filter(last.fill_null(value=True)), values.filter(last.fill_null(value=True))
        places = pl.repeat(None, self._count, dtype=pl.UInt32, eager=True).scatter(
            rows, pl.int_range(len(rows), dtype=pl.UInt32, eager=True)
        )
        return values.gather(places)

    def has_attributes(self) -> pl.Series:
        """Returns whether messages have headers that look like attributes."""
        rows = self._rows.filter(self._names.str.starts_with(PREFIX))
        return pl.repeat(value=False, n=self._count, eager=True).scatter(rows, values=True)


def _text_of(values: pl.Series) -> pl.Series:
    """Returns bytes as text; NULL for what is not UTF-8."""
    try:
        return values.cast(pl.String)
    except pl.exceptions.ComputeError:
        return pl.Series(values.name, [_decoded(one) for one in values.to_list()], dtype=pl.String)


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _read_headers(messages: Messages, failures: dict[int, RecordFailure]) -> _Headers:
    flat = messages.flat_headers
    if flat is None:
        lists = messages.headers
        for row, one in enumerate(lists):
            if one is None:
                failures[row] = RecordFailure(row, FailureKind.NOT_UTF8, _UNREADABLE)
        flat = flatten_headers([one or () for one in lists])
    return _Headers(flat, len(messages))


class _Values:
    """Values that are Python objects as messages whose values lie in memory, so that C may read them."""

    def __init__(self, values: Sequence[bytes | None]) -> None:
        self.values = values
        present = cast("Sequence[bytes]", values)
        self._joined = b"".join(present)
        self._lengths = array("i", map(len, present))
        begin = ctypes.cast(ctypes.c_char_p(self._joined), ctypes.c_void_p).value or 0
        self._addresses = array("Q", accumulate(self._lengths[:-1], initial=begin))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def memory(self) -> ValueMemory:
        return ValueMemory(self._addresses.buffer_info()[0], self._lengths.buffer_info()[0], len(self.values))
