"""CloudEvents: both modes read and written, compared with the Python SDK, and what is refused."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import polars as pl
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka, to_binary, to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.formats.batches import messages_of
from tests.formats.memory_batches import Loaded
from tests.native.values import NativeValues
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import Schema
from tidegate.formats.columns import plain_values, polars_type
from tidegate.formats.contract import Decoded, FormatRefusal, Headers, Messages, ValueMemory
from tidegate.formats.kinds.cloudevents import FORMAT
from tidegate.formats.kinds.cloudevents import reader as event_reader
from tidegate.formats.kinds.json import reader
from tidegate.formats.part_values import flatten_headers, header_pairs
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas, UnknownFields

Event = tuple[bytes | None, Headers]
"""Value and headers."""
CORE: Final = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def binary(value: bytes | None, content_type: str | None = "application/json", **attributes: str) -> Event:
    found = [(f"ce_{name}", text.encode()) for name, text in {**CORE, **attributes}.items() if text != "-"]
    return value, [*found, *([] if content_type is None else [("content-type", content_type.encode())])]


def structured(content_type: str | None = "application/cloudevents+json", /, **members: Any) -> Event:
    event = {name: value for name, value in {**CORE, **members}.items() if value != "-"}
    headers = [] if content_type is None else [("content-type", content_type.encode())]
    return json.dumps(event).encode(), headers


def columns_of(**declared: str) -> Schema:
    return {name: derive_type(kind) for name, kind in declared.items()}


def decode(
    declared: Schema, events: Sequence[Event], options: FormatOptions = NO_OPTIONS, read: Sequence[str] | None = None
) -> Decoded:
    columns = dict(FORMAT.read_columns(declared))
    output = tuple((name, kind) for name, kind in columns.items() if read is None or name in read)
    decoder = FORMAT.decoder(tuple(columns.items()), output, options, KnownSchemas())
    messages = msgspec.structs.replace(messages_of([value for value, _ in events]), headers=[own for _, own in events])
    decoded, in_place = decoder.decode(messages), decoder.decode(cast("Messages", InPlace(events)))
    assert isinstance(decoded, Decoded)
    assert isinstance(in_place, Decoded)
    assert in_place.frame.equals(decoded.frame)  # where there is C
    assert in_place.failures == decoded.failures
    assert dict(decoded.frame.schema) == {name: polars_type(kind) for name, kind in output}
    assert decoded.frame.height + len(decoded.failures) == len(events)
    return decoded


class InPlace:
    """The same with values in memory and headers as columns."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.values = [value for value, _ in events]
        self._there = NativeValues(self.values)
        self.memory = ValueMemory(self._there.addresses, self._there.lengths, len(events))
        self.headers = [own for _, own in events]
        self.flat_headers = flatten_headers(self.headers)

    def __len__(self) -> int:
        return len(self.values)


def section(mode: str, **constants: str) -> FormatOptions:
    return FormatOptions(settings={"mode": mode, **({"attributes": constants} if constants else {})})


def encode(
    frame: pl.DataFrame, columns: Schema, options: FormatOptions, *, failing: Mapping[int, str] | None = None
) -> list[Event]:
    written = FORMAT.written_columns(columns, options)
    encoded = FORMAT.encoder(tuple(written.items()), options).encode(frame)
    assert {one.row: one.message for one in encoded.failures} == (failing or {})
    pairs = header_pairs(encoded.columns["headers"])
    return [(value, own or ()) for value, own in zip(encoded.columns["value"].to_list(), pairs, strict=True)]


def sdk_event(event: Event) -> CloudEvent:
    value, headers = event
    names = [name for name, _ in headers]
    assert len(set(names)) == len(names)
    message = KafkaMessage(headers={name: data or b"" for name, data in headers}, key=None, value=value or b"")
    found = from_kafka(message, JSONFormat(), CloudEvent)
    assert isinstance(found, CloudEvent)
    return found


