"""An `until` that is in the future is refused before anything is started, where a start would look its ends up; and
where it goes back, so is input that is gone there.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import ME, completed, positions
from tests.daemon.small_pipeline import TEXT
from tests.support.clusters import alone
from tidegate.checks.findings import derive_problem
from tidegate.checks.judge_start import judge_comparison
from tidegate.clock import SYSTEM_CLOCK
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.ownership import Known
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.preflight import StoredTarget, read_facts
from tidegate.daemon.restore_point import RestoreOption, StartOptions
from tidegate.ids import TopicPartition
from tidegate.journal.journal import Journal
from tidegate.kafka.facts import TopicFacts
from tidegate.plan.build import build_plan

AT = positions("orders", {"in": {0: 5}})
LATER = positions("orders", {"in": {0: 8}})
BOUNDED = msgspec.structs.replace(AT, end_offsets=((TopicPartition("in", 0), 5),))
FINAL = msgspec.structs.replace(completed(1, at=(BOUNDED,)), final=True)
FINAL_LATER = msgspec.structs.replace(completed(2, at=(BOUNDED,)), final=True)


class Answers:
    """Of brokers."""

    def __init__(self, first: int) -> None:
        self._first = first

    async def open(self) -> None:
        pass

    async def cluster_facts(self, topics: set[str]) -> tuple[str, dict[str, TopicFacts]]:
        return "cluster-1", {topic: TopicFacts(f"id-{topic}", 1) for topic in topics}

    async def read_known(self, _pipeline: str) -> Known:
        return Known()

    async def first_offsets(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._first)


def refused(
    until: str,
    *checkpoints: CompletedCheckpoint,
    restore: int | None = None,
    first: int = 0,
    on_lost_input: str = "stop",
) -> list[str]:
    """Findings of a start with this `until`, which continues from the last of `checkpoints`, or goes back to `restore`.
    `first`: of the offsets that are there.
    """
    words = f"earliest, until: {until}, on_lost_input: {on_lost_input}"
    text = TEXT.format(servers="h:1", directory="/tmp", timeout="15m", start=words, source="in", sink="out")
    loaded = parse_pipeline(text, "p.yaml", {})
    assert loaded.problems == ()
    plan, journal = build_plan(loaded), Journal(FakeStorage(), ME, retained=3, id_reserve=5)

    async def call(what: Any) -> Any:
        return what()

    stores = cast(
        "Any",
        SimpleNamespace(
            storage=journal._storage,
            journal=journal,
            clock=SYSTEM_CLOCK,
            kafka=alone(Answers(first)),
            in_journal_thread=call,
        ),
    )
    if checkpoints:
        facts = asyncio.run(read_facts(plan, stores, journal.state))
        journal.take_over(facts.identity, 1)
        for one in checkpoints:
            journal.append_checkpoint(one)
    options = StartOptions(None if restore is None else RestoreOption(str(restore), repeat_output=True))
    comparison = asyncio.run(StoredTarget(stores, options).compare(plan))
    return [f"{one.severity.value}: {derive_problem(loaded, one)}" for one in judge_comparison(comparison)]


@pytest.mark.parametrize(
    ("checkpoints", "restore"),
    [
        ((), None),
        ((completed(1, at=(AT,)),), None),
        ((FINAL,), None),
        ((completed(1, at=(AT,)), completed(2, at=(LATER,))), 1),
        ((FINAL, completed(2, at=(LATER,))), 1),
    ],
)
def test_an_end_that_would_be_looked_up_is_refused_in_the_future(
    checkpoints: tuple[CompletedCheckpoint, ...], restore: int | None
) -> None:
    (problem,) = refused("2999-01-01T00:00:00Z", *checkpoints, restore=restore)
    assert "sources.orders.until: 2999-01-01T00:00:00Z is in the future; take a past instant" in problem
    assert refused("2001-01-01T00:00:00Z", *checkpoints, restore=restore) == []
    assert refused("latest", *checkpoints, restore=restore) == refused("never", *checkpoints, restore=restore) == []


def test_ends_that_are_fixed_are_not_looked_up() -> None:
    assert refused("2999-01-01T00:00:00Z", completed(1, at=(BOUNDED,))) == []
    assert refused("2999-01-01T00:00:00Z", completed(1, at=(BOUNDED,)), FINAL_LATER, restore=1) == []


def test_input_that_is_gone_where_a_start_goes_back_to_is_told_before_it_does() -> None:
    """The older checkpoint would take the place of the newest, which has its input, and could not be continued from."""
    both = completed(1, at=(AT,)), completed(2, at=(LATER,))
    (problem,) = refused("never", *both, restore=1, first=7)
    assert "sources.orders: in[0]: offset 5 is gone, the log now starts at 7" in problem
    assert problem.endswith("`on_lost_input: continue`; or restore a newer checkpoint or savepoint")
    assert refused("never", *both, first=7) == refused("never", *both, restore=2, first=7) == []
    assert refused("never", *both, restore=1, first=5) == []


def test_input_that_a_start_would_skip_is_warned_of_before_it_does() -> None:
    checkpoint = completed(1, at=(AT,))
    (warning,) = refused("never", checkpoint, first=7, on_lost_input="continue")
    assert warning == (
        "warning: p.yaml:9:11: sources.orders: in[0]: 2 offsets were removed by retention before they were read, "
        "[5, 7): a start skips them, because `on_lost_input` is `continue`"
    )
    assert refused("never", checkpoint, first=5, on_lost_input="continue") == []
