"""The workload of a schedule: the shape of its pipeline and the arrival of its records, drawn from a seed."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.checks.pipeline_file import find_references
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.coordinator.triggers import FIRST_TRIGGER_MS, CheckpointPolicy
from tidegate.ids import MAIN_CLUSTER, TopicPartition
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.simulation.clusters import ADDRESSES, Location, draw_locations, place_in_file
from tidegate.simulation.kernel import generator
from tidegate.simulation.releases import CHANGES, release
from tidegate.simulation.shapes.python_steps import CODE
from tidegate.simulation.shapes.registry import COMMON, JOINED, PYTHON, RARE, SHAPES, WINDOWED
from tidegate.simulation.shapes.shape import DEAD_TOPIC, SCHEMA, TIMED_SCHEMA, Shape
from tidegate.simulation.timing import Timing, draw_lulls, draw_more, draw_timing, draw_two_inputs
from tidegate.user_code.describe import UserCode, describe
from tidegate.user_code.modules import install_modules, read_modules

if TYPE_CHECKING:
    import random

MOST_SUBTASKS: Final = 3
"""Maximum number of subtasks of a vertex, including after a rescale."""
WINDOWS: Final = 0.3
"""The fraction of schedules that have windows."""
SHAPED: Final = 0.2
"""The fraction of schedules without windows that have one of the rare shapes."""
JOINS: Final = 0.125
"""The fraction of schedules that have joins, tables or absence."""
STEPS_IN_PYTHON: Final = 0.07
"""The fraction of the other schedules that have steps in Python."""
SKUS_OF_PYTHON: Final = 8
GRAIN_MS: Final = 50
MANY_FILES_TIMEOUT_MS: Final = 6000
"""Timeout of checkpoints of a step with nine states, each in a file."""
SKEW_OF_TIMERS_MS: Final = 200
"""A timer is set by the clock of one machine and may fire by that of another one."""
SKUS_OF_JOINS: Final = 12
"""Minimum number of keys, so that there are not too many pairs."""
MORE_TIMING: Final = 0.2
"""The fraction of schedules with windows that have early results, a time zone, or a watermark by the clock."""
EARLY_SESSIONS: Final = 0.4
"""The fraction of schedules with early results that have sessions."""
TWO_CLUSTERS: Final = 0.25
"""The fraction of schedules whose topics are in two clusters."""
RENAMED: Final = 0.15
"""The fraction of schedules in which each daemon starts with different step names."""
CHANGED: Final = 0.2
"""The fraction of exactly-once schedules with totals in which the pipeline has releases."""
BOUNDED: Final = 0.1
"""The fraction of schedules that end by themselves."""
LATEST: Final = 0.1
"""The fraction of schedules that begin at the latest record."""
BACKENDS: Final = {("memory",): 6, ("rocksdb",): 1, ("rocksdb", "memory"): 1}
"""Weight of each choice. RocksDB is real and costs a few milliseconds per slot."""
PIPELINE: Final = "simulated"
HOUR_MS: Final = 3_600_000
METADATA_LAGS_MS: Final = (0, 0, 50, 400)
SLOW_PACE: Final = 20.0
"""For slots as slow as this, the input comes in waves, so that rows wait in the channels. Their transactions get more
time: with 1.5 s no checkpoint could ever complete.
"""
GAP_S: Final = 0.05
SLOW_INTERVAL_MS: Final = {20.0: 150, 40.0: 400}
"""Barriers come no faster than the loops of slow slots turn: once per channel, and then for rows."""
SLOW_STORAGE: Final = 15.0
PATIENT_MS: Final = 10_000
"""Transaction timeout for slow slots, and for storage as slow as this if a snapshot consists of many files."""
SLOW_GAP_S: Final = 0.2
"""Minimum time between two bursts for slow slots, so that no more arrives than can be processed."""
_OTHER_NAME: Final = "-2"
"""Follows the original name of a step that was renamed."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a schedule except its life and its faults."""

    topology: str
    """Name of the shape."""
    parallelism: int
    partitions: int
    """Partitions of every topic."""
    backlog: int
    """Records written before the first daemon starts."""
    burst: int
    """Maximum number of the following records that arrive at once."""
    gap_s: float
    """Average time between two bursts."""
    wave: int = 0
    """From time to time, as many records arrive as are needed for this many to wait."""
    customers: int
    skus: int
    """Number of keys of the totals. With many keys, few change between two checkpoints: most snapshots are
    increments.
    """
    exactly_once: bool
    interval_ms: int
    max_concurrent: int
    checkpoint_timeout_ms: int = 2000
    transaction_timeout_ms: int
    unaligned_after_ms: int | None = None
    """The same option as in SlotSettings."""
    noisy: bool = False
    """Other producers write to the input in transactions that they abort."""
    growing: bool = False
    """Input topics get more partitions while they are read."""
    broker_pace: float = 1.0
    """Factor by which requests to the broker are slower than usual."""
    storage_pace: float = 1.0
    slot_pace: float = 1.0
    """Factor by which a turn of a slot's loop is slower than usual, so that rows wait in the channels."""
    credit_bytes: int | None = None
    """Bytes that a receiver grants on a channel at a time; None means the production value."""
    skew_ms: int = 0
    """The wall clocks of the processes are wrong by up to this much."""
    drift: float = 0.0
    """The wall clocks run fast or slow by up to this fraction."""
    retained: int = 2
    """Number of completed checkpoints that are retained."""
    bounded: bool = False
    """`until: latest`: the pipeline ends by itself, and is restarted until everything has been read."""
    from_latest: bool = False
    """`start: latest`: records that exist when the first daemon reads the offsets are never read."""
    backends: tuple[str, ...] = ("memory",)
    """State backends, one per daemon in turn, repeated cyclically."""
    metadata_lag_ms: int = 0
    """Time for which clients are still given the previous leaders and coordinators."""
    timing: Timing | None = None
    """Only used by topologies with event time."""
    renamed: bool = False
    """All steps are renamed at every start of a daemon."""
    locations: tuple[Location, ...] = ()
    """The cluster of each topic, if there are two."""
    changed: str = ""
    """One of CHANGES: how each release of the pipeline changes the totals. Empty means a single release."""

    @property
    def windows(self) -> Timing | None:
        """The timing, if the shape has windows."""
        return self.timing if self.shape.windowed else None

    @property
    def checkpoints(self) -> CheckpointPolicy:
        """The checkpoint settings in the coordinator's form."""
        return CheckpointPolicy(
            interval_ms=self.interval_ms,
            timeout_ms=self.checkpoint_timeout_ms,
            max_concurrent=self.max_concurrent,
            tolerable_failures=3,
            retained=self.retained,
            first_ms=min(self.interval_ms, FIRST_TRIGGER_MS),
        )

    @property
    def shape(self) -> Shape:
        """The pipeline and its records."""
        return SHAPES[self.topology]


