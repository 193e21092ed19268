"""Columns to events: attributes as headers or as members of the event's object, and the other columns as its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.datatypes import BINARY, STRING, DataType
from tidegate.formats.columns import cut_lists, polars_type
from tidegate.formats.contract import Columns, Encoded, Encoder
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.cloudevents.attributes import (
    CONTENT_TYPE,
    CORE,
    DATA,
    PREFIX,
    REQUIRED,
    SPECVERSION,
    attribute_of,
    fields_of,
    is_json,
    is_media_type,
)
from tidegate.formats.kinds.json.writer import json_objects
from tidegate.formats.record_parts import HEADERS_TYPE
from tidegate.formats.text import json_ready, timestamp_text

_JSON: Final = "application/json"
_STRUCTURED: Final = b"application/cloudevents+json; charset=UTF-8"
_HEADERS: Final = polars_type(HEADERS_TYPE)
_CHECK_JSON: Final = msgspec.json.Decoder(msgspec.Raw).decode
_SHOWN_MAX: Final = 60

Judge = Callable[[str], str]
"""Returns why a value of an attribute is not valid, or an empty text."""


def make_encoder(columns: Columns, constants: Mapping[str, str], *, structured: bool) -> Encoder:
    """Returns the encoder of one mode; `constants` are attributes with the same value in all events."""
    return _StructuredEncoder(columns, constants) if structured else _BinaryEncoder(columns, constants)


class _Attributes:
    """The attributes of the events of a sink."""

    def __init__(self, columns: Columns, constants: Mapping[str, str]) -> None:
        self._columns = {name: kind for column, kind in columns if (name := attribute_of(column))}
        self._constants = {"specversion": SPECVERSION, **constants}
        self._has_fields = bool(fields_of(dict(columns)))
        if self._has_fields:
            self._constants.setdefault("datacontenttype", _JSON)
        names = dict.fromkeys((*REQUIRED, *CORE, *self._columns, *self._constants))
        self.kinds = {
            name: self._columns.get(name, STRING) for name in names if name in self._columns or name in self._constants
        }
        """Names and types of all attributes that events may have, in their order in events."""
        content = _judge_field_type if self._has_fields else _judge_type
        judges: dict[str, Judge] = {"specversion": _judge_version, "datacontenttype": content}
        self._judges = {name: judge for name, judge in judges.items() if name in self._columns}

    def is_json(self, name: str) -> bool:
        """Returns whether a column is the content type of data that is JSON unless it is set."""
        return name == "datacontenttype" and self._has_fields

    def constant_members(self) -> str:
        """Returns the members of an event that are the same in all, each followed by a comma."""
        text = msgspec.json.encode({name: self._constants[name] for name in self.kinds if name not in self._columns})
        inside = text.decode()[1:-1]
        return f"{inside}," if inside else ""

    def values(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Returns a column for each attribute; NULL for an event that does not have it."""
        return pl.DataFrame([self._value(frame, name).alias(name) for name in self.kinds])

    def _value(self, frame: pl.DataFrame, name: str) -> pl.Series:
        if name not in self._columns:
            return pl.Series([self._constants[name]]).new_from_index(0, frame.height)
        value = frame.get_column(f"{PREFIX}{name}")
        return (
            value.fill_null(_JSON) if name == "datacontenttype" and self._has_fields and value.null_count() else value
        )

    def failures(self, values: pl.DataFrame) -> dict[int, RecordFailure]:
        """Returns the rows whose attributes are not valid."""
        found: dict[int, RecordFailure] = {}

        def fail(rows: pl.Series, message: str) -> None:
            for row in rows.arg_true():
                found.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))

        for name in self._columns:
            column = values[name]
            if name in REQUIRED and column.null_count():
                fail(column.is_null(), f"`{PREFIX}{name}` is NULL, but an event needs it")
            if name in CORE and column.dtype == pl.String:
                fail(column == "", f"`{PREFIX}{name}` is empty")
        for name, judge in self._judges.items():
            for text in values[name].unique().drop_nulls().to_list():
                reason = judge(text)
                if reason:
                    fail(values[name] == text, f"`{PREFIX}{name}` is {text[:_SHOWN_MAX]!r}, {reason}")
        return found


def _judge_version(text: str) -> str:
    return "" if text == SPECVERSION else f"but events are written in {SPECVERSION}"


def _judge_type(text: str) -> str:
    return "" if is_media_type(text) else "which is not a media type"


def _judge_field_type(text: str) -> str:
    return "" if is_json(text) else "but the data is an object in JSON"


def _sorted(failures: Mapping[int, RecordFailure]) -> Sequence[RecordFailure]:
    return [failures[row] for row in sorted(failures)]


# -- binary mode -------------------------------------------------------------------------------------------------------


