"""What a schedule processes: pipelines of a fixed set, and records drawn from a seed."""

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
INPUTS: Final = {"stateless": ("orders",), "totals": ("orders",), "both": ("orders",), "union": ("orders", "returns")}
"""Topology -> its input topics."""
OUTPUTS: Final = {
    "stateless": ("paid",),
    "totals": ("sums",),
    "both": ("paid", "sums"),
    "union": ("paid", "sums"),
}
LATEST: Final = 0.1
"""This part of the schedules begins at the latest record."""
BACKENDS: Final = {("memory",): 6, ("rocksdb",): 1, ("rocksdb", "memory"): 1}
"""How often each is drawn: RocksDB is real, and costs a few milliseconds for every slot."""
METADATA_LAGS_MS: Final = (0, 0, 50, 400)
BURST_PACE: Final = 20.0
"""Before slots as slow as this the input may come all at once, so that rows wait in the channels. Their transactions
get more time: with 1.5 s no checkpoint could ever complete."""

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
        "aggregate": {"orders": "count(*)", "revenue_cents": "sum(quantity * price_cents)", "last_id": "last(id)"},
    },
]
_SINKS: Final = {
    "paid": {"from": "priced", "topic": "paid", "format": "json", "key": "customer"},
    "sums": {"from": "totals", "topic": "sums", "format": "json", "key": "sku"},
}


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of a schedule but its faults."""

    topology: str
    parallelism: int
    partitions: int
    """Of every topic."""
    records: int
    customers: int
    skus: int
    """Keys of the totals. With many of them few change between two checkpoints: most snapshots are increments."""
    exactly_once: bool
    interval_ms: int
    max_concurrent: int
    transaction_timeout_ms: int
    input_s: float
    """The input arrives over this time, a part of it is there from the beginning."""
    unaligned_after_ms: int | None = None
    """As in SlotSettings."""
    grow_at: float | None = None
    """From this part of the input on, the input topics have one more partition, and use it."""
    noisy: bool = False
    """Other producers write into the input within transactions that they abort."""
    broker_pace: float = 1.0
    """How much longer than usual the way to the broker is."""
    storage_pace: float = 1.0
    slot_pace: float = 1.0
    """How much longer than usual a turn of a slot's loop is: rows wait in the channels."""
    skew_ms: int = 0
    """The daemons' clocks go wrong by up to so much."""
    retained: int = 2
    """Completed checkpoints that are kept."""
    bounded: bool = False
    """`until: latest`: the pipeline ends by itself, and is started again until everything was read."""
    from_latest: bool = False
    """`start: latest`: what is there when the first daemon looks is never read."""
    backends: tuple[str, ...] = ("memory",)
    """Of state: what the first daemon's slots use, then the second's, and from the beginning."""
    metadata_lag_ms: int = 0
    """So long clients are told the leaders and coordinators of before."""


class InputRecord(msgspec.Struct, frozen=True):
    """A record of the input, and when it arrives."""

    at_s: float
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
    slot_pace = draw.choice((1.0, 1.0, 5.0, 20.0, 40.0))
    workload = Workload(
        topology=draw.choice(("stateless", "totals", "both", "both", "union")),
        parallelism=draw.choice((1, 2, 2, 3)),
        partitions=draw.randint(1, 4),
        records=draw.randint(40, 160),
        customers=draw.randint(1, 12),
        skus=draw.randint(1, 8),
        exactly_once=exactly_once,
        interval_ms=draw.choice((50, 100, 150, 250, 400)),
        max_concurrent=draw.choice((1, 1, 2, 3)),
        transaction_timeout_ms=max(draw.choice((1500, 3000, 10_000, 60_000)), 10_000 if slot_pace >= BURST_PACE else 0),
        input_s=0.3 if slot_pace >= BURST_PACE and draw.random() < 0.8 else draw.uniform(1.5, 6.0),
        unaligned_after_ms=draw.choice((None, None, 0, 0, 20, 200)) if exactly_once else None,
        bounded=draw.random() < 0.15,
        grow_at=draw.random() if draw.random() < 0.06 else None,
        noisy=draw.random() < 0.3,
        broker_pace=draw.choice((1.0, 1.0, 4.0, 15.0)),
        storage_pace=draw.choice((1.0, 1.0, 4.0, 15.0)),
        skew_ms=draw.choice((0, 0, 20, 200)),
        slot_pace=slot_pace,
        from_latest=generator(seed, "start").random() < LATEST,
        backends=generator(seed, "state").choices(list(BACKENDS), list(BACKENDS.values()))[0],
        metadata_lag_ms=generator(seed, "metadata").choice(METADATA_LAGS_MS),
    )
    skus = draw.choice((0, draw.randint(20, 60)))
    return msgspec.structs.replace(workload, retained=draw.choice((1, 2, 2, 3)), skus=skus or workload.skus)


def draw_records(seed: int, workload: Workload) -> list[InputRecord]:
    """In the order of their arrival; a customer's records are all in one partition of each topic."""
    draw = generator(seed, "records")
    topics = INPUTS[workload.topology]
    moments = sorted(max(0.0, draw.uniform(-0.3, 1.0)) * workload.input_s for _ in range(workload.records))
    found = []
    for number, at_s in enumerate(moments):
        customer = draw.randrange(workload.customers)
        grown = workload.grow_at is not None and at_s >= workload.grow_at * workload.input_s
        found.append(
            InputRecord(
                at_s=at_s,
                place=TopicPartition(draw.choice(topics), customer % (workload.partitions + grown)),
                id=number,
                customer=f"c{customer}",
                sku=f"s{draw.randrange(workload.skus)}",
                quantity=draw.randint(1, 5),
                price_cents=draw.randint(1, 999),
                status=draw.choice(("paid", "paid", "open")),
            )
        )
    return found


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
        "name": "simulated",
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
