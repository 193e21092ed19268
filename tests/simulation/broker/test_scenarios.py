"""The model broker answers as the real one: every scenario gives the same value at both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulation.broker import (  # noqa: F401 - they register their scenarios
    scenarios_of_ids,
    scenarios_of_logs,
    scenarios_of_reading,
    scenarios_of_requests,
    scenarios_of_writing,
)
from tests.simulation.broker.scenario import SCENARIOS
from tests.simulation.broker.stages import ModelStage, RealStage, Stage
from tests.support.kafka_proxy import KafkaProxy, proxied_broker
from tidegate.dev.broker import DevelopmentBroker

FAST_TIME_OUTS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
RESTARTED = frozenset({"a_broker_dies_and_remembers"})
"""Scenarios that restart the broker: they have one of their own."""


@pytest.fixture
def own_proxied(tmp_path: Path) -> Iterator[tuple[DevelopmentBroker, KafkaProxy]]:
    """As `proxied`, for one test."""
    with proxied_broker(tmp_path, FAST_TIME_OUTS) as both:
        yield both


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DevelopmentBroker, KafkaProxy]]:
    """A real broker that can only be reached through the proxy."""
    with proxied_broker(tmp_path_factory.mktemp("proxied"), FAST_TIME_OUTS) as both:
        yield both


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("marker_delay_ms", [0, 30])
def test_the_model_plays_the_scenario(name: str, marker_delay_ms: int, unique_name: Callable[[str], str]) -> None:
    _play(name, ModelStage(unique_name("s"), marker_delay_ms))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_real_broker_plays_the_scenario(
    name: str, request: pytest.FixtureRequest, unique_name: Callable[[str], str]
) -> None:
    broker, proxy = request.getfixturevalue("own_proxied" if name in RESTARTED else "proxied")
    _play(name, RealStage(unique_name("s"), broker, proxy))


def _play(name: str, stage: Stage) -> None:
    run, expected = SCENARIOS[name]
    try:
        assert stage.play(lambda: run(stage)) == expected
    finally:
        stage.close()