class InputRecord(msgspec.Struct, frozen=True):
    """A record of the input."""

    place: TopicPartition
    id: int
    customer: str
    sku: str
    quantity: int
    price_cents: int
    status: str
    at: int | None = None
    """Event time in ms since 1970, if the shape has windows."""
    arrived_s: float = 0.0
    """Virtual time at which the record was written."""
    bad: str = ""
    """The place where the record fails: `source`, `step` (if it gets that far), or empty."""

    @property
    def event_ms(self) -> int:
        """The event time, which every record of a shape with event times has."""
        assert self.at is not None, "a record without event time"
        return self.at

    @property
    def value(self) -> bytes:
        """The record as JSON."""
        columns = SCHEMA if self.at is None else TIMED_SCHEMA
        row = {name: getattr(self, name) for name in columns}
        return msgspec.json.encode({**row, "quantity": "many"} if self.bad == "source" else row)


def draw_workload(seed: int) -> Workload:
    """Draws the workload from the seed."""
    workload = _draw_in_one_cluster(seed)
    draw = generator(seed, "clusters")
    if draw.random() >= TWO_CLUSTERS:
        return workload
    return msgspec.structs.replace(workload, locations=draw_locations(draw, workload.shape))


def _draw_in_one_cluster(seed: int) -> Workload:
    renamed = generator(seed, "renamed steps").random() < RENAMED
    workload = msgspec.structs.replace(_draw_topology(seed), renamed=renamed)
    if workload.windows is not None:
        timing = draw_lulls(generator(seed, "lulls"), workload.windows)
        workload = msgspec.structs.replace(workload, timing=timing, partitions=timing.least(workload.partitions))
    joins = generator(seed, "workload of joins shape")
    if joins.random() < JOINS:
        return _draw_join(joins, workload)
    python = generator(seed, "steps in python")
    if python.random() < STEPS_IN_PYTHON:
        return _draw_python(python, workload)
    draw = generator(seed, "changed steps")
    if not workload.exactly_once or "sums" not in workload.shape.outputs or draw.random() >= CHANGED:
        return workload
    return msgspec.structs.replace(workload, changed=draw.choice(CHANGES))


