"""A pipeline that begins with state from history, and the tables of what it has then: one daemon, real files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import confluent_kafka as ck
import msgspec
import pytest

from tests.e2e.conftest import RigMaker
from tests.support.clients import consumer
from tests.support.command import tidegate
from tests.waiting import wait_until
from tidegate.dev.demo.verify import Order, SkuTotal, read_topic, verify_totals

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(900)]

HISTORY = 400
Rows = list[tuple[bytes | None, bytes]]


def updates_of(orders: Iterable[Order]) -> dict[str, list[SkuTotal]]:
    """What the totals of each sku were after each of its orders."""
    found: defaultdict[str, list[SkuTotal]] = defaultdict(list)
    for order in orders:
        before = found[order.sku][-1] if found[order.sku] else SkuTotal(order.sku, 0, 0, -1)
        revenue = before.revenue_cents + order.quantity * order.price_cents
        found[order.sku].append(SkuTotal(order.sku, before.orders + 1, revenue, order.id))
    return found


def read_totals(source: object) -> dict[str, tuple[int, int]]:
    """Orders and revenue of each sku; which order was the last of several customers' is open."""
    done = tidegate("state", "read", source, "totals", "--format", "json")
    assert done.code == 0, done.text
    rows = map(json.loads, done.stdout.splitlines())
    return {row["sku"]: (row["orders"], row["revenue_cents"]) for row in rows}


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    with consumer({"bootstrap.servers": bootstrap, "group.id": "ends"}) as client:
        partitions = client.list_topics(topic, 60).topics[topic].partitions
        return {part: client.get_watermark_offsets(ck.TopicPartition(topic, part), 60)[1] for part in partitions}


def by_sku(history: dict[str, list[SkuTotal]], partitions: Sequence[Rows]) -> list[Rows]:
    """The committed updates of each sku after those that history stands for."""
    found: dict[str, Rows] = {
        sku: [(sku.encode(), msgspec.json.encode(update)) for update in updates] for sku, updates in history.items()
    }
    for rows in partitions:
        for key, value in rows:
            found.setdefault((key or b"").decode(), []).append((key, value))
    return list(found.values())


def test_a_pipeline_begins_with_state_from_history_and_its_state_is_read_as_tables(
    make_rig: RigMaker, tmp_path: Path
) -> None:
    rig = make_rig(seed=31, savepoint_roots=(str(tmp_path),))
    rig.writer.start()
    wait_until(lambda: len(rig.writer.orders) >= HISTORY, "there is a history")
    history = updates_of(rig.writer.orders[: rig.writer.pause()])
    rows, made, file = tmp_path / "rows.jsonl", tmp_path / "history", rig.write("made.yaml")
    rows.write_bytes(b"".join(msgspec.json.encode(updates[-1]) + b"\n" for updates in history.values()))
    positions = f"orders={json.dumps(end_offsets(rig.broker.bootstrap, rig.topic['orders']))}"
    written = tidegate(*("state", "write", made, file, "--step", "totals", "--input", rows, "--positions", positions))
    written.says(0, f"{len(history)} keys of 1 step, ")

    rig.writer.resume()
    daemon = rig.daemon("-m", "tidegate", "run", "--restore", str(made)).start().wait_running()
    daemon.wait_committed()
    assert sum(orders for orders, _ in read_totals(made).values()) >= HISTORY
    assert len(read_totals(file)) >= len(history)  # while it runs
    address = daemon.wait_for(r"(http://127\.0\.0\.1:\d+)").group(1)
    taken = tidegate("savepoint", file, tmp_path / "taken", "--http", address, environ=daemon.environ)
    assert taken.code == 0, taken.text
    orders = rig.writer.stop()
    daemon.wait_read()
    assert daemon.terminate() == 0, daemon.text()[-3000:]

    verdict = verify_totals(orders, by_sku(history, read_topic(rig.broker.bootstrap, rig.topic["totals"])))
    assert verdict.exact, msgspec.to_builtins(verdict)
    assert verdict.found > sum(map(len, history.values())), "nothing came after the history"
    expected = {sku: (last.orders, last.revenue_cents) for sku, (*_, last) in updates_of(orders).items()}
    assert read_totals(file) == expected
    savepoint = read_totals(taken.stdout.strip())
    assert savepoint.keys() <= expected.keys()
    assert all(history[sku][-1].orders <= savepoint[sku][0] <= expected[sku][0] for sku in history)
