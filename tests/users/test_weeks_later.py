"""A pipeline that has ended is started again when Kafka has forgotten everything about its transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Position

from tests.support import clients
from tests.users.user import User, numbers
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker
from tidegate.kafka.transactions import TransactionClient

pytestmark = [pytest.mark.slow, pytest.mark.deep]


@pytest.fixture(scope="module")
def forgetful_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevelopmentBroker]:
    """Forgets transactional ids after seconds; a week by default."""
    properties = {
        "transactional.id.expiration.ms": "8000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    broker = DevelopmentBroker(tmp_path_factory.mktemp("broker"), properties=properties)
    try:
        yield broker.start()
    finally:
        broker.kill()


def wait_forgotten(user: User) -> None:
    client = TransactionClient({"bootstrap.servers": user.bootstrap})
    wait_until(lambda: not client.list_transactions(f"{user.name}."), "its transactional ids are forgotten")
    client.close()


def empty(user: User, topic: str, end: int) -> None:
    """As retention does it."""
    clients.delete_records(user.bootstrap, [Position(topic, 0, end)])


def test_X02_a_finished_pipeline_starts_again_and_an_idle_one_goes_on(
    forgetful_broker: DevelopmentBroker, tmp_path: Path
) -> None:
    with User(forgetful_broker.bootstrap, tmp_path) as user:
        source, out = user.numbers()
        user.produce(source, numbers((1, 1), (2, 2)))
        user.run().says(0)
        wait_forgotten(user)
        empty(user, out, -1)
        user.produce(source, numbers((3, 5)))
        user.document["sources"]["numbers"]["until"] = "never"
        daemon = user.start().wait_running()
        wait_until(lambda: [row["id"] for row in user.rows(out)] == [3], "what came since, and only that")
        unused = TransactionClient({"bootstrap.servers": user.bootstrap})
        unused.fence(f"other-{user.name}")  # type: ignore[arg-type]  # somebody else's id
        wait_until(lambda: not unused.list_transactions(f"other-{user.name}"), "an unused id is forgotten (X10)")
        unused.close()
        user.produce(source, numbers((4, 2)))
        wait_until(lambda: [row["id"] for row in user.rows(out)] == [3, 4], "the idle pipeline continues")
        assert daemon.terminate() == 0
        assert "attempt failed" not in daemon.text()