def _draw_topology(seed: int) -> Workload:
    workload = _draw_without_windows(seed)
    draw = generator(seed, "windows")
    if draw.random() >= WINDOWS:
        return _draw_shape(seed, workload)
    unaligned_after_ms = draw.choice((workload.unaligned_after_ms, 0)) if workload.exactly_once else None
    topology = draw.choice(WINDOWED)
    timing = draw_timing(draw, single=topology in ("wide-windows", "session-windows"))
    workload = msgspec.structs.replace(
        workload,
        topology=topology,
        timing=timing,
        unaligned_after_ms=unaligned_after_ms,
        transaction_timeout_ms=max(
            workload.transaction_timeout_ms, PATIENT_MS if workload.storage_pace >= SLOW_STORAGE else 0
        ),
    )
    more = generator(seed, "early timing windows")
    if more.random() < MORE_TIMING:
        timing = draw_more(more, timing)
        return _decide_more(workload, timing, sessions=more.random() < EARLY_SESSIONS)
    return _decide_sessions(workload, timing) if topology == "session-windows" else workload


def _decide_more(workload: Workload, timing: Timing, *, sessions: bool) -> Workload:
    """Adjusts a workload for further timing.

    The contents of early results must not depend on which slot is faster, and what a clock closes must not depend on
    wrong clocks.
    """
    workload = msgspec.structs.replace(workload, topology="windows", timing=timing, bounded=False)
    if timing.early_ms and sessions:
        timing = msgspec.structs.replace(timing, every_ms=None)
        return _decide_sessions(msgspec.structs.replace(workload, topology="session-windows"), timing)
    if timing.early_ms:
        return msgspec.structs.replace(workload, growing=False, exactly_once=True)
    return msgspec.structs.replace(workload, skew_ms=min(workload.skew_ms, 200), drift=0.0)


def _draw_shape(seed: int, workload: Workload) -> Workload:
    """Replaces the shape by a rare one in some of the schedules."""
    draw = generator(seed, "topology shape kind")
    if draw.random() >= SHAPED:
        return workload
    topology = draw.choice(RARE)
    shape = SHAPES[topology]
    return msgspec.structs.replace(
        workload,
        topology=topology,
        exactly_once=workload.exactly_once or shape.exactly_once,
        growing=(workload.growing or shape.new_topics) and shape.growing,
        bounded=workload.bounded and shape.bounded,
    )


def _draw_join(draw: random.Random, workload: Workload) -> Workload:
    """Replaces the shape by one with joins, a table or absence. All of them have an exact result."""
    topology = draw.choice(JOINED)
    timing = None
    if SHAPES[topology].windowed:
        timing = draw_lulls(draw, draw_timing(draw, single=True))
        timing = draw_two_inputs(draw, timing) if len(SHAPES[topology].inputs) > 1 else timing
    slow = workload.slot_pace >= SLOW_PACE and len(SHAPES[topology].inputs) > 1
    return msgspec.structs.replace(
        workload,
        topology=topology,
        timing=timing,
        interval_ms=workload.interval_ms * (2 if slow else 1),  # two inputs have twice the channels, and more
        partitions=workload.partitions if timing is None else timing.least(workload.partitions),
        skus=max(workload.skus, SKUS_OF_JOINS),
        exactly_once=True,
        growing=False,
        bounded=False,
        from_latest=False,
        renamed=False,  # steps that read by `from`
        transaction_timeout_ms=max(
            workload.transaction_timeout_ms, PATIENT_MS if workload.storage_pace >= SLOW_STORAGE else 0
        ),
    )


def _draw_python(draw: random.Random, workload: Workload) -> Workload:
    """Replaces the shape by one with a step in Python, whose result is exact."""
    topology = draw.choice(PYTHON)
    timing = None
    if SHAPES[topology].windowed:
        timing = msgspec.structs.replace(draw_lulls(draw, draw_timing(draw, single=True)), grain_ms=GRAIN_MS)
    return msgspec.structs.replace(
        workload,
        topology=topology,
        timing=timing,
        partitions=workload.partitions if timing is None else timing.least(workload.partitions),
        skus=min(workload.skus, SKUS_OF_PYTHON),
        exactly_once=True,
        growing=False,
        bounded=False,
        checkpoint_timeout_ms=max(workload.checkpoint_timeout_ms, MANY_FILES_TIMEOUT_MS),
        skew_ms=min(workload.skew_ms, SKEW_OF_TIMERS_MS),
        drift=0.0,
        transaction_timeout_ms=max(
            workload.transaction_timeout_ms, PATIENT_MS if workload.storage_pace >= SLOW_STORAGE else 0
        ),
    )


def _decide_sessions(workload: Workload, timing: Timing) -> Workload:
    """Adjusts a workload for sessions.

    Which records share a session depends on all of them, so no record may depend on timing.
    """
    timing = msgspec.structs.replace(timing, idle="never")
    return msgspec.structs.replace(workload, timing=timing, bounded=False, growing=False, exactly_once=True)


