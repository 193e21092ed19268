"""A sink that ends: it opens nothing for rows that will not come, and asks nothing more once it is closed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.sinks.driving import sink_operator
from tidegate.clock import SystemClock
from tidegate.ids import Attempt, CheckpointId, SlotIndex
from tidegate.kafka.errors import SinkFailed
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.tools import KafkaTools
from tidegate.kafka.transactions import TransactionClient
from tidegate.kafka.writer import TransactionWriter
from tidegate.sinks.kafka import KafkaSink, SinkPlacement
from tidegate.sinks.pool import WARM
from tidegate.threads import HelperThread

SERVERS = "127.0.0.1:1"


class Held(HelperThread):
    """Jobs are not run: they wait as on a slow link. Joining takes all the time that it may."""

    def __init__(self, tools: HeldTools, name: str, on_error: Callable[[BaseException], None]) -> None:
        super().__init__(name, on_error)
        self.jobs: list[Callable[[], None]] = []
        self.stopped = False
        self._tools = tools

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def stop(self) -> None:
        self.stopped = True

    def join(self, timeout_s: float) -> bool:
        self._tools.clock.now += timeout_s if self.jobs else 0.0
        return not self.jobs


class HeldClock(SystemClock):
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class HeldTools(KafkaTools):
    """See Held."""

    clock: HeldClock

    def __init__(self) -> None:
        self.clock = HeldClock()
        self.helpers: dict[str, Held] = {}

    def helper(self, name: str, on_error: Callable[[BaseException], None]) -> Held:
        role = name.split("-")[1]
        self.helpers[role] = Held(self, name, on_error)
        return self.helpers[role]


def sink_of(tools: HeldTools) -> KafkaSink:
    placement = SinkPlacement("p", SlotIndex(0), Attempt(1), 60_000, "j")
    return KafkaSink(sink_operator(SERVERS, "t"), placement, lambda: None, tools=tools)


def test_no_transaction_is_opened_ahead_once_no_rows_follow() -> None:
    tools = HeldTools()
    sink = sink_of(tools)
    sink.open()
    assert len(tools.helpers["open"].jobs) == WARM
    ending = HeldTools()
    sink = sink_of(ending)
    sink.prepare(CheckpointId(1), final=True)
    sink.open()
    assert len(ending.helpers["open"].jobs) == 1, "for rows that wait, if there are any"


@pytest.mark.parametrize(("opened_in_s", "limit_s"), [(0.05, 5.0), (6.0, 12.0)])
def test_a_sink_waits_as_long_as_its_link_asks_for_and_says_so_beyond(
    opened_in_s: float, limit_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    tools = HeldTools()
    sink = sink_of(tools)
    sink._producers.opened_in_s = opened_in_s
    sink.open()
    sink.begin_close()
    assert [name for name, one in tools.helpers.items() if one.stopped] == ["open", "prepare", "drain"]
    tools.clock.now += 1.0  # another sink is closed first
    sink.close()
    assert tools.clock.now == limit_s
    assert "sink out: helper threads are still running after their time limit" in caplog.text


def test_a_sink_whose_threads_end_in_time_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    tools = HeldTools()
    sink = sink_of(tools)
    sink.close()
    assert (tools.clock.now, caplog.text) == (0.0, "")


def test_an_opening_asks_nothing_more_once_its_sink_is_closed() -> None:
    asked: list[str] = []

    def list_topics(topic: str, timeout: float) -> Any:
        asked.append("topics")
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    producer: Any = SimpleNamespace(list_topics=list_topics, init_transactions=lambda _: asked.append("init"))

    class OneProducer(HeldTools):
        def producer(self, config: Mapping[str, Any]) -> Any:  # as KafkaTools
            return producer

    properties = derive_producer_properties({"bootstrap.servers": SERVERS}, None, 60_000)
    writer = TransactionWriter("out", {"t": TopicLimits()}, properties, OneProducer())
    with pytest.raises(SinkFailed, match="the sink is closed"):
        writer.open(SimpleNamespace(), lambda: bool(asked))  # type: ignore[arg-type]  # it is not asked
    assert asked == ["topics"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_producer_that_is_opened_after_its_sink_was_closed_is_dropped(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """To close waits for a limited time, and then nobody takes what the thread opens, or drops what it could not."""
    late: list[KafkaSink] = []
    dropped: list[object] = []

    def discard(writer: TransactionWriter) -> None:
        dropped.append(writer)

    def open_late(_writer: TransactionWriter, *_more: object) -> None:
        late[0].close()
        if fails:
            raise SinkFailed("it was fenced")

    monkeypatch.setattr(TransactionWriter, "open", open_late)
    monkeypatch.setattr(TransactionWriter, "discard", discard)
    tools = HeldTools()
    sink = sink_of(tools)
    late.append(sink)
    sink._topics.limits = {"t": TopicLimits()}
    sink._producers.client = TransactionClient(
        {}, open_channel=lambda *_: cast("Any", SimpleNamespace(close=lambda: None))
    )
    sink.open()
    with pytest.raises(SinkFailed) if fails else nullcontext():
        tools.helpers["open"].jobs[0]()
    assert len(dropped) == 1
