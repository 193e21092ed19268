"""Schedules with real RocksDB: the same run as in memory, and nothing is left of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidegate.simulation import machines
from tidegate.simulation.campaign import quiet, tell
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.world import ScheduleResult, play
from tidegate.state.rocks import RocksState

SEEDS = range(1, 4)


def played(seed: int, *backends: str) -> ScheduleResult:
    schedule = draw_schedule(seed)
    workload = msgspec.structs.replace(schedule.workload, topology="both", locations=(), backends=backends)
    faults = tuple(fault for fault in schedule.faults if fault.kind != "damage")  # a message names the file's hash
    with quiet():
        return play(msgspec.structs.replace(schedule, workload=workload, faults=faults))


@pytest.mark.slow
@pytest.mark.deep
def test_a_seed_is_the_same_run_whatever_keeps_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both backends, one after the other too, give state files with the same entries at the same moments; RocksDB's
    are a few bytes longer, by how the number of entries is written.
    """
    written = 0
    real = RocksState._put

    def put(*arguments: Any) -> Any:
        nonlocal written
        written += 1
        return real(*arguments)

    monkeypatch.setattr(machines, "IN_MEMORY", tmp_path)
    monkeypatch.setattr(RocksState, "_put", put)
    for seed in SEEDS:
        results = [played(seed, *backends) for backends in (("memory",), ("rocksdb",), ("rocksdb", "memory"))]
        assert not results[0].problems, tell(results[0], None)
        assert len({result.trace.digest for result in results}) == 1, f"seed {seed}"
    assert written
    assert list(tmp_path.iterdir()) == []
