"""A pipeline over the lines of a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.formats.avro.any_avro import record_of
from tests.testing.pipelines import HEAD, ORDERS, load
from tidegate.dev.topics.records import SeenRecord, render_json
from tidegate.formats.schemas import SchemaKind, SchemaText
from tidegate.ids import TopicPartition
from tidegate.operators.kinds.aggregate.runtime import AggregateRuntime
from tidegate.testing.feed import ProducedRecord, plain_options
from tidegate.testing.preview import (
    CHUNK,
    LineParser,
    Preview,
    Previewed,
    RecordRefused,
    StepUnknown,
    choose_source,
    render_field,
    render_fields,
    tap_steps,
    tappable,
)

LINES = [b'{"id": 1, "customer": "ann", "amount": 100}\n', b"\n", b"{\n", b'{"id": 2, "customer": "ann", "amount": 5}']

NAMED = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:1"}
registry: {url: "http://127.0.0.1:1"}
sources:
  orders: {topic: orders, format: FORMAT, schema: {id: bigint, at: timestamp}}
sinks:
  out: {from: orders, topic: out, format: json}
checkpoints: {directory: /checkpoints}
"""


def parse(lines: Iterable[bytes], source: str = "orders", *, whole: bool = False) -> list[ProducedRecord]:
    """The records of lines."""
    return list(
        LineParser(load("", ORDERS.replace("tests:\n", ""))[0].settings.sources[source], whole=whole).parse(lines)
    )


def preview(lines: Iterable[bytes], *steps: str) -> tuple[list[Previewed], list[str]]:
    """What comes out, and what is skipped."""
    loaded, plan = load("", ORDERS.replace("tests:\n", ""))
    if steps:
        loaded, plan = tap_steps(loaded, steps)
    skipped: list[str] = []
    return list(Preview(loaded, plan, skipped.append).run(parse(lines), steps)), skipped


def test_each_sink_shows_what_it_would_write() -> None:
    found, skipped = preview(LINES)
    assert [(one.place, one.record["key"]) for one in found] == [("out", "ann"), ("totals", "ann")]
    assert found[1].record["value"] == '{"customer":"ann","n":1,"net":100.0,"last":1}'
    assert [line.partition(":")[2].strip()[:30] for line in skipped] == ["orders[0] offset 1: MALFORMED_"]


def test_steps_and_sources_show_what_comes_out_of_them() -> None:
    found, _ = preview(LINES, "orders", "big")
    assert [(one.place, json.loads(one.record["value"])["id"]) for one in found] == [
        ("orders", 1),
        ("orders", 2),
        ("big", 1),
    ]
    assert tappable(load("", ORDERS.replace("tests:\n", ""))[0]) == ["orders", "lines", "big", "per_customer"]


def test_more_lines_than_are_read_at_once_come_out_in_order() -> None:
    lines = [b'{"id": %d, "customer": "ann", "amount": 100}' % n for n in range(2 * CHUNK + 1)]
    found, _ = preview(lines, "big")
    assert [json.loads(one.record["value"])["id"] for one in found] == list(range(2 * CHUNK + 1))


def test_late_records_are_counted_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AggregateRuntime, "late_rows", 2)
    run = Preview(*load("", ORDERS.replace("tests:\n", "")), lambda where: None)
    assert len(list(run.run(parse(LINES)))) == 2
    assert run.late == {"per_customer": 2}


def test_no_lines_are_no_error() -> None:
    assert preview([]) == ([], [])


def test_a_line_may_be_a_whole_record_as_topic_read_prints_it() -> None:
    line = (
        b'{"topic": "more", "partition": 3, "offset": 7, "timestamp": "2026-01-01T00:00:00.000Z", "key": "a", '
        b'"value": "x", "headers": [["h", "v"], ["n", null], ["b", {"base64": "/w=="}]]}'
    )
    assert parse([line], "lines", whole=True) == [
        ProducedRecord(
            TopicPartition("more", 3), b"a", b"x", 1_767_225_600_000, (("h", b"v"), ("n", None), ("b", b"\xff"))
        )
    ]
    others = parse(
        [b'{"value_base64": "AA==", "key_base64": "AQ=="}', b'{"value": null, "topic": "other"}'], "lines", whole=True
    )
    assert others == [
        ProducedRecord(TopicPartition("lines", 0), b"\x01", b"\x00"),
        ProducedRecord(TopicPartition("lines", 0), None, None),
    ]
    assert parse([b'{"value": {"id": 1}}'], whole=True)[0].value == b'{"id":1}'


