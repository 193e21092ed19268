"""Whatever happens to a table: its totals, conditions on them, totals of them and a copy are what the table says."""

from __future__ import annotations

import json
import random

import pytest

from tests.depth import DEPTH
from tests.support.tables import SINKS, SOURCE, STEPS, draw_history, expected_view, make_sinks, newest
from tests.testing.pipelines import HEAD, messages, run_one

PARTITIONS = 3


@pytest.mark.parametrize("seed", range(DEPTH))
@pytest.mark.parametrize(("parallelism", "changes"), [(1, "debezium"), (3, "debezium"), (3, "debezium-avro")])
def test_a_pipeline_follows_a_table_with_any_number_of_slots_and_over_a_restart(
    seed: int, parallelism: int, changes: str
) -> None:
    table, events = draw_history(random.Random(seed), 30)
    given = [{"key": str(key), "value": event, "partition": key % PARTITIONS} for key, event in events]
    document = {
        **({} if changes == SOURCE["format"] else {"registry": {"url": "http://127.0.0.1:1"}}),
        "sources": {"table": {"topic": "table", **SOURCE, "format": changes}},
        "steps": STEPS,
        "sinks": make_sinks({name: name for name in SINKS}),
    }
    text = HEAD + "".join(f"{word}: {json.dumps(part)}\n" for word, part in document.items()) + "tests:\n"
    result = run_one(f"given: {json.dumps({'table': given})}, bad_records: 0", text, parallelism)
    # Totals of totals come from several slots, in an order of their own: after a restart others may come on the way.
    assert [one for one in messages(result) if not (parallelism > 1 and one.startswith("sizes_out: a restart"))] == []
    found = {name: newest((one["key"], one["value"]) for one in result.output[f"{name}_out"]) for name in SINKS}
    assert found == expected_view(table)
