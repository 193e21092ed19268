"""The first produce requests of a new producer are refused, cut or swallowed: exact and in order, or failed.

A leader without state for a producer takes any first sequence (KAFKA-15591): with several requests in flight the
second one may be appended where the first was refused. The repeated first one is then answered as a duplicate, which
the client takes for success: no error anywhere, and its records are missing. Only the proof of the first sequence
notices it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.sinks.driving import Cluster, permit, rows
from tests.support.kafka_proxy import PRODUCE, KafkaProxy, Request, Verdict, proxied_broker
from tidegate.dev.broker import DevelopmentBroker
from tidegate.errors import TidegateError
from tidegate.ids import Attempt
from tidegate.kafka.errors import SinkFailed

pytestmark = pytest.mark.slow

RECORDS = 400
SMALL_BATCHES = {"batch.size": "4000", "linger.ms": "0", "message.timeout.ms": "8000", "retry.backoff.ms": "20"}


@pytest.fixture(scope="module", params=[1, 2], ids=["tv1", "tv2"])
def proxied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[DevelopmentBroker, KafkaProxy]]:
    """A broker that can only be reached through the proxy."""
    with proxied_broker(tmp_path_factory.mktemp("proxied"), transaction_version=request.param) as both:
        yield both


def hurt(numbers: set[int], verdict: Verdict) -> Callable[[Request], Verdict]:
    """Verdict for the produce requests with these numbers, counted over all connections from 0."""
    counter = itertools.count()
    lock = threading.Lock()

    def rule(request: Request) -> Verdict:
        if request.api_key != PRODUCE:
            return Verdict.FORWARD
        with lock:
            return verdict if next(counter) in numbers else Verdict.FORWARD

    return rule


@pytest.mark.parametrize("verdict", [Verdict.REFUSE, Verdict.DROP, Verdict.CUT], ids=lambda verdict: verdict.value)
@pytest.mark.parametrize("numbers", [{0}, {1}, {0, 1, 2}, {0, 2}], ids=str)
def test_hurt_first_requests_end_exact_or_failed(
    proxied: tuple[DevelopmentBroker, KafkaProxy],
    unique_name: Callable[[str], str],
    verdict: Verdict,
    numbers: set[int],
) -> None:
    broker, proxy = proxied
    cluster = Cluster(broker.bootstrap, unique_name)
    try:
        topic = cluster.topic(1)
        driven = cluster.sink(topic, kafka=SMALL_BATCHES)
        before = proxy.hurt
        proxy.rule = hurt(numbers, verdict)
        expected: list[int] = []
        try:
            driven.write(rows(range(RECORDS), size=1000))
            committables = driven.prepared(1).committables
            cluster.committer.commit(permit(committables))
            expected = list(range(RECORDS))
        except SinkFailed as failed:
            print(f"failed: {failed.message}")
            cluster.committer.fence_leftovers(cluster.pipeline, [], Attempt(2), "j")
        finally:
            proxy.rule = lambda request: Verdict.FORWARD
        assert proxy.hurt > before, "the planned fault did not happen"
        assert cluster.visible(topic).get(0, []) == expected
    finally:
        cluster.close()


@pytest.mark.parametrize("numbers", [{0}, {0, 1}, {0, 2}], ids=str)
def test_at_least_once_loses_nothing_when_first_requests_are_refused(
    proxied: tuple[DevelopmentBroker, KafkaProxy], unique_name: Callable[[str], str], numbers: set[int]
) -> None:
    broker, proxy = proxied
    cluster = Cluster(broker.bootstrap, unique_name)
    try:
        topic = cluster.topic(1)
        driven = cluster.sink(topic, exactly_once=False, kafka={**SMALL_BATCHES, "message.timeout.ms": "60000"})
        proxy.rule = hurt(numbers, Verdict.REFUSE)
        try:
            driven.write(rows(range(RECORDS), size=1000))
            driven.prepared(1)
        finally:
            proxy.rule = lambda request: Verdict.FORWARD
        assert proxy.hurt
        assert cluster.visible(topic) == {0: list(range(RECORDS))}
    finally:
        cluster.close()


def test_a_swallowed_request_fails_the_interval(
    proxied: tuple[DevelopmentBroker, KafkaProxy], unique_name: Callable[[str], str]
) -> None:
    broker, proxy = proxied
    cluster = Cluster(broker.bootstrap, unique_name)
    try:
        topic = cluster.topic(1)
        driven = cluster.sink(topic, kafka={**SMALL_BATCHES, "message.timeout.ms": "2000", "socket.timeout.ms": "1000"})
        proxy.rule = lambda request: Verdict.SWALLOW if request.api_key == PRODUCE else Verdict.FORWARD
        try:
            with pytest.raises(TidegateError):
                driven.write(rows(range(RECORDS), size=1000))
                driven.prepared(1)
        finally:
            proxy.rule = lambda request: Verdict.FORWARD
        assert proxy.hurt
        cluster.committer.fence_leftovers(cluster.pipeline, [], Attempt(2), "j")
        assert cluster.values(topic) == []
    finally:
        cluster.close()
