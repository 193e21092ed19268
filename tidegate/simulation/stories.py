"""Faults that belong together: they rarely meet by chance, but are common in production.

Some schedules have one story and few other faults, because among many faults the pipeline is usually not running when
the story is due. The details are also drawn: when, for how long, and with what in between.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tidegate.simulation.faults import Fault
from tidegate.simulation.kernel import generator
from tidegate.simulation.workload import Workload

TOLD: Final = 0.4
"""The fraction of schedules with a story."""
OTHERS: Final = (0, 4)
"""Number of other faults next to a story."""
LATE_S: Final = (5.5, 12.0)
"""Longer than a transaction may hang before it is examined."""


def tell_story(
    seed: int, workload: Workload, faults: tuple[Fault, ...], end_s: float, *, from_the_start: bool
) -> tuple[Fault, ...]:
    """Returns `faults`, in some schedules with most of them replaced by a story.

    `from_the_start`: faults begin with the first daemon.
    """
    draw = generator(seed, "story")
    if draw.random() >= TOLD:
        return faults
    make = draw.choice(_FIRST if from_the_start else _STORIES)
    return (*faults[: draw.randint(*OTHERS)], *make(draw, workload, round(draw.uniform(0.0, end_s), 3)))


def _moment(draw: random.Random, from_s: float, *limits: float) -> float:
    return round(from_s + draw.uniform(*limits), 3)


def _started_without_its_volume(_draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """A machine is set up again without its volume (X03)."""
    return (Fault(kind="kill", at_s=at_s, target="daemon"), Fault(kind="volume-lost", at_s=at_s))


def _runs_on_without_its_volume(_draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """The volume is unmounted under a running daemon (X03)."""
    return (Fault(kind="volume-lost", at_s=at_s),)


def _damaged_while_stopped(_draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """The last state that a daemon wrote is damaged when the next one starts."""
    return (Fault(kind="stop", at_s=at_s, target="damage"),)


def _moved_with_a_savepoint(draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """The pipeline moves with a savepoint while Kafka is hard to reach.

    What the savepoint lists as committed must be committed, because nothing else knows about it (ADR 11).
    """
    return (
        Fault(kind="savepoint", at_s=at_s, target="moved"),
        Fault(kind="partition", at_s=at_s, target="daemon/broker", seconds=_moment(draw, 0.0, 0.5, 3.0)),
    )


def _markers_are_late(draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """Transactions are decided, and their markers are written much later (ADR 15)."""
    return (Fault(kind="marker-delay", at_s=at_s, seconds=_moment(draw, 0.0, *LATE_S)),)


def _fenced_while_a_leader_is_away(draw: random.Random, workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """An attempt fails, and Kafka aborts its open transactions under bad conditions (ADR 15).

    A partition without a leader gets no marker, and the abort is repeated when its answer is lost.
    """
    topic = draw.choice(workload.shape.topics)
    places = [f"{topic}/{number}" for number in range(workload.partitions)]
    away = [
        Fault(kind="leader-away", at_s=at_s, target=place, seconds=_moment(draw, 1.0, 0.0, 2.0)) for place in places
    ]
    lost = [Fault(kind="lose-after", point="daemon.broker.fence", nth=nth) for nth in range(1, draw.randint(2, 5))]
    return (Fault(kind="kill", at_s=_moment(draw, at_s, 0.0, 0.3), target="slot 0"), *away, *lost)


def _daemon_whose_clock_is_set_back(_draw: random.Random, _workload: Workload, at_s: float) -> tuple[Fault, ...]:
    """The daemon's wall clock is set back, so code that waits for a time of day would wait for an hour (X05)."""
    return (Fault(kind="clock", at_s=at_s, target="daemon back"),)


def _first_start_fails(draw: random.Random, _workload: Workload, _at_s: float) -> tuple[Fault, ...]:
    """The first start fails while it creates the checkpoint directory; later the power is cut."""
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
