"""Pipelines over MessagePack and CloudEvents: cases, previews, headers that are passed on, and bad records."""

from __future__ import annotations

import base64
import json

import msgpack
import pytest

from tests.testing.pipelines import HEAD, load, messages, run_one
from tidegate.testing.preview import LineParser, Preview, RecordRefused

PACKED = (
    HEAD
    + """
sources:
  orders:
    topic: orders
    format: msgpack
    schema: {id: bigint, amount: "decimal(10,2)", at: timestamp, rest: "map<string, string>"}
    bad_records: skip
  parts: {topic: parts, format: msgpack, schema: {id: bigint}, unknown_fields: {keep: others}}
steps:
  - {name: large, from: orders, where: amount >= 1}
  - {name: short, from: large, select: {id: id, amount: amount, at: at}}
sinks:
  out: {from: short, topic: out, key: id, format: msgpack}
  plain: {from: parts, topic: plain}
tests:
"""
)


def test_cases_of_message_pack_are_written_as_json() -> None:
    body = base64.b64encode(msgpack.packb({"id": 3, "amount": "4.00", "at": msgpack.Timestamp(1, 1999)})).decode()
    result = run_one(
        f"""given: {{orders: [
          {{value: {{id: 1, amount: 2.5, at: "2026-01-31T12:00:00.5+01:00"}}}}, {{value: {{id: 2, amount: 0.5}}}},
          {{value_base64: {body}}}, {{value: {{id: x}}}}, {{text: '{{"id":1}}'}}, {{value: null}}],
          parts: [{{value: {{id: 1, b: [true, 1.5], c: t}}}}]}},
          expect: {{out: [{{key: "1", value: {{id: 1, amount: "2.50", at: "2026-01-31T11:00:00.500Z"}}}},
          {{value: {{id: 3, amount: "4.00", at: "1970-01-01T00:00:01.000001Z"}}}}],
          plain: [{{value: {{id: 1, others: {{b: "[true,1.5]", c: t}}}}}}]}},
          bad_records: {{WRONG_TYPE: 1, MALFORMED_MSGPACK: 1, NULL_VALUE: 1}}""",
        PACKED,
    )
    assert messages(result) == []


def test_a_preview_of_message_pack_reads_lines_of_json() -> None:
    loaded, plan = load("", PACKED.removesuffix("tests:\n"))
    parser = LineParser(loaded.settings.sources["orders"], whole=False)
    records = list(parser.parse([b'{"id": 7, "amount": 1.5, "at": "2026-01-31T12:00:00Z"}']))
    assert msgpack.unpackb(records[0].value or b"") == {"id": 7, "amount": 1.5, "at": "2026-01-31T12:00:00Z"}
    (found,) = [one for one in Preview(loaded, plan, pytest.fail).run(records, ()) if one.place == "out"]
    assert json.loads(found.record["value"]) == {"id": 7, "amount": "1.50", "at": "2026-01-31T12:00:00Z"}
    with pytest.raises(RecordRefused, match="line 1 is not a record"):
        list(parser.parse([b"\x80"]))


EVENTS = (
    HEAD
    + """
sources:
  orders:
    topic: orders
    format: cloudevents
    schema: {id: bigint, net: double, ce_partitionkey: string}
    event_time: ce_time
    bad_records: skip
steps:
  - {name: some, from: orders, where: ce_type = 'order'}
  - {name: named, from: some, select: {ce_id: ce_id, ce_time: ce_time,
     ce_subject: "concat('order/', id)", ce_partitionkey: ce_partitionkey, net: net}}
sinks:
  binary:
    from: named
    topic: binary
    format: cloudevents
    cloudevents: {attributes: {type: net, source: /net}}
    key: ce_partitionkey
    headers: {pass: all, add: {own: "'1'"}}
  structured:
    from: named
    topic: structured
    format: cloudevents
    cloudevents: {mode: structured, attributes: {type: net, source: /net}}
tests:
"""
)


def test_events_of_both_modes_are_read_and_written_with_the_headers_that_are_passed_on() -> None:
    result = run_one(
        """given: {orders: [
          {key: k, value: {id: 5, net: 1.5}, headers: [[trace, t], [ce_id, "1"], [ce_source, /s], [ce_type, order],
          [ce_specversion, "1.0"], [ce_time, "2026-01-01T00:00:00Z"], [ce_partitionkey, p], [ce_extra, e],
          [content-type, application/json]]},
          {value: {specversion: "1.0", id: "2", source: /s, type: order, time: "2026-01-01T00:00:01Z", data: {id: 6}}},
          {value: {specversion: "1.0", id: "3", source: /s, type: other, time: "2026-01-01T00:00:01Z"}},
          {value: {specversion: "1.0", id: "4", source: /s}}, {value: null}]},
          expect: {binary: [
          {key: p, value: {net: 1.5}, headers: [[trace, t], [ce_extra, e], [own, "1"], [ce_id, "1"], [ce_source, /net],
          [ce_specversion, "1.0"], [ce_type, net], [ce_subject, order/5], [ce_time, "2026-01-01T00:00:00Z"],
          [content-type, application/json], [ce_partitionkey, p]]},
          {key: null, value: {net: null}, headers: [[own, "1"], [ce_id, "2"], [ce_source, /net],
          [ce_specversion, "1.0"], [ce_type, net], [ce_subject, order/6], [ce_time, "2026-01-01T00:00:01Z"],
          [content-type, application/json]]}],
          structured: [
          {value: {specversion: "1.0", id: "1", source: /net, type: net, subject: order/5, partitionkey: p,
          time: "2026-01-01T00:00:00Z", datacontenttype: application/json, data: {net: 1.5}},
          headers: [[content-type, application/cloudevents+json; charset=UTF-8]]},
          {value: {specversion: "1.0", id: "2", source: /net, type: net, subject: order/6,
          time: "2026-01-01T00:00:01Z", datacontenttype: application/json, data: {net: null}}}]},
          bad_records: {INVALID_EVENT: 1, NULL_VALUE: 1}""",
        EVENTS,
    )
    assert messages(result) == []


@pytest.mark.parametrize(
    ("text", "instead", "problem"),
    [
        ("ce_partitionkey: string}", "ce_time: string}", "`ce_time` is string, but the attribute is timestamp"),
        ("ce_id: ce_id, ", "", "events need the attribute `id`, but there is no column `ce_id`"),
        ("source: /net}}\n    key", "source: /net, subject: x}}\n    key", "there is also a column `ce_subject`"),
        ("{mode: structured", "{mode: other", "`other` is not one of the choices"),
        ("format: cloudevents\n    schema", "format: json\n    cloudevents: {}\n    schema", "cloudevents"),
    ],
)
def test_files_with_events_that_cannot_be_are_refused(text: str, instead: str, problem: str) -> None:
    assert text in EVENTS
    with pytest.raises(Exception, match=problem):
        load("", EVENTS.removesuffix("tests:\n").replace(text, instead, 1))