def attributes_of(event: Event) -> dict[str, Any]:
    """The attributes as the SDK reads them, without the time that it adds."""
    found = dict(sdk_event(event).get_attributes())
    if not (any(name == "ce_time" for name, _ in event[1]) or b'"time":' in (event[0] or b"")):
        del found["time"]
    return found


def event_of_sdk(message: KafkaMessage) -> Event:
    return message.value, list(message.headers.items())


# -- reading -----------------------------------------------------------------------------------------------------------


def test_both_modes_are_read_in_one_batch() -> None:
    events = [
        binary(b'{"n":1}', ce_seq="-", seq="7", time="2026-01-01T00:00:00.5+01:00", subject="s"),
        structured(n=0, seq=8, data={"n": 2}, dataschema="http://x"),
        binary(b'{"n":3}', content_type=None),
        structured("application/cloudevents+json; charset=UTF-8", data={"n": 4}, subject=None, unknown=[1]),
        structured("Application/CloudEvents", data={"n": 5}),
        structured(None, data={"n": 6}),
    ]
    frame, failures = decode(columns_of(n="bigint", ce_seq="int"), events)
    assert not failures
    assert frame["n"].to_list() == [1, 2, 3, 4, 5, 6]
    assert frame["ce_seq"].to_list() == [7, 8, None, None, None, None]
    assert frame["ce_id"].to_list() == ["1"] * 6
    assert frame["ce_subject"].to_list() == ["s", None, None, None, None, None]
    assert frame["ce_dataschema"].to_list() == [None, "http://x", None, None, None, None]
    assert frame["ce_datacontenttype"].to_list() == ["application/json", None, None, None, None, None]
    assert frame["ce_time"].to_list()[0] == dt.datetime(2025, 12, 31, 23, 0, 0, 500000, dt.UTC)