@pytest.mark.parametrize("source", ["orders", "lines"])
@pytest.mark.parametrize(
    "value", [None, b"", b'{"id":1,"n":[2.50,null]}', b"7", b'{"id": 4, ', b"abc", b'"abc"', b'"7"', b"null", b"\xff"]
)
def test_what_topic_read_prints_is_the_record_again(source: str, value: bytes | None) -> None:
    """JSON in a raw topic ended the command, and what is no JSON was read as a text in JSON."""
    line = render_json(SeenRecord("orders", 0, 0, None, b"k", value))
    assert [one.value for one in parse([line.encode()], source, whole=True)] == [value]


@pytest.mark.parametrize(("at_ms", "expected"), [(None, -1), (0, 0), (1_767_225_600_001, 1_767_225_600_001)])
def test_what_topic_read_prints_has_the_same_time_again(at_ms: int | None, expected: int) -> None:
    line = render_json(SeenRecord("orders", 0, 0, at_ms, b"k", b"v"))
    assert [one.timestamp_ms for one in parse([line.encode()], "lines", whole=True)] == [expected]
    assert parse([b'{"value": "v"}'], "lines", whole=True)[0].timestamp_ms is None, "what the clock shows"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "line 2 is not a record: Expecting property name"),
        (b"1", "line 2 is not a record: it is not an object with `value`; without --records, each line is a value"),
        (b'{"key": 1}', "line 2 is not a record: it has no `value`; without --records, each line is a value"),
        (b'{"value": "x", "timestamp": "now"}', "line 2 is not a record: `timestamp`: `now` is not a timestamp; for"),
        (b'{"value": "x", "timestamp": "2026-01-01"}', "line 2 is not a record: `timestamp`: `2026-01-01` is not a"),
        (b'{"value": "x", "timestamp": 99999999999999999999}', "line 2 is not a record: `timestamp`: `9999999999999"),
        (b'{"value": "x", "partition": "a"}', "line 2 is not a record: `partition`: expected a whole number, got `a`"),
        (b'{"value": "x", "partition": -1}', "line 2 is not a record: `partition`: `-1` is out of range; use 0 to 9"),
        (b'{"value": "x", "headers": {"a": "b"}}', "line 2 is not a record: `headers`: expected a list of headers,"),
        (b'{"value": "x", "headers": [["a"]]}', "line 2 is not a record: `headers`: a list is not a header; write pai"),
        (b'{"value_base64": "?"}', "line 2 is not a record: `value_base64`: `?` is not base64; for instance AAEC"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_number(line: bytes, reason: str) -> None:
    with pytest.raises(RecordRefused) as refused:
        parse([b"\n", line], "lines", whole=True)
    assert refused.value.message.startswith(reason)


def test_a_mark_of_the_byte_order_in_front_is_no_part_of_the_first_record() -> None:
    assert [one.value for one in parse([b'\xef\xbb\xbf{"id": 1}\r\n', b'{"id": 2}\r\n'])] == [
        b'{"id": 1}',
        b'{"id": 2}',
    ]
    assert parse([b'\xef\xbb\xbf{"value": "x"}'], "lines", whole=True)[0].value == b"x"


@pytest.mark.parametrize("name", ["avro", "json-schema"])
def test_a_line_of_a_format_with_schemas_is_written_with_one(name: str) -> None:
    loaded, plan = load("", NAMED.replace("FORMAT", name))
    options = plain_options(plan)["orders"]
    parser = LineParser(loaded.settings.sources["orders"], options, whole=False)
    records = parser.parse([b'{"id": 7, "at": "2026-01-31T12:00:00Z"}'])
    (found,) = Preview(loaded, plan, pytest.fail).run(records)
    assert json.loads(found.record["value"]) == {"id": 7, "at": "2026-01-31T12:00:00Z"}
    if name == "avro":
        with pytest.raises(RecordRefused, match="line 1 is not a record"):
            list(parser.parse([b"x"]))
    else:  # what is wrong with it is the pipeline's to find
        assert [one.value for one in parser.parse([b"x"])] == [b"\0\0\0\0\0x"]


def test_records_of_a_topic_are_read_with_the_copies_of_their_schemas() -> None:
    text = NAMED.replace("FORMAT", "avro").replace("at: timestamp}", "n: int}, bad_records: skip")
    loaded, plan = load("", text)
    schema = SchemaText(SchemaKind.AVRO, json.dumps(record_of(("id", "int"), ("n", "int"))), id=5)
    parser = LineParser(loaded.settings.sources["orders"], plain_options(plan)["orders"], whole=True)
    lines = [b'{"value": "\\u0000\\u0000\\u0000\\u0000\\u0005\\u0002\\u0004"}', b'{"value_base64": "AAAAAAYCBA=="}']
    skipped: list[str] = []
    run = Preview(loaded, plan, skipped.append, copies=lambda one: schema if one == 5 else None)
    assert [json.loads(one.record["value"]) for one in run.run(parser.parse(lines))] == [{"id": 1, "n": 2}]
    reason = (
        "UNKNOWN_SCHEMA: schema 6 is not in the local copies; `tidegate run` stores a copy of each schema that it reads"
    )
    assert [line.partition(": ")[2] for line in skipped] == [f"orders[0] offset 1: {reason}"]


def test_a_line_without_an_end_is_not_read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.testing.preview.LINE_BYTES_MAX", 1 << 20)
    loaded, _ = load("", ORDERS.replace("tests:\n", ""))
    parser = LineParser(loaded.settings.sources["lines"], whole=False, file="/dev/zero")
    with Path("/dev/zero").open("rb") as stream, pytest.raises(RecordRefused, match="more than 1 MiB"):
        list(parser.read(stream))


def test_an_input_that_cannot_be_read_is_named() -> None:
    loaded, _ = load("", ORDERS.replace("tests:\n", ""))
    parser = LineParser(loaded.settings.sources["lines"], whole=False, file="/proc/self/mem")
    with Path("/proc/self/mem").open("rb") as stream, pytest.raises(RecordRefused) as refused:
        list(parser.read(stream))
    assert str(refused.value) == "/proc/self/mem: the file cannot be read: Input/output error"


def test_the_source_must_be_named_where_there_are_several() -> None:
    loaded, _ = load("", ORDERS.replace("tests:\n", ""))
    assert choose_source(loaded, "lines=a=b.jsonl") == ("lines", "a=b.jsonl")
    for text in ("a.jsonl", "line=a.jsonl", "lines="):
        with pytest.raises(
            StepUnknown, match=f"has several sources; write --input orders={text} for one of orders, lines"
        ):
            choose_source(loaded, text)


def test_topics_that_a_pattern_matches_stay_apart_with_records() -> None:
    """They came all together from a topic that is called like the pattern, late by one another's watermarks."""
    pipeline = NAMED.replace("topic: orders, format: FORMAT", 'pattern: "clicks-.*", format: json')
    source = load("", pipeline)[0].settings.sources["orders"]
    lines = [json.dumps({"topic": topic, "value": {"id": 1}}).encode() for topic in ("clicks-eu", "clicks-us", "other")]
    found = LineParser(source, whole=True).parse([*lines, b'{"value": {"id": 1}, "topic": 7}'])
    assert [one.partition.topic for one in found] == ["clicks-eu", "clicks-us", "clicks-.*", "clicks-.*"]


AS_WRITTEN = """\
version: 1
name: written
kafka: {bootstrap.servers: "127.0.0.1:1"}
registry: {url: "http://127.0.0.1:1"}
sources:
  orders: {topic: orders, schema: {id: int, body: string, price: "decimal(6,2)", rate: double}}
steps:
  - {name: bytes, from: orders, select: {value: "cast(body as binary)"}}
sinks:
  out: {from: FROM, topic: out, key: body, format: FORMAT}
checkpoints: {directory: /checkpoints}
"""
_ROW = '{"id":1,"body":"$ ${X} \u009b","price":5,"rate":1e21}'


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("json", '{"id":1,"body":"$ ${X} \\u009b","price":5.00,"rate":1e+21}'),
        ("json-schema", '{"id":1,"body":"$ ${X} \\u009b","price":5.00,"rate":1e+21}'),
        ("avro", '{"id":1,"body":"$ ${X} \\u009b","price":5.00,"rate":1e+21}'),
        ("raw", '"$ ${X} \\u009b"'),
    ],
)
def test_a_record_is_shown_as_its_sink_writes_it(name: str, value: str) -> None:
    """It was shown in the notation of a pipeline file: `$${`, and 5.00 as a text."""
    text = AS_WRITTEN.replace("FORMAT", name).replace("FROM", "bytes" if name == "raw" else "orders")
    loaded, plan = load("", text.replace("key: body, ", "") if name == "raw" else text)
    (found,) = Preview(loaded, plan, pytest.fail).run(parse([_ROW.encode()]))
    assert render_field(found.record["value"]) == value
    key = "null" if name == "raw" else '"$ ${X} \\u009b"'
    assert render_fields(found.record) == f'{{"key": {key}, "value": {value}}}'


