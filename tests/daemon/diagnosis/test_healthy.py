"""What is no problem shows nothing, whatever its numbers look like."""

from __future__ import annotations

from msgspec.structs import replace

from tests.daemon.diagnosis.timeline import BUSY, CALM, TOTALS, Timeline, phase
from tidegate.coordinator.history import CheckpointKind
from tidegate.daemon.status import PipelineState


def test_start_up() -> None:
    line = Timeline()
    line.second(times=20, state=PipelineState.STARTING, lag_records=None, lag_age_seconds=None)
    line.second(times=30, state=PipelineState.RESTORING)
    line.second(times=90, state=PipelineState.RUNNING)
    assert line.shown == set()


def test_an_idle_night() -> None:
    line = Timeline()
    line.rows = {0: 0, 1: 0}
    for _ in range(200):
        line.checkpoint(0.1).second([(0.0, 0.0, 1.0), (0.0, 0.0, 1.0)])
    assert line.shown == set()


def test_a_backlog_that_shrinks_at_full_speed() -> None:
    line = Timeline()
    line.status = replace(line.status, lag_records=10_000_000, lag_seconds=86_400.0)
    line.second([BUSY, BUSY], times=180, lag=-20_000)
    assert line.status.lag_records == 6_400_000
    assert line.shown == set()


def test_busy_slots_that_keep_up() -> None:
    line = Timeline()
    for _ in range(120):
        line.checkpoint(0.2).second([BUSY, CALM])
    assert line.shown == set()


def test_a_burst_of_a_producer_every_minute() -> None:
    line = Timeline()
    for _ in range(4):
        line.second([BUSY, BUSY], times=1, lag=50_000, lag_s=1.0)
        line.second([BUSY, BUSY], times=25, lag=-2000, lag_s=0.2)
        line.second(times=34)
    assert line.shown == set()


def test_a_hiccup() -> None:
    """One second in which nothing goes on, one slow checkpoint, one late measurement."""
    line = Timeline()
    line.second(times=60).second([(0.0, 0.0, 0.0), CALM], times=2, lag=500, lag_s=2.0).second(times=5, lag=-100)
    line.checkpoint(7.0, phase(upload_s=6.9)).second(times=20)
    line.checkpoint(0.1).second(times=20)
    assert line.shown == set()


def test_a_checkpoint_within_its_interval() -> None:
    """An interval of ten minutes allows a minute."""
    line = Timeline(interval_s=600.0)
    line.checkpoint(60.0, phase(upload_s=59.0)).checkpoint(55.0, phase(upload_s=50.0)).second(times=60)
    line.checkpoint(None, missing=("totals[1]",)).second(times=60)
    assert line.shown == set()


def test_a_slow_savepoint() -> None:
    """It is copied to another directory, while checkpoints go on."""
    line = Timeline()
    line.checkpoint(None, kind=CheckpointKind.SAVEPOINT, missing=("totals[1]",)).second(times=120)
    assert line.shown == set()


def test_a_few_bad_and_late_rows() -> None:
    line = Timeline()
    line.operators[TOTALS] = {"late": 5}
    line.second(times=70, bad_records=5)
    assert line.shown == set()


def test_a_short_hold() -> None:
    line = Timeline()
    line.operators[TOTALS] = {"on_hold": "while it is 12m ahead", "on_hold_seconds": 3.0}
    line.second(times=10)
    assert line.shown == set()


def test_a_transaction_of_an_ordinary_interval() -> None:
    line = Timeline(interval_s=600.0)
    line.second(times=10, oldest_transaction_seconds=610.0)
    assert line.shown == set()
