"""A file with `quiet` and a step `event_time` that changes between two attempts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testing.changed_pipeline import Life
from tests.testing.test_changed_pipelines import changed, outcomes
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.upgrade import UpgradeOutcome

FILE = """\
parallelism: 2
sources:
  readings: {topic: readings, schema: {device: string, at: bigint, seen: bigint}, watermark: {idle: never}}
steps:
  - {name: timed, from: readings, event_time: at}
  - {name: silent, from: timed, quiet: {key: device, for: 10s, repeat: 20s}}
sinks:
  out: {from: silent, topic: out, key: device}
"""


def reading(device: str, second: int) -> dict[str, object]:
    return {"device": device, "at": second * 1000, "seen": second * 1000 + 7}


def seen(life: Life) -> list[tuple[Any, ...]]:
    """What has come out: device, whether it is quiet, and the second of its last reading."""
    return sorted((row["device"], row["quiet"], int(row["last_at"][17:19])) for row in life.checkpoint().output("out"))


@pytest.fixture(scope="module")
def begun() -> Life:
    """`a` is quiet since second 10, `b` is not, and the watermark is just below 19."""
    life = Life(FILE)
    life.produce("readings", reading("a", 0), reading("b", 12), reading("c", 15), reading("b", 19))
    assert seen(life) == [("a", True, 0)]
    return life


@pytest.mark.parametrize("backend", ["memory", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_absence_goes_on_under_another_name_at_another_parallelism(begun: Life, backend: str) -> None:
    renamed = changed(
        FILE,
        ("parallelism: 2", "parallelism: 3"),
        ("name: silent,", "name: absent, was: silent,"),
        ("from: silent", "from: absent"),
        ("name: timed,", "name: stamped, was: timed,"),
        ("from: timed", "from: stamped"),
    )
    life = Life(renamed, begun, backend=backend)
    assert outcomes(life)["absent"] is UpgradeOutcome.RENAMED
    life.produce("readings", reading("b", 29), reading("a", 29), reading("b", 31))
    assert seen(life) == [("a", False, 0), ("c", True, 15)]


def test_another_length_needs_a_directive_and_applies_to_keys_that_are_kept(begun: Life) -> None:
    longer = changed(FILE, ("for: 10s", "for: 14s"))
    with pytest.raises(RestoreRefused, match="when a key is quiet of readings"):
        Life(longer, begun)
    life = Life(changed(longer, ("repeat: 20s}", "repeat: 20s}, state: keep")), begun)
    life.produce("readings", reading("a", 28), reading("b", 31))
    assert seen(life) == [("a", False, 0), ("c", True, 15)]


@pytest.mark.parametrize(("old", "new"), [(", repeat: 20s", ""), (", repeat: 20s", ", repeat: 25s")])
def test_another_repeat_applies_to_keys_that_are_kept(begun: Life, old: str, new: str) -> None:
    life = Life(changed(FILE, (f"{old}}}", f"{new}}}, state: keep")), begun)
    life.produce("readings", reading("b", 28), reading("c", 29), reading("a", 34), reading("c", 36), reading("b", 37))
    assert seen(life) == [("a", False, 0), ("c", False, 15), ("c", True, 15)]


def test_another_event_time_is_another_meaning_of_the_state_behind_it(begun: Life) -> None:
    other = changed(FILE, ("event_time: at", "event_time: seen"))
    with pytest.raises(RestoreRefused, match="when a key is quiet of readings"):
        Life(other, begun)
    life = Life(changed(FILE, ("event_time: at", "event_time: at, watermark: {delay: 1s}")), begun)
    life.produce("readings", reading("c", 25), reading("b", 29))
    assert seen(life) == []
