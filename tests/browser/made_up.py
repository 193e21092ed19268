"""Answers of resources whose data comes from a broker or from storage, made up for a situation."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from tests.browser.recording import FLOWS, Recording
from tests.browser.situations import HOSTILE

Answer = dict[str, Any]


def make_up(name: str, recording: Recording) -> dict[str, Answer]:
    """Returns the answers by resource, for the situation `name`."""
    now_ms = recording.now_ms()
    return {
        "plan": _plan(recording),
        "config": _config(recording),
        "history": _history(recording, now_ms),
        "events": {"events": _events(name, now_ms)},
        "dead-letters": _dead_letters(name, now_ms),
        "state": _state(),
        "tap": {"step": "valid", "rows": [{"id": 1, "customer": "ann", "amount": 12.5}], "cut": False, "ended": "rows"},
    }


def _plan(recording: Recording) -> Answer:
    steps, nodes, edges, vertices = [], [], [], []
    at: dict[str, tuple[int, int]] = {}
    for column, vertex in enumerate(recording.plan.vertices):
        for row, node in enumerate(vertex.nodes):
            name = node.operator.name
            at[name] = (40 + column * 240, 40 + row * 80)
            steps.append({"name": name, "kind": node.operator.kind, "vertex": vertex.id, "inputs": [], "text": ""})
            nodes.append({"step": name, "x": at[name][0], "y": at[name][1], "width": 180, "height": 56})
        height = 24 + 80 * len(vertex.nodes)
        vertices.append({"name": vertex.id, "x": 24 + column * 240, "y": 20, "width": 212, "height": height})
    for edge in recording.plan.edges:
        (x, y), (to_x, to_y) = at[edge.upstream], at[edge.downstream]
        points = [[x + 180, y + 28], [to_x, to_y + 28]]
        exchanged = bool(edge.keys)
        edges.append(
            {"from": edge.upstream, "to": edge.downstream, "port": "", "exchanged": exchanged, "points": points}
        )
    layout = {"width": 1240, "height": 320, "nodes": nodes, "edges": edges, "vertices": vertices}
    shape = {"pipeline": "shop", "parallelism": recording.slots, "steps": steps, "layout": layout}
    return {**shape, "explain": "shop: 2 sources, 3 steps, 2 sinks"}


def _config(recording: Recording) -> Answer:
    rows = [
        ("checkpoints.interval", "10s", "file", "shop.yaml:7"),
        ("kafka.bootstrap.servers", "localhost:9092", "file", "shop.yaml:6"),
        ("kafka.sasl.password", "***", "environment", "KAFKA_PASSWORD"),
        ("parallelism", str(recording.slots), "site", "site.yaml:3"),
        ("checkpoints.timeout", "10m", "default", None),
    ]
    settings = [{"path": path, "value": value, "origin": origin, "place": place} for path, value, origin, place in rows]
    return {"file": "shop.yaml", "text": recording.loaded.source, "settings": settings}


def _history(recording: Recording, now_ms: int) -> Answer:
    count = min(720, int((recording.clock.now - 50_000) / 5))
    at_ms = [now_ms - 5_000 * (count - 1 - index) for index in range(count)]

    def wave(middle: float, part: float = 0.1) -> list[float | None]:
        return [round(middle * (1 + part * math.sin(index / 7)), 2) for index in range(count)]

    slots = recording.slots
    pipeline = {
        "records_in_per_second": wave(810.0 * slots),
        "records_out_per_second": wave(6.5 * slots),
        "records_committed_per_second": wave(6.5 * slots, 0.3),
        "lag_records": wave(1_000, 0.4),
        "lag_seconds": wave(0.4, 0.3),
        "checkpoint_ms": wave(72, 0.5),
        "state_bytes": wave(5_400_000, 0.05),
        "oldest_transaction_seconds": wave(6, 0.6),
    }
    steps = {
        name: {
            "rows_in_per_second": wave(flow.rows_in * slots),
            "rows_out_per_second": wave(flow.rows_out * slots),
            "busy_ratio": wave(flow.busy),
            "blocked_ratio": wave(0.01),
            "event_time_lag_seconds": wave(2.3),
            "failed": wave(0),
            "late": wave(0),
            "waiting_rows": wave(0),
        }
        for name, flow in FLOWS.items()
    }
    shape = {"interval_ms": 5_000, "at_ms": at_ms}
    return {**shape, "pipeline": {"series": pipeline}, "steps": {name: {"series": one} for name, one in steps.items()}}


def _events(name: str, now_ms: int) -> list[Answer]:
    trace = 'Traceback (most recent call last):\n  File "tidegate/slot/worker.py", line 211, in run\nSlotLost: signal 9'
    rows = [
        (3_600_000, "started", "the daemon has started", "tidegate 0.1.0"),
        (3_590_000, "running", "attempt 1 runs", ""),
    ]
    if name == "starting":
        rows = [(500, "started", "the daemon has started", "tidegate 0.1.0")]
    elif name == "restarting":
        rows += [
            (610_000, "restarted", "attempt 1 failed: slot 2 was lost", trace),
            (604_000, "running", "attempt 2 runs", ""),
        ]
        rows += [(4_000, "restarted", "attempt 2 failed: slot 1 was lost", trace)]
    elif name == "failed-checkpoint":
        rows += [(120_000, "checkpoint_failed", "checkpoint 49 failed: it took longer than checkpoints.timeout", "")]
    elif name == "hostile":
        rows += [(9_000, "restarted", HOSTILE, HOSTILE), (8_000, "command", HOSTILE, "")]
    rows += [] if name == "starting" else [(2_000, "savepoint", "savepoint 320 was written", "/tmp/savepoints/320")]
    rows.sort()
    return [
        {"at_ms": now_ms - age_ms, "kind": kind, "text": text, "detail": detail, "attempt": 1}
        for age_ms, kind, text, detail in rows
    ]


def _dead_letters(name: str, now_ms: int) -> Answer:
    letters = []
    count = {"dead-letters": 100, "hostile": 3}.get(name, 0)
    for index in range(count):
        text = json.dumps({"id": 70_000 + index, "customer": "ann", "amount": "twelve", "at": 1_796_040_000_000})
        reason = "amount: expected a number, got text"
        if name == "hostile":
            text, reason = HOSTILE, HOSTILE
        step = "valid" if index % 9 == 4 else "orders"
        letter: Answer = {"offset": 400 - index, "partition": 0, "at_ms": now_ms - 1_400 * index, "step": step}
        letter |= {"kind": "WRONG_TYPE" if step == "orders" else "EXPRESSION", "reason": reason}
        letter["source"] = {"cluster": "kafka", "topic": "orders", "partition": index % 6, "offset": 88_100 - index}
        encoded = base64.b64encode(text.encode()).decode()
        columns = {"customer": HOSTILE} if name == "hostile" else None
        letter["payload"] = {"text": text, "base64": encoded, "columns": columns}
        letter["replay"] = f"tidegate dead-letters replay shop.yaml --offset 0:{400 - index}"
        letters.append(letter)
    return {"topic": "shop-dead", "cluster": "kafka", "letters": letters}


def _state() -> Answer:
    return {
        "checkpoint": 320,
        "states": [
            {"step": "paid_orders", "state": "left", "keys": 11_250, "size_bytes": 3_100_000},
            {"step": "paid_orders", "state": "right", "keys": 9_400, "size_bytes": 2_200_000},
            {"step": "per_minute", "state": "windows", "keys": 130, "size_bytes": 96_000},
        ],
    }
