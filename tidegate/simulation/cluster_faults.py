"""Faults of schedules with two clusters: each cluster has its own, and some that leave the other one well."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import msgspec

from tidegate.ids import MAIN_CLUSTER, ClusterName
from tidegate.simulation.clusters import FAR
from tidegate.simulation.faults import Fault
from tidegate.simulation.kernel import generator
from tidegate.simulation.workload import Workload

OF_BROKERS: Final = frozenset({"broker-down", "coordinator-away", "marker-delay", "time-out", "taken"})
"""Kinds of faults that affect one cluster."""
ADDED: Final = (1, 3)
"""Number of faults of clusters that are added."""
DOWN_S: Final = (0.5, 4.0)
BEYOND: Final = 1.3
"""Factor by which a long outage is longer than the transactions live."""
BEYOND_S: Final = 16.0
"""Maximum duration of a long outage."""
REPLACED_S: Final = (3.0, 8.0)
RESTART_S: Final = (0.1, 1.0)

Draw = Callable[[random.Random, Workload, ClusterName, float], tuple[Fault, ...]]


def spread_faults(seed: int, workload: Workload, faults: tuple[Fault, ...], end_s: float) -> tuple[Fault, ...]:
    """Returns the faults of brokers with the cluster of each, and further ones."""
    draw = generator(seed, "faults of clusters")
    spread = [
        msgspec.structs.replace(fault, cluster=_draw_cluster(draw)) if _is_of_brokers(fault) else fault
        for fault in faults
    ]
    for make in draw.choices(list(_DRAWS), list(_DRAWS.values()), k=draw.randint(*ADDED)):
        spread += make(draw, workload, _draw_cluster(draw), round(draw.uniform(0.0, end_s), 3))
    return tuple(spread)


def _is_of_brokers(fault: Fault) -> bool:
    to_broker = fault.kind == "partition" and fault.target.endswith("/broker")
    return fault.kind in OF_BROKERS or to_broker or (fault.kind == "clock" and fault.target.startswith("brokers"))


def _draw_cluster(draw: random.Random) -> ClusterName:
    return draw.choice((MAIN_CLUSTER, FAR))


def _seconds(draw: random.Random, limits: tuple[float, float]) -> float:
    return round(draw.uniform(*limits), 3)


def _down(draw: random.Random, _workload: Workload, cluster: ClusterName, at_s: float) -> tuple[Fault, ...]:
    return (Fault(kind="broker-down", cluster=cluster, at_s=at_s, seconds=_seconds(draw, DOWN_S)),)


def _down_for_long(draw: random.Random, workload: Workload, cluster: ClusterName, at_s: float) -> tuple[Fault, ...]:
    """Plans an outage in which open transactions expire."""
    down = Fault(kind="broker-down", cluster=cluster, at_s=at_s, seconds=_draw_beyond(draw, workload))
    return (down, *_restart_daemon(draw, at_s))


def _down_before_commit(
    draw: random.Random, workload: Workload, _cluster: ClusterName, _at_s: float
) -> tuple[Fault, ...]:
    """Plans an outage that begins between a decision and a commit, in the cluster of that transaction."""
    seconds = _draw_beyond(draw, workload)
    return (Fault(kind="away-before", point="daemon.broker.end", nth=draw.randint(1, 4), seconds=seconds),)


def _draw_beyond(draw: random.Random, workload: Workload) -> float:
    return round(min(BEYOND * workload.transaction_timeout_ms / 1000 + draw.uniform(0.0, 2.0), BEYOND_S), 3)


def _restart_daemon(draw: random.Random, at_s: float) -> tuple[Fault, ...]:
    """Plans, in half of the cases, that the daemon starts while a cluster is away."""
    killed = Fault(kind="kill", at_s=round(at_s + draw.uniform(-0.2, 0.5), 3), target="daemon")
    return (killed,) if draw.random() < 0.5 and killed.at_s is not None and killed.at_s > 0 else ()


def _frozen(draw: random.Random, _workload: Workload, cluster: ClusterName, at_s: float) -> tuple[Fault, ...]:
    seconds = _seconds(draw, draw.choice(((0.2, 1.0), (1.0, 6.0))))
    return (Fault(kind="broker-frozen", cluster=cluster, at_s=at_s, seconds=seconds), *_restart_daemon(draw, at_s))


def _slow(draw: random.Random, _workload: Workload, cluster: ClusterName, at_s: float) -> tuple[Fault, ...]:
    return (Fault(kind="broker-slow", cluster=cluster, at_s=at_s, seconds=_seconds(draw, DOWN_S)),)


def _cut_from_slots(draw: random.Random, _workload: Workload, cluster: ClusterName, at_s: float) -> tuple[Fault, ...]:
    return (Fault(kind="slots-cut-off", cluster=cluster, at_s=at_s, seconds=_seconds(draw, DOWN_S)),)


def _cut_from_daemon(draw: random.Random, _workload: Workload, cluster: ClusterName, at_s: float) -> tuple[Fault, ...]:
    seconds = _seconds(draw, DOWN_S)
    return (Fault(kind="partition", cluster=cluster, at_s=at_s, target="daemon/broker", seconds=seconds),)


def _restarted(draw: random.Random, _workload: Workload, cluster: ClusterName, at_s: float) -> tuple[Fault, ...]:
    """Plans a cluster that restarts: it is away, and then its coordinators load their state."""
    down_s = _seconds(draw, RESTART_S)
    loading = Fault(
        kind="coordinator-away",
        cluster=cluster,
        at_s=round(at_s + down_s, 3),
        target="loading",
        seconds=_seconds(draw, RESTART_S),
    )
    return (Fault(kind="broker-down", cluster=cluster, at_s=at_s, seconds=down_s), loading)


def _replaced(draw: random.Random, _workload: Workload, cluster: ClusterName, at_s: float) -> tuple[Fault, ...]:
    """Plans that another cluster answers at the address of a cluster."""
    return (Fault(kind="cluster-replaced", cluster=cluster, at_s=at_s, seconds=_seconds(draw, REPLACED_S)),)


_DRAWS: Final[dict[Draw, int]] = {
    _down: 3,
    _down_for_long: 4,
    _down_before_commit: 5,
    _frozen: 4,
    _slow: 2,
    _cut_from_slots: 3,
    _cut_from_daemon: 3,
    _restarted: 3,
    _replaced: 2,
}
"""Weight of each kind of fault."""
