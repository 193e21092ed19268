"""Draws the faults of a schedule from its seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.simulation.cluster_faults import spread_faults
from tidegate.simulation.faults import Fault
from tidegate.simulation.kernel import generator
from tidegate.simulation.life import Life
from tidegate.simulation.workload import MOST_SUBTASKS, Workload, draw_workload
from tidegate.simulation.world import Schedule

KINDS: Final = 0.5
"""The fraction of fault kinds that a schedule uses, on average; it plans no others (swarm testing). A fault that occurs
in nearly every schedule hides what happens without it.
"""
FAULTS: Final = (9, 15)
SPACING_S: Final = (0.3, 0.4, 0.6)
"""Average time between two faults."""
FROM_THE_START: Final = 0.15
"""The fraction of schedules in which faults begin with the first daemon."""
FEW: Final = 0.1
"""The fraction of schedules in which faults begin after only a few checkpoints."""
AWAY_S: Final = (1.5, 8.0)
"""Time for which a dead daemon sometimes stays down: longer than some transactions live."""
LONG_AWAY: Final = 0.2
REST_S: Final = (0.5, 5.0, 70.0, 8 * 24 * 3600.0)
"""Time between the end and the last start, long enough for transactions, and even transactional ids, to expire."""
EMPTIED: Final = 0.3
"""The fraction of schedules in which retention has removed all output by the last start."""

RESCALED: Final = 0.3
"""The fraction of schedules with windows that change the parallelism, in addition to those that draw this fault."""

HURRIED: Final = 0.15
"""The fraction of schedules in which a stop is cut short by a second signal or by the end of the grace period."""
HURRY_S: Final = (0.0, 0.6)

TAKEN: Final = 0.05
"""The fraction of schedules in which another client uses the transactional ids of a dead daemon."""
TAKEN_AFTER_S: Final = (0.0, 3.0)

RETENTIONS: Final = (1, 4)
"""Number of times that retention removes input, in schedules whose shape allows it."""
WHILE_AWAY: Final = 0.7

WITH_STORY: Final = 0.4
"""The fraction of schedules with a story."""
NEXT_TO_STORY: Final = (0, 4)
"""Number of other faults next to a story."""
MARKER_LATE_S: Final = (5.5, 12.0)
"""Longer than a transaction may hang before it is examined."""

STORAGE_POINTS: Final = {
    "daemon.storage.put_if_absent": 5,
    "daemon.storage.get": 8,
    "daemon.storage.list": 12,
    "daemon.storage.delete": 10,
    "daemon.storage.create": 7,
    "daemon.storage.write": 7,
    "daemon.storage.fsync": 20,
    "daemon.storage.mkdir": 2,
    "slot.storage.put": 7,
    "slot.storage.get": 3,
    "slot.storage.create": 7,
    "slot.storage.write": 7,
    "slot.storage.fsync": 20,
    "slot.storage.mkdir": 3,
}
BROKER_CALLS: Final = {
    "daemon.broker.coordinator": 5,
    "daemon.broker.end": 7,
    "daemon.broker.fence": 4,
    "daemon.broker.group": 4,
    "daemon.broker.list": 9,
    "daemon.broker.producers": 3,
    "daemon.broker.topics": 9,
    "slot.broker.coordinator": 6,
    "slot.broker.describe": 12,
    "slot.broker.ends": 5,
    "slot.broker.headers": 4,
    "slot.broker.metadata": 16,
    "slot.broker.producers": 8,
}
BROKER_POSTS: Final = {
    "slot.broker.init": 9,
    "slot.broker.produce": 14,
    "slot.broker.add-partitions": 9,
    "slot.broker.fetch": 60,
}
"""Point -> the highest `nth` to draw: about how often an ordinary schedule passes the point while faults are active."""
ORDERS: Final = {"slot.order.trigger": 7, "slot.order.completed": 6, "slot.order.abandoned": 1, "slot.ack": 14}
ORDER_KINDS: Final = {
    "slot.order.trigger": ("lose", "lose", "slow"),
    "slot.ack": ("double", "lose", "slow", "slow"),
}
ORDER_WEIGHTS: Final = (5, 1, 1, 3)

Draw = Callable[[random.Random, Workload, float], Fault]


def draw_schedule(seed: int) -> Schedule:
    """Draws everything about schedule `seed`."""
    workload = draw_workload(seed)
    draw = generator(seed, "faults")
    kinds = [make for make in _DRAWS if draw.random() < KINDS] or list(_DRAWS)
    chosen = draw.choices(kinds, weights=[_DRAWS[make] for make in kinds], k=draw.randint(*FAULTS))
    end_s = len(chosen) * draw.choice(SPACING_S)
    faults = tuple(make(draw, workload, end_s) for make in chosen)
    life = _draw_life(seed, workload, end_s)
    faults = tell_story(seed, workload, faults, end_s, from_the_start=life.quiet == 0)
    if workload.windows is not None:
        faults = (*faults, *_draw_rescales(seed, workload, end_s))
    if workload.shape.forgetful:
        faults = _draw_retentions(seed, faults, end_s)
    faults = (*faults, *_draw_hurries(seed, end_s), *_draw_taken(seed, end_s))
    if workload.locations:
        faults = spread_faults(seed, workload, faults, end_s)
    last_s = max((fault.at_s for fault in faults if fault.at_s is not None), default=0.0)
    life = msgspec.structs.replace(life, faults_s=max(end_s, last_s))
    return Schedule(seed=seed, workload=workload, life=life, faults=faults)


def _draw_life(seed: int, workload: Workload, faults_s: float) -> Life:
    draw = generator(seed, "life")
    kind = draw.random()
    quiet, after = draw.randint(5, 8), draw.randint(5, 6)
    if workload.bounded:
        quiet = draw.randint(1, 3)  # each is a start of its own
    if kind < FROM_THE_START:
        quiet = 0
    elif kind < FROM_THE_START + FEW:
        quiet = draw.randint(1, 4)
    emptied = draw.random() < EMPTIED
    return Life(quiet=quiet, faults_s=faults_s, after=after, away_s=draw.choice(REST_S), emptied=emptied)


def _draw_rescales(seed: int, workload: Workload, end_s: float) -> tuple[Fault, ...]:
    """Plans a change of the parallelism while windows are open."""
    draw = generator(seed, "rescales")
    return (_rescale(draw, workload, end_s),) if draw.random() < RESCALED else ()


def _draw_hurries(seed: int, end_s: float) -> tuple[Fault, ...]:
    draw = generator(seed, "hurries")
    if draw.random() >= HURRIED:
        return ()
    target, seconds = draw.choice(("", "grace")), _seconds(draw, *HURRY_S)
    return (Fault(kind="hurry", at_s=_at_moment(draw, end_s), target=target, seconds=seconds),)


def _draw_taken(seed: int, end_s: float) -> tuple[Fault, ...]:
    draw = generator(seed, "taken")
    if draw.random() >= TAKEN:
        return ()
    at_s, after_s = _at_moment(draw, end_s), _seconds(draw, *TAKEN_AFTER_S)
    away_s = round(after_s + _seconds(draw, *AWAY_S), 3)
    return (
        Fault(kind="kill", at_s=at_s, target="daemon", seconds=away_s),
        Fault(kind="taken", at_s=round(at_s + after_s, 3)),
    )


def _draw_retentions(seed: int, faults: tuple[Fault, ...], end_s: float) -> tuple[Fault, ...]:
    """Plans retention at any time, often while the daemon is down.

    Faults that restore an older state are removed, because the input after it may be gone.
    """
    draw = generator(seed, "retention")
    kept = [fault for fault in faults if fault.kind != "go-back" and fault.target != "moved"]
    for _ in range(draw.randint(*RETENTIONS)):
        at_s = _at_moment(draw, end_s)
        kept.append(Fault(kind="retention", at_s=round(at_s + draw.uniform(0.0, 1.5), 3)))
        if draw.random() < WHILE_AWAY:
            kept.append(Fault(kind="kill", at_s=at_s, target="daemon", seconds=_seconds(draw, *AWAY_S)))
    return tuple(kept)


def _at_moment(draw: random.Random, end_s: float) -> float:
    return round(draw.uniform(0.0, end_s), 3)


def _slot(draw: random.Random, workload: Workload) -> str:
    return f"slot {draw.randrange(workload.parallelism)}"


def _process(draw: random.Random, workload: Workload) -> str:
    return draw.choice(("daemon", _slot(draw, workload)))


def _seconds(draw: random.Random, *limits: float) -> float:
    return round(draw.uniform(*limits), 3)


def _at_point(kind: str, draw: random.Random, points: dict[str, int], seconds: float = 0.0) -> Fault:
    point = draw.choice(list(points))
    return Fault(kind=kind, point=point, nth=draw.randint(1, points[point]), seconds=seconds)


def _away(draw: random.Random) -> float:
    """Draws how long a dead daemon stays down; 0 means the usual time."""
    return _seconds(draw, *AWAY_S) if draw.random() < LONG_AWAY else 0.0


def _kill(draw: random.Random, workload: Workload, end_s: float) -> Fault:
    target = _process(draw, workload)
    return Fault(
        kind="kill", at_s=_at_moment(draw, end_s), target=target, seconds=_away(draw) if target == "daemon" else 0.0
    )


def _crash(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    kind = draw.choice(("crash-before", "crash-after"))
    points = draw.choice((STORAGE_POINTS, BROKER_CALLS, BROKER_CALLS, BROKER_POSTS))
    return _at_point(kind, draw, points, _away(draw))


def _undone(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    """Plans the death of a daemon between a decision and the end of its transactions.

    The daemon stays down long enough for them to expire.
    """
    point = {"daemon.broker.end": BROKER_CALLS["daemon.broker.end"]}
    return _at_point("crash-before", draw, point, _seconds(draw, *AWAY_S))


def _freeze(draw: random.Random, workload: Workload, end_s: float) -> Fault:
    return Fault(
        kind="freeze",
        at_s=_at_moment(draw, end_s),
        target=_process(draw, workload),
        seconds=_seconds(draw, *draw.choice(((0.05, 0.8), (0.8, 4.0)))),
    )


def _replace(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    seconds = draw.choice((0.0, _seconds(draw, 0.1, 1.0), _seconds(draw, 1.0, 5.0)))
    return Fault(kind="replace", at_s=_at_moment(draw, end_s), seconds=seconds)


def _rescale(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="rescale", at_s=_at_moment(draw, end_s), target=str(draw.randint(1, MOST_SUBTASKS)))


def _stop(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="stop", at_s=_at_moment(draw, end_s))


def _damage(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="damage", at_s=_at_moment(draw, end_s), target=draw.choice(("state", "state", "journal")))


def _savepoint(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    """Plans a savepoint, which is a disturbance but not a fault."""
    return Fault(kind="savepoint", at_s=_at_moment(draw, end_s))


def _go_back(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="go-back", at_s=_at_moment(draw, end_s))


def _cut(draw: random.Random, workload: Workload, end_s: float) -> Fault:
    other = draw.choice(("daemon", _slot(draw, workload)))
    return Fault(kind="cut", at_s=_at_moment(draw, end_s), target=f"{_slot(draw, workload)}/{other}")


def _partition(draw: random.Random, workload: Workload, end_s: float) -> Fault:
    other = draw.choice(("daemon", _slot(draw, workload)))
    target = draw.choice((f"{_slot(draw, workload)}/{other}", f"{_process(draw, workload)}/broker"))
    seconds = _seconds(draw, *draw.choice(((0.1, 1.0), (1.0, 4.0))))
    return Fault(kind="partition", at_s=_at_moment(draw, end_s), target=target, seconds=seconds)


def _broker_down(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="broker-down", at_s=_at_moment(draw, end_s), seconds=_seconds(draw, 0.2, 4.0))


def _storage_down(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="storage-down", at_s=_at_moment(draw, end_s), seconds=_seconds(draw, 0.1, 2.0))


def _coordinator_away(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    target = draw.choice(("moved", "loading"))
    return Fault(kind="coordinator-away", at_s=_at_moment(draw, end_s), target=target, seconds=_seconds(draw, 0.1, 2.0))


def _leader_away(draw: random.Random, workload: Workload, end_s: float) -> Fault:
    place = f"{draw.choice(workload.shape.topics)}/{draw.randrange(workload.partitions)}"
    return Fault(kind="leader-away", at_s=_at_moment(draw, end_s), target=place, seconds=_seconds(draw, 0.1, 2.0))


def _marker_delay(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="marker-delay", at_s=_at_moment(draw, end_s), seconds=_seconds(draw, 0.01, 0.6))


def _time_out(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="time-out", at_s=_at_moment(draw, end_s))


def _power_cut(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="power-cut", at_s=_at_moment(draw, end_s))


def _clock(draw: random.Random, workload: Workload, end_s: float) -> Fault:
    """Plans a clock change: an hour for a process, and up to more than the lifetime of a transactional id for the
    brokers.
    """
    target = draw.choice(
        (
            f"{_process(draw, workload)} ahead",
            f"{_process(draw, workload)} back",
            "brokers ahead",
            "brokers back",
            "brokers week",
        )
    )
    return Fault(kind="clock", at_s=_at_moment(draw, end_s), target=target)


def _volume_lost(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="volume-lost", at_s=_at_moment(draw, end_s))


def _unshared(draw: random.Random, workload: Workload, end_s: float) -> Fault:
    return Fault(kind="unshared", at_s=_at_moment(draw, end_s), target=_slot(draw, workload))


def _doubled(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    """Plans a copied checkpoint directory.

    Kafka's record of a pipeline may be a second old, so the first daemon to start with a copy continues from it.
    """
    return Fault(kind="doubled", at_s=_at_moment(draw, end_s), seconds=_seconds(draw, 3.0, 8.0))


def _lost_call(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    return _at_point(draw.choice(("lose-before", "lose-after")), draw, draw.choice((BROKER_CALLS, BROKER_POSTS)))


def _lost_batch(draw: random.Random, workload: Workload, _end_s: float) -> Fault:
    """Plans a batch that the broker refuses or forgets.

    With at-least-once nothing is verified after an acknowledgement, so a batch that is forgotten then is lost.
    """
    kind = draw.choice(("refuse", "forget", "forget") if workload.exactly_once else ("refuse",))
    return _at_point(kind, draw, {"slot.broker.produce": BROKER_POSTS["slot.broker.produce"]})


def _storage_error(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    return _at_point(draw.choice(("lose-before", "lose-after")), draw, STORAGE_POINTS)


def _slow(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    points = draw.choice((STORAGE_POINTS, BROKER_CALLS, BROKER_POSTS))
    return _at_point("slow", draw, points, _seconds(draw, *draw.choice(((0.05, 0.5), (0.5, 4.0)))))


def _order(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    """Plans a fault of a command or an acknowledgement.

    A connection keeps the order and never duplicates. A message may still arrive late, together with those after it,
    and it may be lost or repeated on its way to or from a connection.
    """
    (point,) = draw.choices(list(ORDERS), weights=ORDER_WEIGHTS)
    kind = draw.choice(ORDER_KINDS.get(point, ("double", "lose", "slow")))
    seconds = _seconds(draw, *draw.choice(((0.01, 1.5), (1.5, 5.0), (1.5, 5.0)))) if kind == "slow" else 0.0
    return _at_point(kind, draw, {point: ORDERS[point]}, seconds)


def _strange_ack(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    """Plans an acknowledgement that is not expected: of an older attempt, or of a subtask that does not exist."""
    return _at_point(draw.choice(("stale", "unknown")), draw, {"slot.ack": ORDERS["slot.ack"]})


def _frame(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    return _at_point(draw.choice(("double", "lose")), draw, {"slot.frame": 20})


_DRAWS: Final[dict[Draw, int]] = {
    _kill: 8,
    _crash: 7,
    _undone: 2,
    _freeze: 4,
    _replace: 2,
    _rescale: 1,
    _stop: 2,
    _damage: 1,
    _savepoint: 2,
    _go_back: 1,
    _cut: 2,
    _partition: 3,
    _broker_down: 2,
    _storage_down: 2,
    _coordinator_away: 2,
    _leader_away: 2,
    _marker_delay: 2,
    _time_out: 1,
    _power_cut: 1,
    _clock: 3,
    _volume_lost: 1,
    _unshared: 1,
    _doubled: 1,
    _lost_call: 4,
    _lost_batch: 4,
    _storage_error: 4,
    _slow: 5,
    _order: 8,
    _strange_ack: 2,
    _frame: 1,
}
"""Weight of each kind of fault."""


def tell_story(
    seed: int, workload: Workload, faults: tuple[Fault, ...], end_s: float, *, from_the_start: bool
) -> tuple[Fault, ...]:
    """Returns `faults`, in some schedules with most of them replaced by a story: faults that belong together.

    These rarely meet by chance, but are common in production. There are few other faults next to a story, because among
    many faults the pipeline is usually not running when the story is due.

    `from_the_start`: faults begin with the first daemon.
    """
    draw = generator(seed, "story")
    if draw.random() >= WITH_STORY:
        return faults
    make = draw.choice(_FIRST if from_the_start else _STORIES)
    return (*faults[: draw.randint(*NEXT_TO_STORY)], *make(draw, workload, round(draw.uniform(0.0, end_s), 3)))


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
    return (Fault(kind="marker-delay", at_s=at_s, seconds=_moment(draw, 0.0, *MARKER_LATE_S)),)


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