class _BinaryEncoder(Encoder):
    """Attributes are headers, and the value is the data."""

    def __init__(self, columns: Columns, constants: Mapping[str, str]) -> None:
        self._attributes = _Attributes(columns, constants)
        fields = tuple(fields_of(dict(columns)).items())
        if fields:
            data = json_objects(fields)
        else:
            data = pl.col(DATA).cast(pl.Binary) if DATA in dict(columns) else pl.lit(None, dtype=pl.Binary)
        self._data = data.alias("value")
        kinds = self._attributes.kinds
        self._texts = [_header_text(pl.col(name), kind).cast(pl.Binary).alias(name) for name, kind in kinds.items()]
        names = [CONTENT_TYPE if name == "datacontenttype" else f"{PREFIX}{name}" for name in kinds]
        self._names = pl.Series(names, dtype=pl.String)
        self._places: tuple[pl.Series, pl.Series] | None = None
        """Of the last batch, since most have the same number of rows: where values are, and the names of headers."""

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        values = self._attributes.values(frame)
        failures = self._attributes.failures(values)
        data = frame.with_columns(self._data).get_column("value")
        return Encoded(pl.DataFrame([data, self._headers(values.select_seq(self._texts))]), _sorted(failures))

    def _headers(self, texts: pl.DataFrame) -> pl.Series:
        """Cuts one flat column, which lists each row's headers in the order of the attributes, without NULLs."""
        rows, width = texts.height, texts.width
        if self._places is None or len(self._places[0]) != rows * width:
            places = pl.int_range(rows * width, eager=True)
            self._places = places % width * rows + places // width, self._names.gather(places % width).alias("key")
        places, names = self._places
        values = pl.concat(texts.get_columns(), rechunk=True).gather(places).alias("value")
        flat = pl.DataFrame([names, values])
        if not values.null_count() and rows:
            return flat.to_struct("headers").reshape((rows, width)).arr.to_list()
        known = values.is_not_null()
        ends = known.cast(pl.Int64).cum_sum().gather_every(width, width - 1)
        starts = ends.shift(1, fill_value=0)
        return cut_lists(flat.filter(known).to_struct(), starts, ends).alias("headers")


def _header_text(value: pl.Expr, kind: DataType) -> pl.Expr:
    if kind.kind == "timestamp":
        return timestamp_text(value, pl.Datetime("us", "UTC"))
    if kind == BINARY:
        return value.bin.encode("base64")
    return value.cast(pl.String)


# -- structured mode ---------------------------------------------------------------------------------------------------


class _StructuredEncoder(Encoder):
    """The value is an object of attributes and data."""

    def __init__(self, columns: Columns, constants: Mapping[str, str]) -> None:
        self._attributes = _Attributes(columns, constants)
        own = [name for name in self._attributes.kinds if f"{PREFIX}{name}" in dict(columns)]
        members = {name: self._member(name) for name in own}
        always = [name for name in own if name in REQUIRED or self._attributes.is_json(name)]
        self._optional = [name for name in own if name not in always]
        head = pl.lit("{" + self._attributes.constant_members())
        # Null would be allowed, but some readers expect that a member that is there has a value.
        self._some = [
            head,
            _members([members[name] for name in always]),
            *(
                pl.when(pl.col(f"{PREFIX}{name}").is_not_null())
                .then("," + _members([members[name]]))
                .otherwise(pl.lit(""))
                for name in self._optional
            ),
        ]
        """The texts of the attributes."""
        self._all = [head, _members(list(members.values()))]
        """The same for rows that have all optional attributes, in half of the time."""
        fields = tuple(fields_of(dict(columns)).items())
        self._fields = [pl.lit(',"data":'), json_objects(fields).cast(pl.String)] if fields else None
        self._whole = dict(columns).get(DATA)
        self._headers = pl.Series("headers", [[{"key": CONTENT_TYPE, "value": _STRUCTURED}]], dtype=_HEADERS)

    def _member(self, name: str) -> pl.Expr:
        value = json_ready(pl.col(f"{PREFIX}{name}"), polars_type(self._attributes.kinds[name]))
        return (value.fill_null(_JSON) if self._attributes.is_json(name) else value).alias(name)

    @override
    def encode(self, frame: pl.DataFrame) -> Encoded:
        values = self._attributes.values(frame)
        failures = self._attributes.failures(values)
        begin = self._some if any(frame[f"{PREFIX}{name}"].null_count() for name in self._optional) else self._all
        data = self._fields or []
        if self._whole is not None:
            data = [pl.lit(self._data(frame.get_column(DATA), values, failures))]
        text = pl.concat_str([*begin, *data, pl.lit("}")]).cast(pl.Binary).alias("value")
        headers = self._headers.new_from_index(0, frame.height)
        return Encoded(frame.select_seq(text).with_columns(headers), _sorted(failures))

    def _data(self, data: pl.Series, values: pl.DataFrame, failures: dict[int, RecordFailure]) -> pl.Series:
        """Returns the member for the data as a whole, after a comma; empty for an event without data."""
        name = "data_base64" if self._whole == BINARY else "data"
        member = "," + _members([json_ready(pl.col(DATA), data.dtype).alias(name)])
        has_data = pl.col(DATA).is_not_null()
        texts = pl.DataFrame([data]).select(pl.when(has_data).then(member).otherwise(pl.lit(""))).to_series()
        if self._whole == BINARY:
            return texts
        as_json = pl.Series(values=[True]).new_from_index(0, len(data))
        if "datacontenttype" in values.columns:
            types = values["datacontenttype"]
            others = [one for one in types.unique().drop_nulls().to_list() if not is_json(one)]
            as_json = types.is_null() | ~types.is_in(others)
        for row in (as_json & data.is_not_null()).arg_true():
            try:
                _CHECK_JSON(data[row])
            except ValueError as error:
                message = f"`{DATA}` must be JSON because of its `datacontenttype`: {error}"
                failures.setdefault(row, RecordFailure(row, FailureKind.INVALID_EVENT, message))
        return texts.zip_with(~as_json, (',"data":' + data).fill_null(""))


def _members(members: Sequence[pl.Expr]) -> pl.Expr:
    """Returns what Polars writes between the braces of an object."""
    return pl.struct(members).struct.json_encode().str.strip_prefix("{").str.strip_suffix("}")
