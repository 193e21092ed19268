"""A cluster as companies have them: TLS by an authority of their own, passwords, only the rights that are needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.command import tidegate
from tests.support.rig import Rig
from tests.support.secured_broker import Right, SecuredBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

OF_A_SLOW_MACHINE = (
    "no broker answers at",  # in time: the same attempt continues
    "answer again, after",
    "not all slots returned within",
    "helper threads are still running",
)
ONE_BROKER = "the cluster has one broker"
USER, PASSWORD = "tidegate", "opensesame-512"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[SecuredBroker]:
    """Whoever logs in must do it again every 3 s."""
    broker = SecuredBroker(tmp_path / "broker", properties={"listener.name.secured.connections.max.reauth.ms": "3000"})
    try:
        yield broker.start()
    finally:
        broker.kill()


def needed(rig: Rig) -> list[Right]:
    """As docs/operations/security.md lists them."""
    sinks = [rig.topic["paid"], rig.topic["totals"]]
    return [
        Right("TOPIC", rig.topic["orders"], "READ"),
        *(Right("TOPIC", sink, operation) for sink in sinks for operation in ("READ", "WRITE")),
        Right("TRANSACTIONAL_ID", f"{rig.pipeline.name}.", "WRITE", prefixed=True),
        Right("GROUP", rig.pipeline.name, "READ"),
    ]


def validate(rig: Rig) -> tuple[int, str]:
    """Exit code and words of `tidegate validate --connect`."""
    ended = tidegate("validate", "--connect", rig.daemons[-1].pipeline)
    return ended.code, ended.text


def examine(rig: Rig, code: int) -> list[dict[str, str]]:
    """What `tidegate doctor` does not call ok; it ends with this code."""
    ended = tidegate("doctor", "--format", "json", rig.daemons[-1].pipeline)
    assert (ended.code, PASSWORD in ended.text) == (code, False), ended.text
    return [one for one in json.loads(ended.stdout)["findings"] if one["severity"] != "ok"]


def test_a_user_with_just_the_listed_rights_runs_a_pipeline_over_tls_exactly_once(
    make_rig: RigMaker, secured: SecuredBroker, tmp_path: Path
) -> None:
    secured.add_scram_user(USER, PASSWORD)
    (tmp_path / "password").write_text(PASSWORD + "\n")
    login = {
        "bootstrap.servers": secured.secured,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": f"${{file:{tmp_path}/password}}",
        "ssl.ca.location": str(secured.authority.file),
    }
    rig = make_rig(broker=secured, seed=61, kafka=login)
    rights = needed(rig)
    secured.grant(USER, rights[1:])
    daemon = rig.daemon()
    code, words = validate(rig)
    assert code == 2
    assert f"sources.orders.topic: `topic {rig.topic['orders']}`: the user of `kafka:` lacks Read for reading" in words
    orders = next(one for one in examine(rig, 1) if one["subject"] == f"topic {rig.topic['orders']}")
    assert (orders["severity"], orders["path"]) == ("problem", "sources.orders.topic")
    assert f"--operation Read --operation DescribeConfigs --topic {rig.topic['orders']}" in orders["remedy"]
    secured.grant(USER, rights[:1])
    code, words = validate(rig)
    assert (code, words.count("\n")) == (0, 2), words
    assert ONE_BROKER in words
    lacking = {one["subject"]: one["value"] for one in examine(rig, 0) if one["check"] == "permissions"}
    assert lacking.keys() == {
        "cluster",
        "topic __transaction_state",
        *(f"topic {topic}" for topic in rig.topic.values()),
    }, "what is optional, see docs/operations/security.md"
    assert lacking["cluster"] == (
        "the user of `kafka:` lacks DescribeConfigs for the brokers' limits, Describe for the cluster's clock, "
        "ClusterAction for writing markers that Kafka has lost"
    )
    rig.writer.start()
    rig.outputs.start()
    daemon.start().wait_running().wait_committed()
    status = daemon.http("/status")[1]
    rig.finish(daemon)
    assert daemon.attempt == 1
    entries = [json.loads(line) for line in daemon.text().splitlines() if line.startswith("{")]
    told = [one["message"] for one in entries if one["level"] in {"warning", "error"}]
    assert not [message for message in told if not any(words in message for words in (*OF_A_SLOW_MACHINE, ONE_BROKER))]
    assert PASSWORD not in daemon.text() + status + words
