"""Keys, headers, timestamps, partitions and tombstones of the records of cases, in and out."""

from __future__ import annotations

from tests.testing.pipelines import messages, run_one

PIPELINE = """\
version: 1
name: parts
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
sources:
  orders:
    topic: orders
    schema: {id: bigint}
    metadata: {key: k, headers: h, timestamp: sent, partition: p, offset: o, topic: t}
    key_format: json
    key_schema: {id: bigint}
    on_null: tombstone
    event_time: sent
    bad_records: skip
  raws: {topic: raws, format: raw}
steps:
  - {name: some, from: orders, where: "id > 1 OR _deleted"}
  - {name: once, from: some, dedup: {key: [p, o], within: 1h}}
  - {name: counted, from: once, select: {k: k, id: id, n: size(h), place: "concat(t, p, '-', o)", p: p, sent: sent,
      _deleted: _deleted}}
sinks:
  out:
    from: counted
    topic: out
    key: k
    key_format: json
    partition: p
    timestamp: sent
    headers: {pass: all, drop: [x], rename: {a: b}, add: {source: "'tidegate'", n: cast(n AS string)}}
    on_null: {column: _deleted}
  copy: {from: raws, topic: copy, format: raw, headers: {pass: all}, timestamp: timestamp, partition: partition}
tests:
"""
GIVEN = """given: {
  orders: [
    {key: '{"id":7}', value: {id: 7}, headers: [[a, "1"], [x, "2"], [a, null]], timestamp: 2026-01-01T00:00:05Z,
     partition: 2},
    {key: '{"id":1}', value: {id: 1}},
    {key: '{"id":8}', value: null, partition: 1},
    {key: 'x', value: {id: 9}},
    {value: null},
    {value: {id: 10}}],
  raws: [{key: a, value: null, headers: [[q, ""], [q, null], [r, {base64: /w==}]], timestamp: 17, partition: 3},
    {value: b}]}"""


def case(**expected: str) -> str:
    """`GIVEN` with what comes out of both sinks."""
    first = (
        "{key: '{\"id\":7}', value: {k: {id: 7}, id: 7, n: 3, place: orders2-0, p: 2, sent: 2026-01-01T00:00:05Z}, "
        'headers: [[b, "1"], [b, null], [source, tidegate], [n, "3"]], timestamp: 2026-01-01T00:00:05Z, '
        f"partition: {expected.get('partition', '2')}}}"
    )
    second = f"{{key: '{{\"id\":8}}', value: {expected.get('deleted', 'null')}, partition: 1}}"
    third = (
        "{key: null, value: {k: null, id: 10, n: 0, place: orders0-3, p: 0, sent: 2026-01-01T00:00:00Z}, partition: 0}"
    )
    headers = f'[[q, ""], [q, {expected.get("header", "null")}], [r, {{base64: /w==}}]]'
    copied = f"{{key: a, value: null, headers: {headers}, timestamp: 17, partition: 3}}"
    text = f"{GIVEN}, bad_records: {{MALFORMED_JSON: 1, NO_KEY: 1}}, expect: {{out: [{first}, {second}, {third}], "
    text += f"copy: [{copied}, {{key: null, value: b, headers: [], partition: 0}}]}}"
    return text.replace("\n", " ")


def test_records_go_in_and_come_out_with_all_that_they_have() -> None:
    result = run_one(case(), PIPELINE)
    assert result.passed, messages(result)


def test_what_differs_besides_the_value_fails_a_case() -> None:
    for expected in ({"partition": "1"}, {"header": '"x"'}, {"deleted": "{id: 8}"}):
        assert not run_one(case(**expected), PIPELINE).passed


def test_headers_survive_slots_and_a_restart() -> None:
    result = run_one(case(), PIPELINE, parallelism=3)
    assert result.passed, messages(result)
