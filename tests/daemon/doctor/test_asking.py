"""Questions of `tidegate doctor` to a cluster that is played: one login that is refused hides nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tidegate.config.load import parse_pipeline
from tidegate.daemon.doctor import asking
from tidegate.kafka.errors import LoginRefused
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
    monkeypatch.setattr(asking, "Inspector", Inspector)
    loaded = parse_pipeline(json.dumps(DOCUMENT), "p.yaml", {})
    plan = build_plan(loaded)
    tried = dict(asking._try_rights(loaded, plan, asking.Inspector({"sasl.username": "top"}, 1.0), 1.0))
    assert {need.name for need in tried if need.resource == "topic"} >= {"a", "b", "c", "d"}
    assert all(tried.values())
    assert not any(need.login for need in tried)
