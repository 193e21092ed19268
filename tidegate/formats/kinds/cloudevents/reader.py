"""Events to columns: attributes from headers or from the event's object, and its data by the JSON reader.

In both modes an event becomes the texts of its attributes and the bytes of its data. What is wrong with them is found
column by column. Events in structured mode are decoded in C where that is certain, otherwise taken apart one by one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.datatypes import BINARY, STRING, DataType, Schema
from tidegate.formats.columns import polars_type, read_utf8
from tidegate.formats.contract import Columns, Decoded, Decoder, FlatHeaders, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.in_memory import Certain, MemoryDecoder
from tidegate.formats.kinds.cloudevents.attributes import (
    CONTENT_TYPE,
    CORE,
    DATA,
    JSON_TYPE,
    PREFIX,
    REQUIRED,
    SPECVERSION,
    attribute_of,
    fields_of,
    is_json,
)
from tidegate.formats.kinds.cloudevents.checks import AttributeReader, is_suspect
from tidegate.formats.kinds.json.reader import JsonDecoder, explain_failure
from tidegate.formats.schemas import FormatOptions, UnknownFields
from tidegate.native.columns import Rows
from tidegate.native.json import ZONED, RecordDecoder, is_supported
from tidegate.native.library import loaded

_DATA = "data"
_BASE64 = "data_base64"
_CERTAIN = "data is certain"


class CertainEvents(Certain):
    """Decodes events in structured mode."""

    def __init__(self, decoder: RecordDecoder, attributes: Schema, fields: Columns, output: Columns) -> None:
        self._decoder = decoder
        self._certain = pl.all_horizontal(
            pl.col(_BASE64).is_null(),
            *(pl.col(name).is_not_null() for name in REQUIRED),
            *((pl.col(name) != "").fill_null(value=True) for name in CORE if attributes[name] == STRING),
            pl.col("specversion") == SPECVERSION,
            pl.col("datacontenttype").is_null() | pl.col("datacontenttype").str.contains(JSON_TYPE),
            *([_any_field(fields)] if fields else []),
        ).alias(_CERTAIN)
        self._attributes = attributes
        self._has_fields = bool(fields)
        self._output = [(column, attribute_of(column)) for column, _ in output]

    @override
    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        frame, left = self._decoder.decode(addresses, lengths, count)
        data = frame.get_column(_DATA).struct.unnest() if self._has_fields else None
        found = [
            (frame.get_column(name) if name or data is None else data.get_column(column)).alias(column)
            for column, name in self._output
        ]
        rows = pl.DataFrame(found) if found else pl.DataFrame(height=frame.height)
        if self._are_certain(frame, data):
            return Rows(rows, left)
        certain = frame.select(self._certain).to_series()
        before = set(left)
        taken = [row for row in range(count) if row not in before]
        left = sorted([*left, *(taken[place] for place in (~certain).arg_true())])
        return Rows(rows.filter(certain) if found else pl.DataFrame(height=count - len(left)), left)

    def _are_certain(self, frame: pl.DataFrame, data: pl.DataFrame | None) -> bool:
        """Returns whether all rows are for sure. Most batches are, and few comparisons show that."""
        if frame.get_column(_BASE64).null_count() != frame.height:
            return False
        if data is not None and all(column.null_count() for column in data.get_columns()):
            return False
        texts = {
            name: frame.get_column(name) for name, kind in self._attributes.items() if name in CORE and kind == STRING
        }
        return not is_suspect(texts)


def _any_field(fields: Columns) -> pl.Expr:
    return pl.any_horizontal(pl.col(_DATA).struct.field(name).is_not_null() for name, _ in fields)


def find_certain(attributes: Schema, fields: Columns, output: Columns, options: FormatOptions) -> CertainEvents | None:
    """Returns a decoder in C; None if the library is not available or does not support a type or an option."""
    library = loaded()
    members = [(name, ZONED if kind.kind == "timestamp" else kind) for name, kind in attributes.items()]
    data = DataType("struct", fields=tuple(fields))
    record = DataType("struct", fields=(*members, *([(_DATA, data)] if fields else []), (_BASE64, STRING)))
    if library is None or options.unknown_fields is not UnknownFields.SKIP or not is_supported(record):
        return None
    decoder = RecordDecoder(library.free, record, [name for name, _ in record.fields], strict=False)
    return CertainEvents(decoder, attributes, fields, output)


_TRUTHS: Final = {True: "true", False: "false"}
_TEXT: Final = msgspec.json.Decoder(str).decode


class Parsed(msgspec.Struct, frozen=True):
    """The parts of one event."""

    attributes: Sequence[str | None]
    """The texts of the attributes, in the order of their names."""
    data: bytes | None
    """None if the event has no data."""


class StructuredParser:
    """Takes events apart."""

    def __init__(self, attributes: Schema, *, reads_data: bool) -> None:
        """`attributes` are the names and types of those that are read; without `reads_data` data is skipped."""
        extension = str | int | bool
        members: list[tuple[str, Any, Any]] = [
            (f"f{index}", (str if (kind == STRING and name in CORE) or name == "time" else extension) | None, None)
            for index, (name, kind) in enumerate(attributes.items())
        ]
        names = {f"f{index}": name for index, name in enumerate(attributes)}
        members += [
            ("data", msgspec.Raw if reads_data else Any, msgspec.UNSET),
            ("data_base64", str | None, None),
        ]
        event = msgspec.defstruct("Event", members, rename=names, gc=False)
        self._decode = msgspec.json.Decoder(event).decode
        self._plain = [name in CORE for name in attributes]
        self._content_type = list(attributes).index("datacontenttype")
        self._reads_data = reads_data

    def parse(self, row: int, value: bytes | None) -> Parsed | RecordFailure:
        """Takes one event apart. Never raises for what it contains."""
        try:
            event = self._decode(value or b"")
        except (ValueError, TypeError, RecursionError) as error:
            return explain_failure(row, value, error)
        *found, data, data_base64 = msgspec.structs.astuple(event)
        texts = [
            one if plain or one is None or one.__class__ is str else _canonical(one)
            for one, plain in zip(found, self._plain, strict=True)
        ]
        if data_base64 is not None and data is not msgspec.UNSET:
            return RecordFailure(row, FailureKind.INVALID_EVENT, "it has both `data` and `data_base64`")
        if not self._reads_data:
            return Parsed(texts, None)
        try:
            return Parsed(texts, _data_of(data, data_base64, texts[self._content_type]))
        except ValueError as error:
            return RecordFailure(row, FailureKind.INVALID_EVENT, str(error))


def _canonical(value: Any) -> str:
    return _TRUTHS[value] if isinstance(value, bool) else str(value)


def _data_of(data: Any, data_base64: str | None, content_type: str | None) -> bytes | None:
    """Returns what would be the value in binary mode. Raises ValueError."""
    if data_base64 is not None:
        try:
            return base64.b64decode(data_base64, validate=True)
        except ValueError:
            raise ValueError("`data_base64` is not base64") from None
    if data is msgspec.UNSET:
        return None
    raw = bytes(data)
    if content_type is None or is_json(content_type):
        return raw
    try:
        return _TEXT(raw).encode()
    except UnicodeDecodeError:
        raise ValueError("`data` is not UTF-8") from None
    except msgspec.DecodeError:
        raise ValueError(
            f"`data` is not a string, but the `datacontenttype` is {content_type[:60]}, not JSON"
        ) from None


_UNREADABLE: Final = "the name of a header is not UTF-8"
_WIDTH_MAX: Final = 64


class EventHeaders:
    """The headers of a batch, by name. Of several with one name the last one counts."""

    def __init__(self, messages: Messages, failures: dict[int, RecordFailure]) -> None:
        """Messages whose headers cannot be read fail."""
        self._count = len(messages)
        flat = messages.flat_headers
        self._alike = None if flat is None else _split(flat, self._count)
        """The texts of all headers, if all messages have the same names in the same order."""
        if self._alike is None:
            lists = messages.headers
            self._each = [dict(one or ()) for one in lists]
            for row in [row for row, one in enumerate(lists) if one is None]:
                failures[row] = RecordFailure(row, FailureKind.NOT_UTF8, _UNREADABLE)

    def text(self, name: str, failures: dict[int, RecordFailure]) -> pl.Series:
        """Returns the text of a header for each message; NULL if it has none, or one that is not UTF-8, which fails."""
        if self._alike is not None:
            found = self._alike.get(name)
            return pl.Series(name, [None], dtype=pl.String).new_from_index(0, self._count) if found is None else found
        values = pl.Series(name, [one.get(name) for one in self._each], dtype=pl.Binary)
        text = read_utf8(values)[0]
        for row in (text.is_null() & values.is_not_null()).arg_true():
            message = f"the header `{name}` is not UTF-8"
            failures.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))
        return text

    def have_attributes(self) -> pl.Series:
        """Returns for each message whether it has headers that look like attributes."""
        if self._alike is not None:
            return pl.Series([any(map(_is_attribute, self._alike))]).new_from_index(0, self._count)
        return pl.Series([any(map(_is_attribute, one)) for one in self._each], dtype=pl.Boolean)


def _is_attribute(name: str) -> bool:
    return name.startswith(PREFIX)


def _split(flat: FlatHeaders, rows: int) -> dict[str, pl.Series] | None:
    """Returns one column for each header that all messages have, in one pass; None if they differ in their headers."""
    if not len(flat.names):
        return {}
    width, rest = divmod(len(flat.names), rows)
    if rest or width > _WIDTH_MAX or flat.counts.min() != width or flat.counts.max() != width:
        return None
    names = flat.names.head(width).to_list()
    frame = pl.DataFrame([flat.names.alias("key"), flat.values.alias("value")])
    same = [pl.col("key").gather_every(width, place) == name for place, name in enumerate(names)]
    if not frame.select(pl.all_horizontal(one.all() for one in same)).item():
        return None
    texts = {
        name: pl.col("value").gather_every(width, place).cast(pl.String).alias(name) for place, name in enumerate(names)
    }
    try:
        return {column.name: column for column in frame.select(texts.values())}
    except pl.exceptions.ComputeError:  # some are not UTF-8
        return None


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
                message = f"it is {what}, but only single events in JSON are supported"
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
                f"`datacontenttype` is {text[:60]!r}, but the source reads fields of JSON; the column `{DATA}` "
                "would hold any data"
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
            text = read_utf8(found)[0]
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
