"""Brokers that do not answer are waited for; a client that delivers nothing although they answer is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate.kafka.errors import BrokerUnavailable, LoginRefusedLater, SinkFailed
from tidegate.sinks.outage import STALL_S, SinkOutage, SinkStallWatch


class Scene:
    """A clock, and brokers that answer or take three seconds to be silent."""

    def __init__(self) -> None:
        self.now = 50.0
        self.answering = True
        self.watch = SinkStallWatch(self.answers, self)

    def answers(self) -> bool:
        self.now += 0.0 if self.answering else 3.0
        return self.answering

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def stalls_within(self, seconds: float, client: object = "a", queued: int = 5) -> bool:
        """Looked at twice a second."""
        until = self.now + seconds
        while self.now < until:
            if self.watch.is_stalled(client, queued):
                return True
            self.now += 0.5
        return False


def test_nothing_delivered_while_brokers_answer_is_a_stall() -> None:
    scene = Scene()
    began = scene.now
    assert scene.stalls_within(1000)
    assert STALL_S <= scene.now - began < STALL_S + 15


def test_an_outage_is_waited_for_as_long_as_it_takes_and_then_the_time_begins_again() -> None:
    scene = Scene()
    assert not scene.stalls_within(110)
    scene.answering = False
    assert not scene.stalls_within(3000)
    scene.answering = True
    assert not scene.stalls_within(110)
    assert scene.stalls_within(20)


def test_slow_progress_is_no_stall() -> None:
    scene = Scene()
    assert not any(scene.stalls_within(100, queued=queued) for queued in range(50, 0, -1))


def test_another_client_has_its_own_time() -> None:
    scene = Scene()
    assert not any(scene.stalls_within(100, client=client) for client in "abcdefgh")


def test_a_process_that_was_stopped_has_not_waited() -> None:
    scene = Scene()
    assert not scene.stalls_within(20)
    scene.now += 10_000
    assert not scene.stalls_within(60)


class Tools(Scene):
    """Of a sink whose brokers are away until a moment, and whose client delivers nothing before another one."""

    def __init__(self, away_until: float = 0.0, delivers_at: float = 0.0) -> None:
        super().__init__()
        self.clock = self
        self.away_until, self.delivers_at = away_until, delivers_at
        self.tries = 0
        self.stopping = False
        self.closed = 0
        operator = cast("Any", SimpleNamespace(name="out", kafka={}))
        self.outage = SinkOutage(operator, cast("Any", self), lambda: self.stopping)

    def connect_again(self, _kafka: object, timeout_s: float) -> Any:
        return SimpleNamespace(cluster_id=self.cluster_id, close=self.close)

    def close(self) -> None:
        self.closed += 1

    def cluster_id(self, timeout_s: float) -> str:
        if self.now < self.away_until:
            self.now += timeout_s
            raise BrokerUnavailable("no answer")
        return "cluster"

    def ask(self) -> str:
        """A call that takes two minutes where nobody answers."""
        self.tries += 1
        if self.now < self.away_until:
            self.now += 120
            raise BrokerUnavailable("no final answer in 120 s")
        return "answer"

    def fail(self) -> str:
        self.tries += 1
        raise SinkFailed("the id is taken")

    @property
    def queued(self) -> int:
        return 0 if self.now >= self.delivers_at else 7

    def flush(self, timeout_s: float, stopping: Any) -> int:
        self.now = min(self.now + timeout_s, max(self.now, self.delivers_at))
        return self.queued


def test_what_fails_in_an_outage_is_repeated_until_brokers_answer() -> None:
    tools = Tools(away_until=2000.0)
    assert tools.outage.wait_out(tools.ask) == "answer"
    assert tools.now > 2000
    tools.outage.close()
    assert tools.closed == 1


def test_a_failure_while_brokers_answer_is_one_at_once() -> None:
    tools = Tools()
    with pytest.raises(SinkFailed, match="the id is taken"):
        tools.outage.wait_out(tools.fail)
    assert tools.tries == 1


def test_after_an_outage_it_is_tried_once_more() -> None:
    tools = Tools(away_until=60.0)
    tools.fail = cast("Any", _failing_slowly(tools))  # type: ignore[method-assign]  # planned
    with pytest.raises(SinkFailed):
        tools.outage.wait_out(tools.fail)
    assert tools.tries >= 2


def _failing_slowly(tools: Tools) -> Any:
    def fail() -> None:
        tools.tries += 1
        tools.now += 5
        raise SinkFailed("not this time")

    return fail


def test_a_login_that_is_refused_is_not_waited_for() -> None:
    """Waiting would never end, and nothing would be logged: the brokers are there."""
    tools = Tools(away_until=1e9)

    def refuse(*_: object) -> Any:
        raise LoginRefusedLater("it refuses the user")

    with pytest.raises(LoginRefusedLater):
        tools.outage.wait_out(refuse)
    tools.connect_again = cast("Any", refuse)  # type: ignore[method-assign]  # planned
    with pytest.raises(LoginRefusedLater):
        tools.outage.wait_out(tools.ask)
    assert tools.tries == 1
    assert not tools.outage.is_over()


def test_nobody_waits_for_a_sink_that_is_closed() -> None:
    tools = Tools(away_until=1e9)
    tools.stopping = True
    with pytest.raises(BrokerUnavailable):
        tools.outage.wait_out(tools.ask)
    assert tools.tries == 1


def test_records_wait_in_the_client_through_a_long_outage() -> None:
    tools = Tools(away_until=3000.0, delivers_at=3030.0)
    assert tools.outage.flush(cast("Any", tools)) == 0
    assert tools.now == 3030


def test_a_client_that_delivers_nothing_although_brokers_answer_costs_the_attempt() -> None:
    tools = Tools(away_until=500.0, delivers_at=1e9)
    with pytest.raises(SinkFailed, match=r"delivered none of its 7 records for 120 s, although brokers answer"):
        tools.outage.flush(cast("Any", tools))
    assert 500 + STALL_S <= tools.now < 500 + STALL_S + 30


def test_a_full_queue_that_does_not_drain_is_noticed_too() -> None:
    tools = Tools(delivers_at=1e9)
    with pytest.raises(SinkFailed, match="although brokers answer"):
        while tools.now < 500:
            tools.outage.check_draining(cast("Any", tools))
            tools.now += 1
    assert tools.now < 200
