"""Slots ask for schemas: answers, outages, and ids that nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.registry import FakeRegistry, answer_with
from tests.waiting import PATIENCE_S
from tidegate.config.fields.schemas import RegistrySettings
from tidegate.daemon.schema_service import PAUSE_S_MAX, SchemaService
from tidegate.formats.schemas import SchemaKind, SchemaText
from tidegate.registry import transport
from tidegate.registry.client import SchemaCopies, SchemaRegistry
from tidegate.registry.transport import Transport
from tidegate.task.messages import SchemaAnswer


class Desk:
    """A desk whose pauses take no time. `told` is what it has said of the registry last."""

    def __init__(self, fake: FakeRegistry, directory: Path) -> None:
        self.fake = fake
        self.answers: asyncio.Queue[SchemaAnswer]
        self.pauses: list[float] = []
        self.told: tuple[str, int] = ("", 0)
        self.on_pause: Callable[[], None] = lambda: None
        self._directory = directory

    def run(self, use: Callable[[SchemaService], Coroutine[Any, Any, None]]) -> None:
        settings = RegistrySettings.model_validate({"url": self.fake.url})

        async def inside() -> None:
            self.answers = asyncio.Queue()
            async with SchemaRegistry(Transport(settings), SchemaCopies(self._directory, self.fake.url)) as registry:
                desk = SchemaService(registry, self._tell, self._pause)
                await asyncio.wait_for(use(desk), PATIENCE_S)
                await desk.close()

        asyncio.run(inside())

    def _tell(self, why: str, count: int) -> None:
        self.told = (why, count)

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()
        await asyncio.sleep(0)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Desk]:
    monkeypatch.setattr(transport, "PAUSES_S", (0.0,))
    with FakeRegistry() as fake:
        yield Desk(fake, tmp_path)


def test_every_slot_that_asks_is_answered_by_one_request(desk: Desk) -> None:
    number = desk.fake.add("orders", '"int"')

    async def use(one: SchemaService) -> None:
        one.ask([number], desk.answers.put_nowait)
        one.ask([number], desk.answers.put_nowait)
        expected = SchemaAnswer(number, SchemaText(SchemaKind.AVRO, '"int"', id=number))
        assert [await desk.answers.get(), await desk.answers.get()] == [expected] * 2

    desk.run(use)
    assert len(desk.fake.asked) == 1
    assert desk.told == ("", 0)


def test_a_guid_is_asked_for_by_its_own_name_and_copied(desk: Desk) -> None:
    guid = "00112233-4455-6677-8899-aabbccddeeff"
    desk.fake.guids[guid] = desk.fake.add("orders", '"int"')
    expected = SchemaAnswer(guid, SchemaText(SchemaKind.AVRO, '"int"'))

    async def use(one: SchemaService) -> None:
        one.ask([guid], desk.answers.put_nowait)
        assert await desk.answers.get() == expected

    desk.run(use)
    assert desk.fake.asked == [("GET", f"/schemas/guids/{guid}")]
    desk.fake.trouble = answer_with(503, "")
    desk.run(use)


def test_an_id_that_the_registry_does_not_have_is_looked_for_twice(desk: Desk) -> None:
    async def use(one: SchemaService) -> None:
        one.ask([7], desk.answers.put_nowait)
        assert await desk.answers.get() == SchemaAnswer(7, None)

    desk.run(use)
    assert len(desk.fake.asked) == 2


@pytest.mark.parametrize("status", [500, 401, 404])
def test_whatever_else_goes_wrong_is_waited_out(desk: Desk, status: int) -> None:
    """A 404 without the registry's code is of something else than a registry: no record is bad for it."""
    number = desk.fake.add("orders", '"int"')
    desk.fake.trouble = answer_with(status, "away")

    def after_ten() -> None:
        assert desk.told[0]
        assert desk.told[1] == 1
        if len(desk.pauses) == 10:
            desk.fake.trouble = None

    desk.on_pause = after_ten

    async def use(one: SchemaService) -> None:
        one.ask([number], desk.answers.put_nowait)
        assert (await desk.answers.get()).schema is not None

    desk.run(use)
    assert desk.pauses[:3] == [0.5, 1.0, 2.0]
    assert max(desk.pauses) == PAUSE_S_MAX
    assert desk.told == ("", 0)


def test_while_it_is_away_a_copy_from_before_is_as_good(desk: Desk) -> None:
    number = desk.fake.add("orders", '"int"')

    async def use(one: SchemaService) -> None:
        one.ask([number], desk.answers.put_nowait)
        assert (await desk.answers.get()).schema is not None

    desk.run(use)
    desk.fake.trouble = answer_with(503, "")
    desk.run(use)  # another daemon, which knows nothing
    assert desk.pauses == []


def test_what_nobody_has_thought_of_is_waited_out_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    number = desk.fake.add("orders", '"int"')
    first = [ZeroDivisionError("a bug")]
    read = SchemaRegistry.read

    async def fails_once(registry: SchemaRegistry, schema_id: int) -> SchemaText:
        if first:
            raise first.pop()
        return await read(registry, schema_id)

    monkeypatch.setattr(SchemaRegistry, "read", fails_once)

    async def use(one: SchemaService) -> None:
        one.ask([number], desk.answers.put_nowait)
        assert (await desk.answers.get()).schema is not None

    desk.run(use)
    assert len(desk.pauses) == 1


def test_a_schema_that_no_source_can_read_is_in_the_log_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[int] = []
    one = SchemaService(count_incompatible=counted.append)
    for number in (7, 7, 8):
        one.refuse(number, f"schema {number} cannot be read with version 2 of `orders-value`: why")
    assert counted == [0, 1, 2]
    said = [record.getMessage() for record in caplog.records]
    assert [one.partition(": why; ")[0][:8] for one in said] == ["schema 7", "schema 8"]
    assert said[0].endswith("with version 2 of `orders-value`: why; every record written with it is bad")
