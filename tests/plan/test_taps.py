"""Where rows can be tapped, by the names that people know."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.testing.pipelines import HEAD, load
from tidegate.ids import OperatorName, TopicPartition
from tidegate.plan.taps import find_tap_points
from tidegate.task.messages import RowsTapped, SlotMessage, TapRows
from tidegate.testing.feed import Log
from tidegate.testing.harness import Harness
from tidegate.testing.parts import VirtualClock
from tidegate.testing.preview import bound_sources

PIPELINE = (
    HEAD
    + """\
parallelism: 2
sources:
  orders:
    topic: orders
    schema: {id: bigint, customer: string, amount: "decimal(9,2)", tags: array<string>, raw: binary, at: timestamp}
    event_time: at
    bad_records: skip
steps:
  - {name: big, from: orders, where: amount >= 100}
  - name: split
    from: orders
    route: {small: amount < 10, rest: else}
  - {name: per_minute, from: big, window: {tumbling: 1m}, key: customer, aggregate: {n: count(*)}, late: late}
  - {name: both, from: [split.small, big], select: {id: id, amount: amount, tags: tags, raw: raw, at: at}}
sinks:
  windows: {from: per_minute, topic: windows, key: customer}
  all: {from: both, topic: all}
  late: {topic: late}
tests:
"""
)


class TappedHarness(Harness):
    """Notes the rows of taps."""

    def _receiver(self, slot: int) -> Callable[[SlotMessage], None]:
        inner = super()._receiver(slot)
        self.tapped: list[RowsTapped] = getattr(self, "tapped", [])

        def receive(message: SlotMessage) -> None:
            if isinstance(message, RowsTapped):
                self.tapped.append(message)
            inner(message)

        return receive


def orders_log(rows: int) -> Log:
    log = Log({TopicPartition("orders", number): rows for number in range(2)})
    for number in range(2 * rows):
        value = {
            "id": number,
            "customer": f"c{number}",
            "amount": number * 10 + 0.5,
            "tags": ["a", "b"],
            "raw": "AAE=",
            "at": f"2026-01-01T00:{number:02}:00Z",
        }
        log.append(TopicPartition("orders", number % 2), None, json.dumps(value).encode(), 0)
    return log


def test_everything_that_people_can_name_has_its_rows() -> None:
    _, plan = load("  []\n", PIPELINE)
    points = find_tap_points(plan)
    assert {"orders", "big", "split.small", "per_minute", "both", "windows", "all", "late"} <= {*points}
    assert not {"split", "split.rest"} & {*points}, "nothing reads these outputs"
    plan = bound_sources(plan)
    harness = TappedHarness(plan, orders_log(10), VirtualClock(0), lambda _: None)
    try:
        for number, name in enumerate(points):
            for deployment in harness._slots:
                deployment.loop.on_tap(TapRows(number, points[name], 100, 100_000))
        harness.settle()
        written = harness.written()
    finally:
        harness.close()
    found = {
        name: [json.loads(row) for one in harness.tapped if one.tap == number for row in one.rows]
        for number, name in enumerate(points)
    }
    assert len(found["orders"]) == 20
    assert {*found["orders"][0]} == {"id", "customer", "amount", "tags", "raw", "at"}
    assert [row["id"] for row in found["split.small"]] == [0]
    assert len(found["big"]) == 10
    for sink in ("windows", "all"):
        records = [json.loads(one.value or b"") for one in written[OperatorName(sink)]]
        assert sorted(found[sink], key=str) == sorted(records, key=str)
    (first,) = (row for row in found["all"] if row["id"] == 0)
    assert first == {"id": 0, "amount": 0.5, "tags": ["a", "b"], "raw": "AAE=", "at": "2026-01-01T00:00:00Z"}
    raw = [row for one in harness.tapped for row in one.rows if b'"id":0,' in row]
    assert any(b'"amount":0.50' in row for row in raw), "a decimal keeps its digits"


def test_rows_that_are_replayed_into_a_sink_are_left_out() -> None:
    letters = "dead_letters: {topic: dead, retry_topic: again}\n"
    _, plan = load("  []\n", letters + PIPELINE.replace("bad_records: skip", "bad_records: dead-letter"))
    points = find_tap_points(plan)
    assert any(edge.retries for edge in plan.edges)
    assert [point.vertex for point in points["all"]] == [point.vertex for point in points["both"]]
    assert not [name for name in points if name.startswith("dead_letters")]
