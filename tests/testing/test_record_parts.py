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


CHOICE = """\
version: 1
name: parts
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
sources:
  orders: {topic: orders, schema: {id: bigint, region: string}, bad_records: skip}
sinks:
  totals: {from: orders, topic: {expression: "concat('totals-', region)", allow: [totals-eu, totals-us]}, key: region}
tests:
"""
CHOSEN = (
    "given: {orders: ["
    + ", ".join(
        f"{{value: {{id: {number}, region: {region}}}}}"
        for number, region in enumerate(["us", "eu", "null", "us", "cn"])
    )
    + "]}, bad_records: {NO_TOPIC: 2}"
)


def test_an_expected_record_says_its_topic() -> None:
    records = [
        "{topic: totals-us, key: us, value: {id: 0, region: us}}",
        "{topic: totals-us, value: {id: 3, region: us}}",
        "{topic: totals-eu}",
    ]
    result = run_one(f"{CHOSEN}, expect: {{totals: [{', '.join(records)}]}}", CHOICE)
    assert result.passed, messages(result)
    result = run_one(f"{CHOSEN}, expect: {{totals: [{', '.join(records[:2])}, {{topic: totals-us}}]}}", CHOICE)
    assert messages(result) == ["totals: 3 records came out, as many as expected, but with other contents"]


AVRO = """\
version: 1
name: parts
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
registry: {url: "http://127.0.0.1:1"}
sources:
  orders:
    topic: orders
    schema: {n: int}
    metadata: {key: k}
    key_format: avro
    key_schema: {id: bigint, region: string}
    bad_records: skip
  words: {topic: words, format: avro, schema: {n: int}, metadata: {key: k}, key_format: avro, key_schema: string}
sinks:
  out: {from: orders, topic: out, key: k, key_format: avro}
  copy: {from: words, topic: copy, format: avro, key: k, key_format: avro}
tests:
"""


def test_avro_keys_are_given_and_expected_as_json() -> None:
    key = """'{"id": 7, "region": "eu"}'"""
    orders = f"{{key: {key}, value: {{n: 1}}}}, {{key_base64: AAEC, value: {{n: 3}}}}, {{value: {{n: 4}}}}"
    words = """{key: '"ann"', value: {n: 5}}"""
    out = """{key: '{"id":7,"region":"eu"}', value: {n: 1, k: {id: 7, region: eu}}}, {key: null}"""
    copy = """{key: '"ann"', value: {n: 5, k: ann}}"""
    given = f"given: {{orders: [{orders}], words: [{words}]}}, bad_records: 1"
    result = run_one(f"{given}, expect: {{out: [{out}], copy: [{copy}]}}", AVRO)
    assert result.passed, messages(result)


def test_given_values_and_keys_have_their_ids_in_front_where_headers_may_have_them() -> None:
    source = "words: {topic: words, schema_id: header,"
    given = "given: {words: [{key: '\"ann\"', value: {n: 5}}]}"
    result = run_one(
        f"{given}, expect: {{copy: [{{value: {{n: 5, k: ann}}}}]}}", AVRO.replace("words: {topic: words,", source)
    )
    assert result.passed, messages(result)


def test_a_copy_of_a_record_without_timestamp_gets_the_time_of_writing() -> None:
    """Its sink gets NULL: as -1 it was no time that Kafka stores."""
    case = (
        "given: {raws: [{value: a, timestamp: -1}, {value: b, timestamp: null}, {value: c, timestamp: 5}]}, expect: "
        "{copy: [{value: a, timestamp: null}, {value: b, timestamp: null}, {value: c, timestamp: 5}]}"
    )
    result = run_one(case, PIPELINE)
    assert result.passed, messages(result)


def test_a_record_without_timestamp_has_no_event_time_where_that_is_its_event_time() -> None:
    case = "given: {orders: [{value: {id: 7}, timestamp: -1}]}, expect: {out: []}, bad_records: {NO_EVENT_TIME: 1}"
    result = run_one(case, PIPELINE)
    assert result.passed, messages(result)
