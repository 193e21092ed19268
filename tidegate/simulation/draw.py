"""Which faults a seed plans."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from tidegate.simulation.chance import generator
from tidegate.simulation.faults import ROWS_IN_FLIGHT, Fault
from tidegate.simulation.workload import OUTPUTS, Workload, draw_workload
from tidegate.simulation.world import Schedule

FAULTS: Final = (17, 21)
BEGIN_S: Final = 0.2
AIMED_AT: Final = 4
"""One of the first so many checkpoints with rows in flight."""
AIMED_FAULTS: Final = (0, 1, 2, 3)
MORE_S: Final = 4.0
"""Faults go on so long behind the last input."""

STORAGE_POINTS: Final = {
    "daemon.storage.put_if_absent": 14,
    "daemon.storage.get": 8,
    "daemon.storage.list": 30,
    "daemon.storage.delete": 20,
    "slot.storage.put": 14,
    "slot.storage.get": 2,
    "daemon.storage.create": 14,
    "daemon.storage.write": 14,
    "daemon.storage.fsync": 40,
    "daemon.storage.mkdir": 4,
    "slot.storage.create": 12,
    "slot.storage.write": 12,
    "slot.storage.fsync": 40,
    "slot.storage.mkdir": 6,
}
BROKER_CALLS: Final = {
    "daemon.broker.coordinator": 9,
    "daemon.broker.end": 10,
    "daemon.broker.fence": 5,
    "daemon.broker.group": 8,
    "daemon.broker.list": 15,
    "daemon.broker.producers": 7,
    "daemon.broker.topics": 15,
    "slot.broker.coordinator": 18,
    "slot.broker.describe": 26,
    "slot.broker.ends": 8,
    "slot.broker.headers": 9,
    "slot.broker.metadata": 34,
    "slot.broker.producers": 9,
}
BROKER_POSTS: Final = {
    "slot.broker.init": 18,
    "slot.broker.produce": 22,
    "slot.broker.add-partitions": 9,
    "slot.broker.fetch": 60,
    "slot.broker.offsets": 4,
}
"""Point -> up to which time it is passed in an ordinary run."""
ORDERS: Final = {"slot.order.trigger": 20, "slot.order.completed": 18, "slot.order.abandoned": 1, "slot.ack": 40}

Draw = Callable[[random.Random, Workload, float], Fault]


def draw_schedule(seed: int) -> Schedule:
    """Everything about schedule `seed`."""
    workload = draw_workload(seed)
    draw = generator(seed, "faults")
    end_s = workload.input_s + MORE_S * draw.random()
    chosen = draw.choices(list(_DRAWS), weights=list(_DRAWS.values()), k=draw.randint(*FAULTS))
    faults = tuple(make(draw, workload, end_s) for make in chosen)
    return Schedule(seed=seed, workload=workload, faults=faults + _draw_aimed(seed, workload))


def _draw_aimed(seed: int, workload: Workload) -> tuple[Fault, ...]:
    """Crashes right behind checkpoints with rows in flight, so that these are restored; other ones never come up."""
    draw = generator(seed, "aimed faults")
    numbers = sorted(draw.sample(range(1, 1 + AIMED_AT), k=draw.choice(AIMED_FAULTS)))
    return tuple(
        Fault(
            kind="kill",
            point=ROWS_IN_FLIGHT,
            nth=nth,
            target=_process(draw, workload),
            seconds=draw.choice((0.0, _seconds(draw, 0.001, 0.05))),
        )
        for nth in numbers
    )


def _at_moment(draw: random.Random, end_s: float) -> float:
    return round(draw.uniform(BEGIN_S, end_s), 3)


def _slot(draw: random.Random, workload: Workload) -> str:
    return f"slot {draw.randrange(workload.parallelism)}"


def _process(draw: random.Random, workload: Workload) -> str:
    return draw.choice(("daemon", _slot(draw, workload)))


def _seconds(draw: random.Random, *limits: float) -> float:
    return round(draw.uniform(*limits), 3)


def _at_point(kind: str, draw: random.Random, points: dict[str, int], seconds: float = 0.0) -> Fault:
    point = draw.choice(list(points))
    return Fault(kind=kind, point=point, nth=draw.randint(1, points[point]), seconds=seconds)


def _kill(draw: random.Random, workload: Workload, end_s: float) -> Fault:
    return Fault(kind="kill", at_s=_at_moment(draw, end_s), target=_process(draw, workload))


def _crash(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    kind = draw.choice(("crash-before", "crash-after"))
    return _at_point(kind, draw, draw.choice((STORAGE_POINTS, BROKER_CALLS, BROKER_CALLS, BROKER_POSTS)))


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
    return Fault(kind="rescale", at_s=_at_moment(draw, end_s), target=str(draw.randint(1, 3)))


def _stop(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="stop", at_s=_at_moment(draw, end_s))


def _damage(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="damage", at_s=_at_moment(draw, end_s), target=draw.choice(("state", "state", "journal")))


def _savepoint(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    """No fault, but a disturbance."""
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
    place = f"{draw.choice(OUTPUTS[workload.topology])}/{draw.randrange(workload.partitions)}"
    return Fault(kind="leader-away", at_s=_at_moment(draw, end_s), target=place, seconds=_seconds(draw, 0.1, 2.0))


def _marker_delay(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="marker-delay", at_s=_at_moment(draw, end_s), seconds=_seconds(draw, 0.01, 0.6))


def _time_out(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="time-out", at_s=_at_moment(draw, end_s))


def _power_cut(draw: random.Random, _workload: Workload, end_s: float) -> Fault:
    return Fault(kind="power-cut", at_s=_at_moment(draw, end_s))


def _lost_call(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    return _at_point(draw.choice(("lose-before", "lose-after")), draw, draw.choice((BROKER_CALLS, BROKER_POSTS)))


def _storage_error(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    return _at_point(draw.choice(("lose-before", "lose-after")), draw, STORAGE_POINTS)


def _slow(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    points = draw.choice((STORAGE_POINTS, BROKER_CALLS, BROKER_POSTS))
    return _at_point("slow", draw, points, _seconds(draw, *draw.choice(((0.05, 0.5), (0.5, 4.0)))))


def _order(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    """A connection never doubles; but acks, notices and aborts may be repeated, and any message may come too late."""
    kind = draw.choice(("double", "lose", "slow"))
    points = {point: nth for point, nth in ORDERS.items() if kind != "double" or point != "slot.order.trigger"}
    return _at_point(kind, draw, points, _seconds(draw, 0.01, 1.5) if kind == "slow" else 0.0)


def _frame(draw: random.Random, _workload: Workload, _end_s: float) -> Fault:
    return _at_point(draw.choice(("double", "lose")), draw, {"slot.frame": 25})


_DRAWS: Final[dict[Draw, int]] = {
    _kill: 5,
    _crash: 6,
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
    _lost_call: 4,
    _storage_error: 4,
    _slow: 5,
    _order: 4,
    _frame: 1,
}
"""How often each kind is planned."""
