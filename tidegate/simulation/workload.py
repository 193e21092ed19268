"""What a schedule processes: pipelines of a fixed set, and how much arrives when; drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec

from tidegate.config.load import parse_pipeline
from tidegate.ids import TopicPartition
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.simulation.chance import generator

SCHEMA: Final = {
    "id": "bigint",
    "customer": "string",
    "sku": "string",
    "quantity": "int",
    "price_cents": "bigint",
    "status": "string",
}
INPUTS: Final = {
    "stateless": ("orders",),
    "totals": ("orders",),
    "both": ("orders",),
    "union": ("orders", "returns"),
    "chain": ("orders",),
}
"""Topology -> its input topics."""
OUTPUTS: Final = {
    "stateless": ("paid",),
    "totals": ("sums",),
    "both": ("paid", "sums"),
    "union": ("paid", "sums"),
    "chain": ("sums", "customers"),
}
BOUNDED: Final = 0.1
"""This part of the schedules ends by itself."""
LATEST: Final = 0.1
"""This part of the schedules begins at the latest record."""
BACKENDS: Final = {("memory",): 6, ("rocksdb",): 1, ("rocksdb", "memory"): 1}
"""How often each is drawn: RocksDB is real, and costs a few milliseconds for every slot."""
PIPELINE: Final = "simulated"
HOUR_MS: Final = 3_600_000
METADATA_LAGS_MS: Final = (0, 0, 50, 400)
SLOW_PACE: Final = 20.0
"""Before slots as slow as this the input comes in waves, so that rows wait in the channels. Their transactions get more
time: with 1.5 s no checkpoint could ever complete."""
GAP_S: Final = 0.05
SLOW_INTERVAL_MS: Final = {20.0: 150, 40.0: 400}
"""And barriers come no faster than their loops turn, once for each channel and then for rows."""
SLOW_GAP_S: Final = 0.2
"""They get so much time at least between two bursts: nobody keeps up with more than can be processed."""

_STEPS: Final[list[dict[str, Any]]] = [
    {"name": "good", "from": "input", "where": "status = 'paid'"},
    {
        "name": "priced",
        "from": "good",
        "select": {"id": "id", "customer": "customer", "total_cents": "quantity * price_cents"},
    },
    {
        "name": "totals",
        "from": "input",
        "key": "sku",
        "aggregate": {
            "orders": "count(*)",
            "revenue_cents": "sum(quantity * price_cents)",
            "last_id": "last(id)",
            "customer": "last(customer)",
        },
    },
    {
        "name": "visits",
        "from": "totals",
        "key": "customer",
        "aggregate": {"orders": "count(*)", "last_id": "last(last_id)"},
    },
]
_SINKS: Final = {
    "paid": {"from": "priced", "topic": "paid", "format": "json", "key": "customer"},
    "sums": {"from": "totals", "topic": "sums", "format": "json", "key": "sku"},
    "customers": {"from": "visits", "topic": "customers", "format": "json", "key": "customer"},
}


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a schedule but its life and its faults."""

    topology: str
    parallelism: int
    partitions: int
    """Of every topic."""
    backlog: int
    """Records that are there before the first daemon."""
    burst: int
    """Of the records that follow at most so many come at once."""
    gap_s: float
    """Between two bursts, on the average."""
    wave: int = 0
    """Now and then as many come as are needed for so many to wait."""
    customers: int
    skus: int
    """Keys of the totals. With many of them few change between two checkpoints: most snapshots are increments."""
    exactly_once: bool
    interval_ms: int
    max_concurrent: int
    checkpoint_timeout_ms: int = 2000
    transaction_timeout_ms: int
    unaligned_after_ms: int | None = None
    """As in SlotSettings."""
    noisy: bool = False
    """Other producers write into the input within transactions that they abort."""
    growing: bool = False
    """Input topics get more partitions while they are read."""
    broker_pace: float = 1.0
    """How much longer than usual the way to the broker is."""
    storage_pace: float = 1.0
    slot_pace: float = 1.0
    """How much longer than usual a turn of a slot's loop is: rows wait in the channels."""
    credit_bytes: int | None = None
    """What a receiver grants on a channel at a time; None: as in production."""
    skew_ms: int = 0
    """The processes' wall clocks are wrong by up to so much."""
    drift: float = 0.0
    """And go too fast or too slowly by up to this part of the time."""
    retained: int = 2
    """Completed checkpoints that are kept."""
    bounded: bool = False
    """`until: latest`: the pipeline ends by itself, and is started again until everything was read."""
    from_latest: bool = False
    """`start: latest`: what is there when the first daemon looks is never read."""
    backends: tuple[str, ...] = ("memory",)
    """Of state: what the first daemon's slots use, then the second's, and from the beginning."""
    metadata_lag_ms: int = 0
    """How long clients are given the leaders and coordinators of before."""


