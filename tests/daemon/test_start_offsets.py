"""What is said about where sources begin and end."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, completed, positions
from tests.daemon.small_pipeline import TEXT
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.daemon.recovery_stages import RestorePointAppended
from tidegate.daemon.start_offsets import fix_start_offsets
from tidegate.ids import OperatorName
from tidegate.journal.journal import Journal
from tidegate.plan.build import build_plan


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize(("until", "said"), [("latest", True), ("2026-11-01T00:00:00Z", True), ("never", False)])
def test_a_bounded_read_that_goes_on_says_that_its_end_is_fixed(
    caplog: pytest.LogCaptureFixture, until: str, said: bool, stopped: bool
) -> None:
    """An `until` that was changed meanwhile went unheard, and after a stop it was looked up without a word."""
    caplog.set_level("INFO")
    words = {"servers": "h:1", "directory": "/tmp", "timeout": "15m", "source": "orders", "sink": "out"}
    loaded = parse_pipeline(TEXT.format(start=f'earliest, until: "{until}"', **words), "p.yaml", {})
    assert loaded.problems == ()
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    read = positions("orders", {"orders": {0: 4, 1: 8}})
    ends = positions("orders", {"orders": {0: 7, 1: 8}}).next_offsets
    journal.append_checkpoint(completed(1, at=(msgspec.structs.replace(read, end_offsets=ends),), final=stopped))
    facts = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 2}}, frozenset())
    decided = RestorePointAppended(decide_restore(journal.take_over(IDENTITY, 2), facts), facts)
    placed = asyncio.run(fix_start_offsets(build_plan(loaded), cast("Any", SimpleNamespace(kafka=None)), decided))
    assert placed.restore == decided.restore
    text = "reads to the end that was determined when its bounded read began, orders[0] 7, orders[1] 8; a start after"
    wanted = f"source orders: {text} that evaluates `until: {until}` again"
    assert [one.getMessage() for one in caplog.records] == ([wanted] if said else [])
