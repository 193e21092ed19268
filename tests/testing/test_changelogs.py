"""A table's changes through a whole pipeline: an upsert topic with tombstones, each case once more with a restart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.testing.pipelines import messages, run, run_one

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
    written_as: {timestamps: us, decimals: base64}
    bad_records: skip
steps:
  - {name: rows, from: customers, select: {id: id, name: upper(name), paid: paid, at: at, _deleted: _deleted}}
sinks:
  copy: {from: rows, topic: copy, key: id, on_null: {column: _deleted, write: tombstone}}
  log: {from: customers, topic: log}
tests:
"""
GIVEN = """given: {customers: [
  {value: {op: r, after: {id: 1, name: ann, paid: AfQ=, at: 1500000}}},
  {value: {op: t}},
  {value: {schema: {type: struct}, payload: {op: u, before: null, after: {id: 1, name: bob, paid: BNI=}}}},
  {value: {op: c, after: {id: 2, paid: "12.34"}}},
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


BY_COMPUTED_KEY = """\
version: 1
name: tables
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///nowhere}
sources:
  orders: {topic: orders, format: debezium, schema: {id: bigint, region: string}, bad_records: skip}
steps:
  - {name: rows, from: orders, select: {k: "concat(region, '/', id)", id: id, _deleted: _deleted}}
  - {name: all_rows, from: rows, where: true}
sinks:
  copy: {from: READS, topic: copy, key: k, on_null: {column: _deleted}}
tests:
"""


@pytest.mark.parametrize(
    ("reads", "between"), [("rows", ""), ("all_rows", "{key: n/1, value: null}, ")], ids=["none", "where"]
)
def test_an_update_that_changes_a_computed_key_deletes_the_row_of_the_old_one_after_a_where(
    reads: str, between: str
) -> None:
    """The `where` is what `validate` advises where it warns of such a key."""
    before, after = "{id: 1, region: n}", "{id: 1, region: s}"
    given = f"{{op: c, after: {before}}}", f"{{op: u, before: {before}, after: {after}}}", f"{{op: d, before: {after}}}"
    rows = ", ".join(f"{{value: {one}}}" for one in given)
    expected = f"{{key: n/1}}, {between}{{key: s/1}}, {{key: s/1, value: null}}"
    case = f"given: {{orders: [{rows}]}}, expect: {{copy: [{expected}]}}"
    assert messages(run_one(case, BY_COMPUTED_KEY.replace("READS", reads))) == []


TOTALS = """\
version: 1
name: tables
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///nowhere}
parallelism: 2
sources:
  orders:
    topic: orders
    format: debezium
    schema: {id: bigint, region: string, amount: "decimal(10,2)", status: string, at: bigint, tags: array<string>}
    written_as: {decimals: text}
    event_time: at
    metadata: {key: k, partition: p}
    bad_records: skip
steps:
  - {name: open, from: orders, where: status = 'open'}
  - {name: totals, from: open, key: region, aggregate: {n: count(*), net: sum(amount), most: max(amount)}}
  - {name: several, from: totals, where: n > 1}
  - {name: sizes, from: totals, key: n, aggregate: {regions: count(*)}}
  - {name: words, from: open, select: {id: id, tags: tags}}
  - {name: each, from: words, explode: {tags: tag}}
  - {name: tagged, from: each, key: tag, aggregate: {ids: count(id)}}
sinks:
  out: {from: totals, topic: out, key: region, on_null: {column: _deleted}}
  some: {from: several, topic: some, key: region, on_null: {column: _deleted}}
  numbers: {from: sizes, topic: numbers, key: n, on_null: {column: _deleted}}
  tags: {from: tagged, topic: tags, key: tag, on_null: {column: _deleted}}
  copy: {from: open, topic: copy, key: k, on_null: {column: _deleted}}
  log: {from: open, topic: log}