class InputRecord(msgspec.Struct, frozen=True):
    """A record of the input."""

    place: TopicPartition
    id: int
    customer: str
    sku: str
    quantity: int
    price_cents: int
    status: str

    @property
    def value(self) -> bytes:
        """As JSON."""
        return msgspec.json.encode({name: getattr(self, name) for name in SCHEMA})


def draw_workload(seed: int) -> Workload:
    """Everything is drawn from the seed."""
    draw = generator(seed, "workload")
    exactly_once = draw.random() < 0.92
    slot_pace = draw.choice((1.0, 1.0, 5.0, 20.0, 20.0, 40.0))
    slow = slot_pace >= SLOW_PACE
    skus = draw.choice((draw.randint(1, 8), draw.randint(20, 60)))
    wave = draw.randint(30, 80) if slow else draw.randint(15, 40)
    interval_ms = max(draw.choice((50, 100, 150, 250, 400)), SLOW_INTERVAL_MS[slot_pace] if slow else 0)
    return Workload(
        topology=draw.choice(("stateless", "totals", "both", "union", "chain", "chain", "chain")),
        parallelism=draw.choice((1, 2, 2, 2, 3)),
        partitions=draw.randint(1, 4),
        backlog=draw.choice((0, 5, draw.randint(10, 40))),
        burst=draw.choice((1, 2, 4)),
        gap_s=max(interval_ms * draw.choice((0.5, 1.0, 2.0)) / 1000, SLOW_GAP_S if slow else GAP_S),
        wave=wave if slow or draw.random() < 0.2 else 0,
        customers=draw.randint(1, 12),
        skus=skus,
        exactly_once=exactly_once,
        interval_ms=interval_ms,
        max_concurrent=draw.choice((1, 2, 3)),
        checkpoint_timeout_ms=6000 if slow else 2000,
        transaction_timeout_ms=max(draw.choice((1500, 3000, 10_000, 60_000)), 10_000 if slow else 0),
        unaligned_after_ms=draw.choice((None, None, 0, 0, 0, 20, 200)) if exactly_once else None,
        noisy=draw.random() < 0.3,
        growing=draw.random() < 0.2,
        broker_pace=draw.choice((1.0, 1.0, 4.0, 15.0)),
        storage_pace=draw.choice((1.0, 1.0, 4.0, 15.0)),
        slot_pace=slot_pace,
        credit_bytes=draw.choice((1000, 2000, 6000) if slow else (2000, 6000, 20_000, None)),
        skew_ms=draw.choice((0, 20, 200, HOUR_MS)),
        drift=draw.choice((0.0, 0.0, 0.001, 0.05)),
        retained=draw.choice((1, 2, 2, 3)),
        bounded=draw.random() < BOUNDED,
        from_latest=draw.random() < LATEST,
        backends=draw.choices(list(BACKENDS), list(BACKENDS.values()))[0],
        metadata_lag_ms=draw.choice(METADATA_LAGS_MS),
    )


@cache
def plan_of(topology: str, parallelism: int, exactly_once: bool, bounded: bool, from_latest: bool = False) -> Plan:
    """The physical plan of a pipeline file as a user would write it."""
    inputs = INPUTS[topology]
    steps: Sequence[dict[str, Any]] = [
        {**step, "from": list(inputs) if len(inputs) > 1 else inputs[0]} if step["from"] == "input" else step
        for step in _STEPS
    ]
    document = {
        "version": 1,
        "name": PIPELINE,
        "kafka": {"bootstrap.servers": "model:9092"},
        "parallelism": parallelism,
        "checkpoints": {
            "directory": "file:///model",
            "interval": "1s",
            "mode": "exactly-once" if exactly_once else "at-least-once",
        },
        "sources": {
            name: {
                "topic": name,
                "format": "json",
                "schema": SCHEMA,
                "start": "latest" if from_latest else "earliest",
                "until": "latest" if bounded else "never",
            }
            for name in inputs
        },
        "steps": steps,
        "sinks": {name: _SINKS[name] for name in OUTPUTS[topology]},
    }
    loaded = parse_pipeline(msgspec.json.encode(document).decode(), "simulated", {})
    return build_plan(loaded)
