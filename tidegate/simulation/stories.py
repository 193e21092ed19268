"""Faults that belong together: what rarely meets by chance, and is an everyday story where the program runs.

A part of the schedules has one of them and few other faults: among many a pipeline is mostly not running when one is
due. Each is drawn, too: when, how long, with what between.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tidegate.simulation.chance import generator
from tidegate.simulation.faults import Fault
from tidegate.simulation.workload import Workload

TOLD: Final = 0.4
"""In this part of the schedules."""
OTHERS: Final = (0, 4)
"""Faults beside a story."""
LATE_S: Final = (5.5, 12.0)
"""Longer than a transaction may hang before somebody looks after it."""


def tell_story(
    seed: int, workload: Workload, faults: tuple[Fault, ...], end_s: float, *, from_the_start: bool
) -> tuple[Fault, ...]:
    """Mostly just `faults`. `from_the_start`: the first daemon starts among them."""
    draw = generator(seed, "story")
    if draw.random() >= TOLD:
        return faults
    make = draw.choice(_FIRST if from_the_start else _STORIES)
    return (*faults[: draw.randint(*OTHERS)], *make(draw, workload, round(draw.uniform(0.0, end_s), 3)))


def _moment(draw: random.Random, from_s: float, *limits: float) -> float:
    return round(from_s + draw.uniform(*limits), 3)


def _started_without_its_volume(_draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """A machine is set up again, and its volume is forgotten (X03)."""
    return (Fault(kind="kill", at_s=at_s, target="daemon"), Fault(kind="volume-lost", at_s=at_s))


def _runs_on_without_its_volume(_draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """It is unmounted under a daemon that runs (X03)."""
    return (Fault(kind="volume-lost", at_s=at_s),)


def _damaged_while_stopped(_draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """What it has written last is wrong when it is started again."""
    return (Fault(kind="stop", at_s=at_s, target="damage"),)


def _moved_with_a_savepoint(draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """What it says is committed must be, for nobody else knows (ADR 11); and Kafka is hard to reach just then."""
    return (
        Fault(kind="savepoint", at_s=at_s, target="moved"),
        Fault(kind="partition", at_s=at_s, target="daemon/broker", seconds=_moment(draw, 0.0, 0.5, 3.0)),
    )


def _markers_are_late(draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """Transactions are decided, and their markers come much later (ADR 15)."""
    return (Fault(kind="marker-delay", at_s=at_s, seconds=_moment(draw, 0.0, *LATE_S)),)


def _fenced_while_a_leader_is_away(draw: random.Random, workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """An attempt fails, and Kafka aborts what it had open: without a marker where there is no leader, and again when
    the answer is lost (ADR 15).
    """
    topic = draw.choice(workload.shape.topics)
    places = [f"{topic}/{number}" for number in range(workload.partitions)]
    away = [
        Fault(kind="leader-away", at_s=at_s, target=place, seconds=_moment(draw, 1.0, 0.0, 2.0)) for place in places
    ]
    lost = [Fault(kind="lose-after", point="daemon.broker.fence", nth=nth) for nth in range(1, draw.randint(2, 5))]
    return (Fault(kind="kill", at_s=_moment(draw, at_s, 0.0, 0.3), target="slot 0"), *away, *lost)


def _daemon_whose_clock_is_set_back(_draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """What waits for a time of day waits for an hour (X05)."""
    return (Fault(kind="clock", at_s=at_s, target="daemon back"),)


def _first_start_fails(draw: random.Random, _workload: Workload, _at_s: float) -> tuple[Fault, ...]:
    """In the middle of making the checkpoint directory; later on the power is cut."""
    return (
        Fault(kind="crash-before", point="daemon.storage.fsync", nth=draw.randint(1, 3)),
        Fault(kind="power-cut", at_s=_moment(draw, 0.0, 1.0, 6.0)),
    )


Story = Callable[[random.Random, Workload, float], tuple[Fault, ...]]

_STORIES: Final[tuple[Story, ...]] = (
    _started_without_its_volume,
    _runs_on_without_its_volume,
    _damaged_while_stopped,
    _moved_with_a_savepoint,
    _markers_are_late,
    _fenced_while_a_leader_is_away,
    _daemon_whose_clock_is_set_back,
)
_FIRST: Final[tuple[Story, ...]] = (_first_start_fails,)