tests:
"""


def order(number: int, region: str, amount: str, status: str = "open", tags: str = "x") -> str:
    """A row of the table."""
    return f"{{id: {number}, region: {region}, amount: '{amount}', status: {status}, at: {number}, tags: [{tags}]}}"


def update(before: str, after: str, key: str) -> str:
    return f"{{key: '{key}', value: {{op: u, before: {before}, after: {after}}}}}"


HISTORY = [
    f"{{key: '1', value: {{op: r, after: {order(1, 'n', '5.00')}}}}}",
    f"{{key: '2', value: {{op: c, after: {order(2, 'n', '2.00', tags='x, y')}}}}}",
    update(order(1, "n", "5.00"), order(1, "n", "5.00", "paid"), "1"),
    update(order(2, "n", "2.00", tags="x, y"), order(2, "s", "7.00", tags="y, z"), "2"),
    update("null", order(2, "s", "9.00"), "2"),
    f"{{key: '2', value: {{op: d, before: {order(2, 's', '7.00', tags='y, z')}}}}}",
    "{key: '2', value: null}",
    f"{{key: '3', value: {{op: d, before: {order(3, 'n', '1.00')}}}}}",
]
EXPECTED = {
    "out": [
        "{key: n, value: {region: n, n: 1, net: '5.00', most: '5.00'}}",
        "{key: n, value: {region: n, n: 2, net: '7.00', most: '5.00'}}",
        "{key: n, value: {region: n, n: 1, net: '2.00', most: '2.00'}}",
        "{key: n, value: null}",
        "{key: s, value: {region: s, n: 1, net: '7.00', most: '7.00'}}",
        "{key: s, value: null}",
    ],
    "some": ["{key: n, value: {region: n, n: 2, net: '7.00', most: '5.00'}}", "{key: n, value: null}"],
    "copy": ["{key: '1'}", "{key: '2'}", "{key: '1', value: null}", "{key: '2'}", "{key: '2', value: null}",
             "{key: '3', value: null}"],
    "tags": [
        "{key: x, value: {tag: x, ids: 1}}",
        "{key: x, value: {tag: x, ids: 2}}",
        "{key: x, value: {tag: x, ids: 1}}",
        "{key: x, value: null}",
        "{key: y, value: {tag: y, ids: 1}}",
        "{key: y, value: null}",
        "{key: z, value: {tag: z, ids: 1}}",
        "{key: z, value: null}",
    ],
    "log": ["{}", "{}", "{}", "{}", "{}"],
}  # fmt: skip


IN_AVRO = ("format: debezium\n", "format: debezium-avro\n")
DECIMALS = ("    written_as: {decimals: text}\n", "")
REGISTRY = ("parallelism: 2\n", 'parallelism: 2\nregistry: {url: "http://127.0.0.1:1"}\n')


@pytest.mark.parametrize("changed", [(), (IN_AVRO, REGISTRY, DECIMALS)], ids=["JSON", "Avro"])
def test_totals_filters_and_copies_follow_a_table(changed: Sequence[tuple[str, str]]) -> None:
    expect = ", ".join(f"{sink}: [{', '.join(records)}]" for sink, records in EXPECTED.items())
    case_of = f"given: {{orders: [{', '.join(HISTORY)}]}}, expect: {{{expect}}}, bad_records: "
    text = TOTALS
    for old, new in changed:
        text = text.replace(old, new)
    assert messages(run_one(case_of + "{INCOMPLETE_CHANGE: 1, INCONSISTENT_CHANGE: 2}", text)) == []


def test_the_example_keeps_what_its_cases_say() -> None:
    text = (Path(__file__).resolve().parents[2] / "examples" / "changes.yaml").read_text(encoding="utf-8")
    results = run("", text)
    assert [(name, messages(one)) for name, one in results.items() if messages(one)] == []
    assert len(results) == 3


BY_TABLE = """\
version: 1
name: tables
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///nowhere}
sources:
  shop: {topics: [orders, customers], format: debezium, schema: {id: bigint}, metadata: {topic: table}}
steps:
  - {name: sizes, from: shop, key: table, aggregate: {n: count(*)}}
sinks:
  out: {from: sizes, topic: out, key: table, on_null: {column: _deleted}}
tests:
"""


def test_totals_of_nothing_but_metadata_are_kept() -> None:
    """No column of the rows is read, only what kind of change it is; no attempt came past its first record."""
    events = [
        ("orders", "{op: c, after: {id: 1}}"),
        ("orders", "{op: c, after: {id: 2}}"),
        ("customers", "{op: r, after: {id: 7}}"),
        ("orders", "{op: d, before: {id: 1}}"),
        ("customers", "{op: d, before: {id: 7}}"),
    ]
    given = ", ".join(f"{{topic: {topic}, value: {event}}}" for topic, event in events)
    out = [f"{{key: orders, value: {{table: orders, n: {n}}}}}" for n in (1, 2, 1)]
    out += ["{key: customers, value: {table: customers, n: 1}}", "{key: customers, value: null}"]
    case_of = f"given: {{shop: [{given}]}}, expect: {{out: [{', '.join(out)}]}}"
    assert messages(run_one(case_of, BY_TABLE)) == []
