"""Columns of a user may have any name but those that begin with `__tidegate`, also the former ones of the engine."""

from __future__ import annotations

import json

from tests.testing.pipelines import HEAD, messages, run_one

NAMES = (
    "__time",
    "__partition",
    "__offset",
    "__topic",
    "__behind",
    "__kind",
    "__headers",
    "__row",
    "__at",
    "__deleted",
)
ROW = {"id": 1, **{name: f"{name} of the record" for name in NAMES}}
COLUMNS = {name: "bigint" if name == "id" else "string" for name in ROW}
PIPELINE = f"""\
sources:
  rows:
    topics: [a, b]
    schema: {json.dumps({**COLUMNS, "at": "timestamp"})}
    event_time: at
    bad_records: skip
  changes: {{topic: c, format: debezium, schema: {json.dumps(COLUMNS)}, bad_records: skip}}
steps:
  - {{name: kept, from: rows, where: "`__deleted` IS NOT NULL"}}
  - {{name: many, from: kept, select: {{id: id, __row: __row, tags: "array(__time, __offset)"}}}}
  - {{name: each, from: many, explode: {{tags: __made}}}}
  - {{name: long, from: each, select: {{__x: "transform(array(__made), __row -> concat(__row, '!'))"}}}}
  - {{name: newest, from: kept, keep: {{by: id, n: 1}}, key: __partition}}
  - {{name: counted, from: kept, key: [__time, __behind], window: {{tumbling: 1m}}, aggregate: {{__session: count(*)}}}}
  - {{name: totals, from: changes, key: __kind, aggregate: {{__at: count(*), __row: min(__row)}}}}
sinks:
  copy: {{from: rows, topic: copy, key: __topic, headers: {{pass: all}}}}
  exploded: {{from: long, topic: exploded}}
  kept_rows: {{from: newest, topic: newest}}
  windows: {{from: counted, topic: windows, key: __time}}
  net: {{from: totals, topic: totals, key: __kind, on_null: {{column: _deleted}}}}
tests:
"""


def test_columns_with_two_underscores_go_through_every_kind_of_step() -> None:
    record = {**ROW, "at": "2026-01-01T00:00:30Z"}
    later = {"id": 2, "__topic": "end", "at": "2026-01-01T00:01:30Z"}
    window = {"window_start": "2026-01-01T00:00:00Z", "window_end": "2026-01-01T00:01:00Z", "__session": 1}
    window |= {name: ROW[name] for name in ("__time", "__behind")}
    expected = {
        "copy": [{"key": ROW["__topic"], "value": record}, {"key": "end"}],
        "exploded": [{"value": {"__x": [f"{ROW[name]}!"]}} for name in ("__time", "__offset")],
        "windows": [{"key": ROW["__time"], "value": window}],
        "net": [{"key": ROW["__kind"], "value": {"__kind": ROW["__kind"], "__at": 1, "__row": ROW["__row"]}}],
    }
    given = {
        "rows": [{"value": one, "topic": "b"} for one in (record, {"id": "x"}, later)],
        "changes": [{"value": {"op": "c", "before": None, "after": ROW}}],
    }
    case = f"given: {json.dumps(given)}, expect: {json.dumps(expected)}, bad_records: 1"
    assert messages(run_one(case, HEAD + PIPELINE)) == []