def test_tombstones_bytes_and_the_fields_of_a_record_are_shown() -> None:
    fields = {"key": None, "value_base64": "/w==", "headers": [["\x1b", None]], "timestamp": 0, "topic": "t"}
    shown = (
        '{"key": null, "value_base64": "/w==", "headers": [["\\u001b", null]], "timestamp": "1970-01-01T00:00:00Z", '
    )
    assert render_fields(fields) == f'{shown}"topic": "t"}}'
    assert render_fields({"key": "a", "value": None}) == '{"key": "a", "value": null}'
    assert json.loads(render_field("\U000e0001")) == "\U000e0001"
    assert render_field("\U000e0001").isascii()


def test_event_times_before_1971_are_named_with_the_remedy() -> None:
    pipeline = ORDERS.replace("tests:\n", "").replace("at: timestamp}, ", "at: timestamp}, event_time: EVENT_TIME, ")
    lines = [b'{"id": 1767225600, "customer": "ann", "amount": 100}']
    found = []
    for event_time in ("id", "timestamp_seconds(id)"):
        run = Preview(*load("", pipeline.replace("EVENT_TIME", event_time)), lambda _: None)
        assert len(list(run.run(parse(lines)))) == 2
        found.append(run.notes)
    remedy = "`id` is read as ms since 1970: if it is in seconds, write `event_time: timestamp_seconds(id)`"
    assert found == [[f"source orders: 1 record has an event time before 1971; {remedy}"], []]


LOOKED_UP = (
    HEAD
    + """\
sources:
  orders: {topic: orders, schema: {id: bigint, sku: string}}
  articles: {topic: articles, schema: {sku: string, price: bigint}}
steps:
  - {name: article, from: articles, table: {key: sku}}
  - {name: priced, from: orders, lookup: article, on: {sku: sku}, add: {price: article.price}}
sinks:
  out: {from: priced, topic: out}
"""
)


def test_a_table_is_read_to_its_end_before_the_stream() -> None:
    loaded, plan = load("", LOOKED_UP)
    orders = [
        ProducedRecord(TopicPartition("orders", 0), None, b'{"id": %d, "sku": "a%d"}' % (n, n % 3)) for n in range(5)
    ]
    articles = [
        ProducedRecord(TopicPartition("articles", 0), None, b'{"sku": "a%d", "price": %d}' % (n % 3, n))
        for n in range(2 * CHUNK)
    ]
    shown = Preview(loaded, plan, print).run([*orders, *articles])
    prices = [json.loads(one.record["value"])["price"] for one in shown]
    assert prices == [1998, 1999, 1997, 1998, 1999]