@pytest.mark.parametrize("make", [binary, structured], ids=["binary", "structured"])
@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"id": "-"}, "the event has no `id`"),
        ({"source": "-"}, "the event has no `source`"),
        ({"type": "-"}, "the event has no `type`"),
        ({"specversion": "-"}, "the event has no `specversion`"),
        ({"id": ""}, "`id` is empty"),
        ({"source": ""}, "`source` is empty"),
        ({"type": ""}, "`type` is empty"),
        ({"specversion": ""}, "`specversion` is empty"),
        ({"specversion": "0.9"}, "`specversion` is '0.9', but only 1.0 is supported"),
        ({"subject": ""}, "`subject` is empty"),
        ({"dataschema": ""}, "`dataschema` is empty"),
        ({"time": "lunchtime"}, "`time` is 'lunchtime', not a time of RFC 3339 in the years 1 to 9999"),
        ({"time": "2018-04-05T18:31Z"}, "`time` is '2018-04-05T18:31Z', not a time"),
        ({"time": "2018-04-05T18:31:00"}, "not a time of RFC 3339"),
        ({"time": "2018-04-05T18:31:00X"}, "not a time of RFC 3339"),
        ({"time": "2018-04-05T18:31:00+25:00"}, "not a time of RFC 3339"),
        ({"time": "2018-04-05T18:31:00+xx:00"}, "not a time of RFC 3339"),
        ({"time": "2018-04-05T18:31:00+05"}, "not a time of RFC 3339"),
        ({"time": "2018-02-30T18:31:00Z"}, "not a time of RFC 3339"),
        ({"time": "9999-12-31T23:59:59-01:00"}, "in the years 1 to 9999"),
        ({"seq": "x"}, "`seq` is 'x', no int"),
        ({"seq": str(2**31)}, "`seq` is '2147483648', no int"),
        ({"seq": "+1"}, "`seq` is '+1', no int"),
        ({"flag": "True"}, "`flag` is 'True', no boolean"),
        ({"bytes": "a"}, "`bytes` is 'a', no binary"),
        ({"at": "1"}, "`at` is '1', not a time of RFC 3339"),
    ],
)  # fmt: skip
def test_an_event_with_an_attribute_that_is_missing_or_not_valid_is_bad(
    make: Any, attributes: dict[str, str], reason: str
) -> None:
    event = make(b"{}", **attributes) if make is binary else make(**attributes)
    good = binary(b"{}") if make is binary else structured()
    declared = columns_of(n="bigint", ce_seq="int", ce_flag="boolean", ce_bytes="binary", ce_at="timestamp")
    read = None if make is binary else ()  # it is bad whatever is read
    frame, failures = decode(declared, [good, event, good], read=read)
    assert frame.height == 2
    assert [(one.row, str(one.kind)) for one in failures] == [(1, "INVALID_EVENT")]
    assert reason in failures[0].message


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (structured(id=25), "WRONG_TYPE: Expected `string | null`, got `integer` - at `$.id`"),
        (structured(id={"a": 1}), "WRONG_TYPE: Expected `string | null`, got `object` - at `$.id`"),
        (structured(seq=1.5), "WRONG_TYPE: "),
        (structured(datacontenttype="xyz"), "INVALID_EVENT: `datacontenttype` is 'xyz'"),
        (structured(datacontenttype=""), "INVALID_EVENT: `datacontenttype` is empty"),
        (structured(data={}, data_base64="e30="), "INVALID_EVENT: it has both `data` and `data_base64`"),
        (structured(data_base64="??"), "INVALID_EVENT: `data_base64` is not base64"),
        (structured(data={"n": "x"}), "WRONG_TYPE: Expected `integer | null`, got `string` - at `$.n`"),
        (structured(data={"other": 1}), "NO_DECLARED_FIELD: "),
        (structured(data=[1]), "WRONG_TYPE: Expected `object`, got `array`"),
        (structured(datacontenttype="text/plain", data="x"), "`datacontenttype` is 'text/plain', but the source reads"),
        (
            structured("application/cloudevents-batch+json"),
            "it is a batch of events, but only single events in JSON are",
        ),
        (structured("application/cloudevents+avro"), "it is an event in the format application/cloudevents+avro"),
        ((b"[]", [("content-type", b"application/cloudevents+json")]), "WRONG_TYPE: Expected `object`, got `array`"),
        ((b"{", []), "MALFORMED_JSON: "),
        ((b"\x80", []), "MALFORMED_JSON: "),
        ((b"", []), "EMPTY_VALUE: the value is empty"),
        ((None, []), "NULL_VALUE: "),
        ((b"{}", [("content-type", b"application/json")]), "INVALID_EVENT: the event has no `id`"),
        ((b"{}", [("ce_id", b"\xff")]), "INVALID_EVENT: the header `ce_id` is not UTF-8"),
        (binary(b"{}", content_type="text"), "INVALID_EVENT: `datacontenttype` is 'text'"),
        (binary(b"{"), "MALFORMED_JSON: "),
        (binary(b'{"n":1.5}'), "WRONG_TYPE: "),
        (binary(b"x", content_type="text/plain"), "`datacontenttype` is 'text/plain', but the source reads fields"),
    ],
)
def test_a_bad_event_has_its_kind_and_the_others_are_rows(event: Event, reason: str) -> None:
    good = [binary(b'{"n":1}'), structured(data={"n": 2})]
    frame, failures = decode(columns_of(n="bigint", ce_seq="int"), [good[0], event, good[1], event])
    assert frame["n"].to_list() == [1, 2]
    assert [one.row for one in failures] == [1, 3]
    assert reason in str(failures[0])


def test_the_name_of_a_header_that_is_not_utf8_is_bad() -> None:
    messages = msgspec.structs.replace(messages_of([b"{}"]), headers=[None])
    columns = tuple(FORMAT.read_columns({}).items())
    decoded = FORMAT.decoder(columns, columns, NO_OPTIONS, KnownSchemas()).decode(messages)
    assert isinstance(decoded, Decoded)
    assert [str(one.kind) for one in decoded.failures] == ["NOT_UTF8"]


