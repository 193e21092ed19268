"""Questions of `tidegate doctor` to a cluster that is played: rights of several logins, whose producers are there."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, cast

import pytest

from tidegate.checks import details
from tidegate.config.load import parse_pipeline
from tidegate.ids import MAIN_CLUSTER, TopicPartition, TransactionalId
from tidegate.kafka.errors import LoginRefused
from tidegate.kafka.facts import CoordinatorState, TransactionListing
from tidegate.kafka.inspection import ActiveProducer
from tidegate.plan.build import build_plan

DOCUMENT = {
    "version": 1,
    "name": "shop",
    "kafka": {
        "bootstrap.servers": "b:9092",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "top",
        "sasl.password": "secret",
    },
    "checkpoints": {"directory": "file:///tmp/shop"},
    "sources": {
        "own": {"topic": "a", "schema": {"id": "bigint"}, "kafka": {"sasl.username": "own"}},
        "other": {"topic": "b", "schema": {"id": "bigint"}},
    },
    "sinks": {"out": {"from": "own", "topic": "c"}, "more": {"from": "other", "topic": "d"}},
}


class Inspector:
    """Lets in `top`, who may do everything."""

    def __init__(self, kafka: Mapping[str, str], timeout_s: float) -> None:
        if kafka["sasl.username"] != "top":
            raise LoginRefused("cannot connect to b:9092: it refuses the user")

    def operations(self) -> frozenset[str]:
        return frozenset({"ALTER", "DESCRIBE", "DESCRIBE_CONFIGS"})

    def __getattr__(self, name: str) -> Any:
        assert name.startswith("may_")
        return lambda *_: True


def test_a_login_that_is_refused_hides_no_other_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start says so; the brokers were said to have stopped answering, and nothing else was looked at."""
    monkeypatch.setattr(details, "Inspector", Inspector)
    loaded = parse_pipeline(json.dumps(DOCUMENT), "p.yaml", {})
    plan = build_plan(loaded)
    at_the_top = cast("Any", Inspector({"sasl.username": "top"}, 1.0))
    tried = dict(details._try_rights(loaded, plan, MAIN_CLUSTER, at_the_top, 1.0))
    assert {need.name for need in tried if need.resource == "topic"} >= {"a", "b", "c", "d"}
    assert all(tried.values())
    assert not any(need.login for need in tried)


def test_a_replay_of_dead_letters_is_no_other_writer() -> None:
    ids = {1: "shop.dead-letters", 2: "billing.dead-letters", 3: "shop.out.0.1-j.0"}
    listings = [TransactionListing(TransactionalId(name), one, CoordinatorState.EMPTY) for one, name in ids.items()]
    now_ms = int(time.time() * 1000)
    producers = [ActiveProducer(TopicPartition("dead", 0), one, now_ms) for one in ids]
    assert [one.transactional_id for one in details._others("shop", listings, producers)] == ["billing.dead-letters"]
