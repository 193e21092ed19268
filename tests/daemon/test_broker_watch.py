"""The brokers are unavailable: reported once, and once when they are back."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tidegate.daemon.broker_watch import BrokerWatch, ProbeResult
from tidegate.kafka.errors import BrokerUnavailable


class Brokers:
    """They answer, or the question takes its whole time; a clock that only questions move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.there = True
        self.told: list[float | None] = []
        self.why: list[str] = []
        self.cause = "connection refused"

    def tell(self, result: ProbeResult) -> None:
        self.told.append(result.unavailable_s)
        self.why.append(result.why)
        assert result.took_s == pytest.approx(0.01 if self.there else 2.5)

    async def ask(self, timeout_s: float) -> str:
        self.now += 0.01 if self.there else timeout_s
        if not self.there:
            raise BrokerUnavailable(f"last: {self.cause}", text=self.cause)
        return "cluster"

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def watch(brokers: Brokers) -> BrokerWatch:
    return BrokerWatch("b:9092", brokers.ask, brokers.tell, brokers)


def test_an_outage_and_its_end_are_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    made = watch(brokers)

    async def scene() -> None:
        for there in (True, True, False, False, False, True, True):
            brokers.there = there
            await made.look()

    with caplog.at_level(logging.INFO):
        asyncio.run(scene())
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "no broker answers at b",
        "the brokers at b",
    ]
    assert "last: connection refused. Nothing is lost" in caplog.text
    assert "answer again, after 8 s" in caplog.text
    assert brokers.told == [None, None, 2.5, 5.0, 7.5, None, None]


def test_an_outage_counts_from_the_last_answer(caplog: pytest.LogCaptureFixture) -> None:
    """It may be noticed late: between two looks, or when the daemon was stopped."""
    brokers = Brokers()
    made = watch(brokers)

    async def scene() -> None:
        await made.look()
        brokers.now += 20
        brokers.there = False
        await made.look()
        brokers.there = True
        await made.look()

    asyncio.run(scene())
    assert brokers.told == [None, pytest.approx(22.5), None]
    assert "answer again, after 23 s" in caplog.text


def test_causes_that_alternate_are_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    brokers.there = False
    made = watch(brokers)

    async def scene() -> None:
        for look in range(40):
            brokers.cause = f"cause {look % 2}"
            await made.look()

    asyncio.run(scene())
    assert [record.getMessage().partition(" at ")[0] for record in caplog.records] == [
        "no broker answers",
        "still no broker answers",
    ]


def test_what_is_told_of_an_outage() -> None:
    brokers = Brokers()
    made = watch(brokers)

    async def scene() -> None:
        for there in (True, True, False, False, False, True, True):
            brokers.there = there
            await made.look()

    asyncio.run(scene())
    assert set(brokers.why[2:5]) == {"no broker answers at b:9092: connection refused"}
    assert set(brokers.why[:2] + brokers.why[5:]) == {""}


def test_every_outage_is_told(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    made = watch(brokers)

    async def scene() -> None:
        for there in (False, True, False):
            brokers.there = there
            await made.look()

    asyncio.run(scene())
    assert caplog.text.count("no broker answers") == 2


def test_another_cause_of_an_outage_is_told_but_not_at_every_look(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers()
    brokers.there = False
    made = watch(brokers)

    async def scene() -> None:
        for look in range(12):
            brokers.cause = "connection refused" if look < 6 else "it refuses the user"
            await made.look()

    asyncio.run(scene())
    words = [record.getMessage() for record in caplog.records]
    assert [text.partition(" at ")[0] for text in words] == ["no broker answers", "still no broker answers"]
    assert "it refuses the user" in words[1]


def test_an_internal_error_is_in_the_log_and_the_next_look_comes(caplog: pytest.LogCaptureFixture) -> None:
    """The watch ended in silence, and what it had last said of the brokers was believed for ever."""
    brokers, errors = Brokers(), [KeyError("node 7"), KeyError("node 7")]
    made = watch(brokers)

    async def ask(timeout_s: float) -> str:
        if not brokers.there and len(brokers.told) == 2 and errors:
            raise errors.pop()
        return await Brokers.ask(brokers, timeout_s)

    made._ask = ask

    async def scene() -> None:
        for there in (True, False, False, False, True):
            brokers.there = there
            await made.look()

    asyncio.run(scene())
    assert [unavailable_s is None for unavailable_s in brokers.told] == [True, False, True]
    assert [record.message for record in caplog.records if record.exc_info] == [
        "internal error while probing the brokers, retrying"
    ]
