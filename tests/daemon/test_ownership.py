"""The record of a pipeline's owner in Kafka: daemons that take over at the same moment, with copies of a directory."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, completed
from tests.support.clusters import alone
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.ownership import derive_newest_record, derive_record, encode_record
from tidegate.daemon import ownership as owning
from tidegate.daemon.ownership import Ownership
from tidegate.errors import Superseded
from tidegate.ids import MAIN_CLUSTER, TopicPartition
from tidegate.journal.journal import NOTHING_USED, Journal

PLACE = TopicPartition("orders", 0)
THIRD = Writer("third-third-third", "host-c", 33)


LONG = 50
"""Turns that the wait for another daemon takes: more than its calls together."""


async def pass_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Group:
    """What a consumer group keeps; a write takes so many turns of the others."""

    def __init__(self, texts: dict[TopicPartition, str], turns: int) -> None:
        self.texts = texts
        self._turns = turns

    async def mirrored_texts(self, _group: str) -> dict[TopicPartition, str]:
        await pass_turns(1)
        return dict(self.texts)

    async def mirror_offsets(self, _group: str, positions: dict[TopicPartition, int], text: str) -> None:
        await pass_turns(self._turns)
        self.texts.update(dict.fromkeys(positions, text))


def daemon(storage: FakeStorage, writer: Writer) -> Journal:
    """One that has just taken its directory over."""
    journal = Journal(storage, writer, retained=2, id_reserve=5)
    journal.take_over(IDENTITY, 1, NOTHING_USED, ())
    return journal


@pytest.mark.parametrize("turns", range(8))
def test_X03_of_two_daemons_that_take_over_at_once_with_copies_of_a_directory_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """They have one journal token and one attempt, and no record is newer than their directories (found by the
    simulation: both went on, each with the transactions of the other).
    """
    monkeypatch.setattr(owning, "asyncio", SimpleNamespace(sleep=lambda _seconds: pass_turns(LONG)))
    storage = FakeStorage()
    texts: dict[TopicPartition, str] = {}
    before = daemon(storage, ME)
    before.append_checkpoint(completed(before.state.reserved_to - 4, attempt=before.state.attempt))
    texts[PLACE] = encode_record(derive_record(before.state))
    journals = daemon(copy.deepcopy(storage), OTHER), daemon(storage, THIRD)
    assert journals[0].state.attempt == journals[1].state.attempt

    async def claim(journal: Journal, turns: int) -> str:
        services = cast("Any", SimpleNamespace(journal=journal, kafka=alone(Group(texts, turns))))
        try:
            await Ownership("shop", services).claim({MAIN_CLUSTER: {PLACE: 5}}, patiently=True)
        except Superseded:
            return ""
        return derive_record(journal.state).writer

    async def scene() -> tuple[str, str]:
        return await asyncio.gather(claim(journals[0], 1), claim(journals[1], turns))

    loser, winner = sorted(asyncio.run(scene()))
    record = derive_newest_record(texts.values())
    assert record is not None
    assert (loser, winner) == ("", record.writer)
