"""An `until` that lies in the future is refused before anything is started, where a start would look its ends up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import ME, completed, positions
from tests.daemon.small_pipeline import TEXT
from tidegate.clock import SYSTEM_CLOCK
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.owner import Known
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.choosing import StartOptions
from tidegate.daemon.looking import read_facts
from tidegate.daemon.start.check import _compare
from tidegate.ids import TopicPartition
from tidegate.kafka.facts import TopicFacts
from tidegate.plan.build import build_plan

AT = positions("orders", {"in": {0: 5}})
BOUNDED = msgspec.structs.replace(AT, end_offsets=((TopicPartition("in", 0), 9),))


class Answers:
    """Of brokers."""

    async def open(self) -> None:
        pass

    async def cluster_facts(self, topics: set[str]) -> tuple[str, dict[str, TopicFacts]]:
        return "cluster-1", {topic: TopicFacts(f"id-{topic}", 1) for topic in topics}

    async def read_known(self, _pipeline: str) -> Known:
        return Known()

    async def first_offsets(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)


def refused(until: str, newest: CompletedCheckpoint | None) -> list[str]:
    """Problems of a start with this `until`; `newest`: what it continues from."""
    words = f"earliest, until: {until}"
    text = TEXT.format(servers="h:1", directory="/tmp", timeout="15m", start=words, source="in", sink="out")
    loaded = parse_pipeline(text, "p.yaml", {})
    assert loaded.problems == ()
    plan, journal = build_plan(loaded), Journal(FakeStorage(), ME, retained=3, id_reserve=5)

    async def call(what: Any) -> Any:
        return what()

    stores = cast(
        "Any",
        SimpleNamespace(
            storage=journal._storage, journal=journal, clock=SYSTEM_CLOCK, kafka=Answers(), in_journal_thread=call
        ),
    )
    if newest is not None:
        facts = asyncio.run(read_facts(plan, stores, journal.state))
        journal.take_over(facts.identity, 1)
        journal.append_checkpoint(newest)
    options = StartOptions(begin_anew=True)
    return [str(one.problem) for one in asyncio.run(_compare(loaded, plan, stores, options))]


@pytest.mark.parametrize(
    "newest", [None, completed(1, at=(AT,)), msgspec.structs.replace(completed(1, at=(BOUNDED,)), final=True)]
)
def test_an_end_that_would_be_looked_up_is_refused_in_the_future(newest: CompletedCheckpoint | None) -> None:
    (problem,) = refused("2999-01-01T00:00:00Z", newest)
    assert "sources.orders.until: 2999-01-01T00:00:00Z lies in the future; take a past instant" in problem
    assert refused("2001-01-01T00:00:00Z", newest) == []
    assert refused("latest", newest) == refused("never", newest) == []


def test_ends_that_are_fixed_are_not_looked_up() -> None:
    assert refused("2999-01-01T00:00:00Z", completed(1, at=(BOUNDED,))) == []