def test_events_without_data_are_rows_of_nulls() -> None:
    events = [binary(None), binary(b""), binary(b"null"), structured(), structured(data=None), structured(data={})]
    frame, failures = decode(columns_of(n="bigint"), events)
    assert not failures
    assert frame["n"].to_list() == [None] * 6


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_data_is_read_as_a_whole(kind: str) -> None:
    events = [
        binary(b"<x/>", content_type="application/xml"),
        structured(datacontenttype="application/xml", data="<x/>"),
        structured(datacontenttype="application/xml", data_base64=base64.b64encode(b"<x/>").decode()),
        binary(b"[1, 2]"),
        (b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":[1, 2]}', []),
        structured(data="text"),
        binary(None),
        structured(),
    ]
    frame, failures = decode(columns_of(ce_data=kind), events)
    assert not failures
    expected = ["<x/>", "<x/>", "<x/>", "[1, 2]", "[1, 2]", '"text"', None, None]
    as_text = frame["ce_data"].cast(pl.String).to_list()
    assert as_text == expected


def test_data_that_is_no_text_is_bad_only_as_text() -> None:
    events = [binary(b"\xff", content_type="image/png"), structured(datacontenttype="image/png", data_base64="/w==")]
    assert decode(columns_of(ce_data="binary"), events).frame["ce_data"].to_list() == [b"\xff"] * 2
    failures = decode(columns_of(ce_data="string"), events).failures
    assert [str(one) for one in failures] == ["NOT_UTF8: the data is not UTF-8: `ce_data`"] * 2
    assert not decode({}, events).failures  # nobody reads it


@pytest.mark.parametrize("event", [binary(b'{"n":1,"m":[2]}'), structured(data={"n": 1, "m": [2]})])
def test_unknown_fields_of_the_data_are_skipped_kept_or_fail(event: Event) -> None:
    declared = columns_of(n="bigint")
    assert not decode(declared, [event]).failures
    (failure,) = decode(declared, [event], FormatOptions(unknown_fields=UnknownFields.FAIL)).failures
    assert str(failure.kind) == "UNKNOWN_FIELD"
    keep = FormatOptions(unknown_fields=UnknownFields.KEEP, rest="rest")
    frame, _ = decode(columns_of(n="bigint", rest="map<string, string>"), [event], keep)
    assert plain_values(frame["rest"])[0][0][0] == "m"


def test_of_repeated_headers_the_last_one_counts() -> None:
    value, headers = binary(b"{}")
    frame, _ = decode({}, [(value, [*headers, ("ce_id", b"2")]), (value, headers)])
    assert frame["ce_id"].to_list() == ["2", "1"]


@pytest.mark.parametrize("make", [binary, structured], ids=["binary", "structured"])
def test_ordinary_events_are_decoded_where_they_are(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the comparisons above would compare one way with itself."""
    for module in (reader, event_reader):
        monkeypatch.setattr(module, "loaded", Loaded)

    class Unread(InPlace):
        values = property(lambda _self: pytest.fail("objects were made of values"))

        def __init__(self, events: Sequence[Event]) -> None:
            self._there = NativeValues([value for value, _ in events])
            self.memory = ValueMemory(self._there.addresses, self._there.lengths, len(events))
            self.flat_headers = flatten_headers([own for _, own in events])

        def __len__(self) -> int:
            return self.memory.rows

    own = {"time": "2026-01-01T00:00:00.5+01:00", "subject": "s"}
    event = binary(b'{"n":1}', seq="5", **own) if make is binary else structured(data={"n": 1}, seq=5, **own)
    columns = tuple(FORMAT.read_columns(columns_of(n="bigint", ce_seq="int")).items())
    decoder = FORMAT.decoder(columns, columns, NO_OPTIONS, KnownSchemas())
    decoded = decoder.decode(cast("Messages", Unread([event, event])))
    assert isinstance(decoded, Decoded)
    assert decoded.frame["n"].to_list() == [1, 1]
    assert decoded.frame["ce_seq"].to_list() == [5, 5]


# -- columns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"ce_time": "string"}, "`ce_time` is string, but the attribute is timestamp"),
        ({"ce_id": "bigint"}, "`ce_id` is bigint, but the attribute is string"),
        ({"ce_trace_id": "string"}, "`ce_trace_id` is not an attribute of an event"),
        ({"ce_X": "string"}, "`ce_X` is not an attribute of an event"),
        ({"ce_x": "bigint"}, "`ce_x` is bigint, which is not a type of attributes"),
        ({"ce_data": "bigint"}, "`ce_data` is bigint, but it holds the data of an event"),
        ({"ce_data": "string", "n": "int"}, "`ce_data` is all the data of an event, but `n` is a field of it"),
    ],
)
def test_columns_that_no_event_has_are_refused(declared: dict[str, str], reason: str) -> None:
    with pytest.raises(FormatRefusal) as caught:
        FORMAT.read_columns(columns_of(**declared))
    assert reason in caught.value.message
    with pytest.raises(FormatRefusal):
        FORMAT.written_columns(columns_of(**declared, **{} if "ce_id" in declared else {"ce_id": "string"}))


@pytest.mark.parametrize(
    ("constants", "reason", "setting"),
    [
        ({"type": "t"}, "events need the attribute `source`, but there is no column `ce_source`", ""),
        ({"type": "t", "source": "/s", "id": "1"}, "`id` differs from event to event", "attributes"),
        ({"type": "t", "source": "/s", "subject": "x"}, "there is also a column `ce_subject`", "attributes"),
        ({"type": "t", "source": "/s", "specversion": "0.3"}, "`specversion` is '0.3'", "attributes"),
        ({"type": "t", "source": "/s", "trace_id": "0.3"}, "`ce_trace_id` is not an attribute", "attributes"),
    ],
)
def test_attributes_that_are_missing_or_set_twice_are_refused(
    constants: dict[str, str], reason: str, setting: str
) -> None:
    columns = columns_of(**({} if "id" in constants else {"ce_id": "string"}), ce_subject="string")
    with pytest.raises(FormatRefusal) as caught:
        FORMAT.written_columns(columns, section("binary", **constants))
    assert reason in caught.value.message
    assert caught.value.setting == setting


def test_a_sink_without_ids_is_refused_with_a_way_to_make_them() -> None:
    with pytest.raises(FormatRefusal) as caught:
        FORMAT.written_columns(columns_of(n="int"), section("binary", type="t", source="/s"))
    assert "concat_ws('-', topic, partition, offset)" in caught.value.remedy


# -- writing -----------------------------------------------------------------------------------------------------------

ATTRIBUTES: Final = columns_of(
    ce_id="string", ce_subject="string", ce_time="timestamp", ce_n="int", ce_flag="boolean", ce_bytes="binary"
)
CONSTANTS: Final = {"type": "com.acme.order", "source": "/shop"}


def attribute_frame(**more: list[Any]) -> pl.DataFrame:
    values: dict[str, list[Any]] = {
        "ce_id": ["1", "2"],
        "ce_subject": ['s"é', None],
        "ce_time": [EPOCH + dt.timedelta(milliseconds=1500), None],
        "ce_n": [-5, None],
        "ce_flag": [True, None],
        "ce_bytes": [b"\xff", None],
        **more,
    }
    kinds = {name: polars_type(kind) for name, kind in ATTRIBUTES.items()}
    return pl.DataFrame(values, schema_overrides=kinds)


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_the_sdk_reads_what_is_written(mode: str) -> None:
    columns = {**ATTRIBUTES, **columns_of(n="int", amount="decimal(5,2)")}
    frame = attribute_frame(n=[1, 2], amount=["1.50", None]).with_columns(pl.col("amount").cast(pl.Decimal(5, 2)))
    events = encode(frame, columns, section(mode, **CONSTANTS))
    first, second = map(sdk_event, events)
    assert first.get_attributes() == {
        "specversion": "1.0",
        "id": "1",
        **CONSTANTS,
        "subject": 's"é',
        "time": EPOCH + dt.timedelta(milliseconds=1500),
        "datacontenttype": "application/json",
        "n": -5 if mode == "structured" else "-5",
        "flag": True if mode == "structured" else "true",
        "bytes": "/w==",
    }
    assert first.get_data() == {"n": 1, "amount": 1.5}
    core = {"specversion": "1.0", "id": "2", **CONSTANTS, "datacontenttype": "application/json"}
    assert attributes_of(events[1]) == core
    assert second.get_data() == {"n": 2, "amount": None}
    read = decode(columns, events)
    assert not read.failures
    assert read.frame.select(frame.columns).equals(frame)


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_a_row_whose_event_would_be_invalid_is_bad(mode: str) -> None:
    columns = columns_of(
        ce_id="string",
        ce_source="string",
        ce_type="string",
        ce_specversion="string",
        ce_datacontenttype="string",
        n="int",
    )
    rows: list[tuple[str | None, ...]] = [
        ("1", "/s", "t", "1.0", None),
        (None, "/s", "t", "1.0", None),
        ("1", "", "t", "1.0", None),
        ("1", "/s", "t", "0.3", None),
        ("1", "/s", "t", "1.0", "text/plain"),
        ("1", "/s", "t", "1.0", "application/vnd.x+json"),
    ]
    names = list(columns)[:-1]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row").with_columns(n=1)
    failing = {
        1: "`ce_id` is NULL, but an event needs it",
        2: "`ce_source` is empty",
        3: "`ce_specversion` is '0.3', but events are written in 1.0",
        4: "`ce_datacontenttype` is 'text/plain', but the data is an object in JSON",
    }
    events = encode(frame, columns, section(mode), failing=failing)
    assert sdk_event(events[0]).get_attributes()["datacontenttype"] == "application/json"
    assert sdk_event(events[5]).get_attributes()["datacontenttype"] == "application/vnd.x+json"


@pytest.mark.parametrize(
    ("kind", "value", "content_type", "member"),
    [
        ("string", "[1, 2]", None, '"data":[1, 2]'),
        ("string", '{"a":"é"}', "application/x+json", '"data":{"a":"é"}'),
        ("string", 'a "text"', "text/plain", '"data":"a \\"text\\""'),
        ("binary", b"\xff", "image/png", '"data_base64":"/w=="'),
        ("binary", b"{}", "application/json", '"data_base64":"e30="'),
        ("string", None, None, None),
        ("binary", None, None, None),
    ],
)
def test_data_is_written_as_a_whole(kind: str, value: Any, content_type: str | None, member: str | None) -> None:
    columns = columns_of(ce_id="string", ce_datacontenttype="string", ce_data=kind)
    data = pl.Series("ce_data", [value], dtype=polars_type(columns["ce_data"]))
    types = pl.Series("ce_datacontenttype", [content_type], dtype=pl.String)
    frame = pl.DataFrame([pl.Series("ce_id", ["1"]), types, data])
    (event,) = encode(frame, columns, section("structured", **CONSTANTS))
    text = (event[0] or b"").decode()
    assert text.endswith(f",{member}}}" if member else '"}')
    assert ("data" in json.loads(text)) == (member is not None and "base64" not in member)
    (in_headers,) = encode(frame, columns, section("binary", **CONSTANTS))
    assert in_headers[0] == (value.encode() if isinstance(value, str) else value)
    for one in (event, in_headers):
        assert decode(columns, [one]).frame["ce_data"].to_list() == [value]


def test_a_text_that_has_to_be_json_is_checked() -> None:
    columns = columns_of(ce_id="string", ce_data="string")
    frame = pl.DataFrame({"ce_id": ["1", "2"], "ce_data": ["{", "1"]})
    failing = {0: "`ce_data` must be JSON because of its `datacontenttype`: Input data was truncated"}
    encode(frame, columns, section("structured", **CONSTANTS), failing=failing)


def test_headers_that_a_sink_may_set_are_known() -> None:
    columns = columns_of(ce_id="string", ce_x="string", n="int")
    names = set(FORMAT.written_headers(columns, section("binary", y="1")))
    assert {"ce_id", "ce_time", "ce_x", "ce_y", "content-type"} <= names
    assert "ce_z" not in names
    assert "n" not in names


# -- any events --------------------------------------------------------------------------------------------------------

TEXTS: Final = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
TIMES: Final = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))  # noqa: DTZ001  # with a zone
DATA: Final = st.none() | st.fixed_dictionaries({}, optional={"n": st.integers(-5, 5), "t": st.none() | TEXTS})
EVENTS: Final = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": TEXTS, "source": TEXTS, "type": TEXTS},
    optional={"subject": TEXTS, "time": TIMES, "dataschema": TEXTS, "x": TEXTS},
)


@pytest.mark.slow
@settings(max_examples=12 * DEPTH)
@given(st.lists(st.tuples(EVENTS, DATA, st.booleans()), min_size=1, max_size=4))
def test_events_of_the_sdk_are_read_and_read_by_it_when_written(
    drawn: list[tuple[dict[str, Any], dict[str, Any] | None, bool]],
) -> None:
    declared = columns_of(ce_x="string", n="bigint", t="string")
    sent = []
    for attributes, data, in_headers in drawn:
        event = CloudEvent({**attributes, "datacontenttype": "application/json"}, data)
        attributes.update(event.get_attributes())  # it adds a time
        sent.append(event_of_sdk((to_binary if in_headers else to_structured)(event, JSONFormat())))
    frame, failures = decode(declared, sent)
    assert not failures
    for (attributes, data, _), row in zip(drawn, frame.iter_rows(named=True), strict=True):
        for name in ("id", "source", "type", "specversion", "subject", "dataschema", "time", "x"):
            assert row[f"ce_{name}"] == attributes.get(name)
        assert (row["n"], row["t"]) == ((data or {}).get("n"), (data or {}).get("t"))
    columns = dict(FORMAT.read_columns(declared))
    for mode in ("binary", "structured"):
        written = encode(frame, columns, section(mode))
        for (attributes, data, _), one in zip(drawn, written, strict=True):
            found = sdk_event(one)
            assert found.get_attributes() == attributes
            assert found.get_data() == {"n": None, "t": None, **(data or {})}
        again = decode(columns, written)
        assert again.frame.equals(frame)


VALUES: Final = st.sampled_from(["1.0", "", "x/y", "application/json", 5, 1.5, None, True, {}, {"n": 1}, "e30="])
OBJECTS: Final = st.dictionaries(
    st.sampled_from([*CORE, "time", "data", "data_base64", "datacontenttype", "seq"]), VALUES
).map(lambda one: json.dumps({**CORE, **one}).encode())
BODIES: Final = st.sampled_from([None, b"", b"{}", b'{"n":1}', b'{"n":"x"}', b"{", b"null", b'"x"']) | OBJECTS
NAMES: Final = st.sampled_from([*(f"ce_{name}" for name in CORE), "ce_time", "ce_seq", "content-type", "other"])
HEADERS: Final = st.sampled_from(
    [None, b"1.0", b"", b"x", b"\xff", b"5", b"application/json", b"application/cloudevents+json"]
)


@pytest.mark.slow
@settings(max_examples=20 * DEPTH)
@given(st.lists(st.tuples(BODIES, st.lists(st.tuples(NAMES, HEADERS), max_size=6)), max_size=5))
def test_each_event_has_the_same_fate_alone_and_among_others(events: list[Event]) -> None:
    declared = columns_of(n="bigint", ce_seq="int")
    whole = decode(declared, events)
    alone = [decode(declared, [one]) for one in events]
    assert [str(one) for one in whole.failures] == [str(one.failures[0]) for one in alone if one.failures]
    assert [one.row for one in whole.failures] == [row for row, one in enumerate(alone) if one.failures]
    if alone:
        assert whole.frame.equals(pl.concat([one.frame for one in alone]))