def _draw_without_windows(seed: int) -> Workload:
    """Draws what a seed meant before there were windows."""
    draw = generator(seed, "workload")
    exactly_once = draw.random() < 0.92
    slot_pace = draw.choice((1.0, 1.0, 5.0, 20.0, 20.0, 40.0))
    slow = slot_pace >= SLOW_PACE
    skus = draw.choice((draw.randint(1, 8), draw.randint(20, 60)))
    wave = draw.randint(30, 80) if slow else draw.randint(15, 40)
    interval_ms = max(draw.choice((50, 100, 150, 250, 400)), SLOW_INTERVAL_MS[slot_pace] if slow else 0)
    return Workload(
        topology=draw.choice(COMMON),
        parallelism=draw.choice((1, 2, 2, 2, MOST_SUBTASKS)),
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
        transaction_timeout_ms=max(draw.choice((1500, 3000, 10_000, 60_000)), PATIENT_MS if slow else 0),
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


@lru_cache(maxsize=512)  # with event time hardly any two plans are the same
def plan_of(
    topology: str,
    parallelism: int,
    exactly_once: bool,
    bounded: bool,
    from_latest: bool = False,
    timing: Timing | None = None,
    turn: int | None = None,
    changed: str = "",
    number: int = 0,
    locations: tuple[Location, ...] = (),
) -> Plan:
    """Builds the physical plan of a pipeline file as a user would write it.

    `turn`: see `_rename_steps`; `changed` and `number`: see `release`.
    """
    document = _document(topology, parallelism, exactly_once, bounded, from_latest, timing)
    document = place_in_file(document, locations)
    if changed:
        document = release(document, changed, number)
    if turn is not None:
        document = _rename_steps(document, turn)
    return build_plan(_describe_code(parse_pipeline(msgspec.json.encode(document).decode(), "simulated", {})))


def _describe_code(loaded: LoadedPipeline) -> LoadedPipeline:
    """Adds the users' modules and their description, as `resolve_code` does, without a child process."""
    references = find_references(loaded)
    modules = read_modules(CODE, references)
    install_modules(modules)
    found = {reference: describe(reference, modules) for reference in references}
    return replace(loaded, code=UserCode(modules, found)) if references else loaded


def _document(
    topology: str, parallelism: int, exactly_once: bool, bounded: bool, from_latest: bool, timing: Timing | None
) -> dict[str, Any]:
    shape = SHAPES[topology]
    source: dict[str, Any] = {
        "format": "json",
        "schema": shape.schema,
        "start": "latest" if from_latest else "earliest",
        "until": "latest" if bounded else "never",
        "bad_records": "dead-letter" if shape.letters else "fail",
        **({} if timing is None else shape.event_time_with(timing)),
        **shape.source,
    }
    document = {
        "version": 1,
        "name": PIPELINE,
        "kafka": {"bootstrap.servers": ADDRESSES[MAIN_CLUSTER]},
        "parallelism": parallelism,
        "checkpoints": {
            "directory": "file:///model",
            "interval": "1s",
            "mode": "exactly-once" if exactly_once else "at-least-once",
        },
        "sources": {
            name: {**({} if "pattern" in source else {"topic": name}), **source, **shape.own.get(name, {})}
            for name in shape.inputs
            if name != shape.retry
        },
        "steps": shape.steps_with(timing),
        "sinks": shape.sinks,
    }
    if DEAD_TOPIC in shape.topics:
        retry = {"retry_topic": shape.retry} if shape.retry else {}
        document["dead_letters"] = {"topic": DEAD_TOPIC, "max_per_minute": "unlimited", **retry}
    return document


def _rename_steps(document: dict[str, Any], turn: int) -> dict[str, Any]:
    """Returns the file of a user who renames every step at each start, and declares it with `was`.

    Steps have their original names in even turns, and others in odd ones.
    """
    names = {step["name"]: f"{step['name']}{_OTHER_NAME}" for step in document["steps"]}
    now = names if turn % 2 else {name: name for name in names}
    was = {other: name for name, other in names.items()} if turn % 2 else names

    def of_now(upstream: str | list[str]) -> str | list[str]:
        if isinstance(upstream, list):
            return [str(of_now(one)) for one in upstream]
        step, dot, output = upstream.partition(".")
        return f"{now.get(step, step)}{dot}{output}"

    steps = [
        {**step, "name": now[step["name"]], "was": was[now[step["name"]]], "from": of_now(step["from"])}
        for step in document["steps"]
    ]
    sinks = {
        name: {**sink, "from": of_now(sink["from"])} if "from" in sink else sink
        for name, sink in document["sinks"].items()
    }
    return {**document, "steps": steps, "sinks": sinks}
