"""A table's changes through a whole pipeline: an upsert topic with tombstones, each case once more with a restart."""

from __future__ import annotations

from tests.testing.pipelines import messages, run_one

PIPELINE = """\
version: 1
name: tables
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///nowhere}
sources:
  customers:
    topic: customers
    format: debezium
    schema: {id: bigint, name: string, paid: "decimal(10,2)", at: timestamp}
    written_as: {timestamps: us}
    bad_records: skip
steps:
  - {name: rows, from: customers, select: {id: id, name: upper(name), paid: paid, at: at, _deleted: _deleted}}
sinks:
  copy: {from: rows, topic: copy, key: id, on_null: {column: _deleted, write: tombstone}}
  log: {from: customers, topic: log}
tests:
"""
GIVEN = """given: {customers: [
  {value: {op: r, after: {id: 1, name: ann, paid: "5.00", at: 1500000}}},
  {value: {op: t}},
  {value: {schema: {type: struct}, payload: {op: u, before: null, after: {id: 1, name: bob, paid: BNI=}}}},
  {value: {op: c, after: {id: 2, paid: "1234"}}},
  {value: {op: d, before: {id: 1, name: bob}, after: null}},
  {value: null}]}"""


def case(**expected: str) -> str:
    """`GIVEN` with what comes out of both sinks."""
    rows = [
        "{key: '1', value: {id: 1, name: ANN, paid: 5.00, at: '1970-01-01T00:00:01.500Z'}}",
        "{key: '1', value: {id: 1, name: BOB, paid: 12.34, at: null}}",
        f"{{key: '1', value: {expected.get('last', 'null')}}}",
    ]
    log = [
        "{value: {id: 1, name: ann, paid: 5.00, at: '1970-01-01T00:00:01.500Z', _deleted: false, _op: r}}",
        "{value: {id: 1, name: bob, paid: 12.34, at: null, _deleted: false, _op: u}}",
        "{value: {id: 1, name: bob, paid: null, at: null, _deleted: true, _op: d}}",
    ]
    expect = f"{{copy: [{', '.join(rows)}], log: [{', '.join(log)}]}}"
    return f"{GIVEN}, expect: {expect}, bad_records: {{UNSUPPORTED_CHANGE: 1, WRONG_TYPE: 1}}"


def test_changes_are_written_as_an_upsert_topic() -> None:
    assert messages(run_one(case(), PIPELINE)) == []


def test_a_delete_is_a_tombstone() -> None:
    (found,) = messages(run_one(case(last="{id: 1, name: BOB, paid: null, at: null}"), PIPELINE))
    assert found.startswith("copy: ")
