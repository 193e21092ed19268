"""The source without permission: a broker with access lists."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the library's stubs forget to export them
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.conftest import BrokerMaker
from tests.sources.kafka_topics import Reading, orders, produce, source_operator
from tests.support import clients
from tests.support.secured_broker import await_bindings
from tests.waiting import wait_until
from tidegate.dev.broker.server import create_topics
from tidegate.kafka.errors import SourceFailed
from tidegate.kafka.transactions import TransactionClient

pytestmark = pytest.mark.slow

ACCESS_LISTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def test_a_topic_that_may_be_described_but_not_read_stops_the_pipeline(own_broker: BrokerMaker) -> None:
    """One that may not be described is reported by the daemon, before slots are deployed."""
    broker = own_broker(properties=ACCESS_LISTS)
    create_topics(broker.bootstrap, {"unreadable": 1})
    client = TransactionClient({"bootstrap.servers": broker.bootstrap})
    assert client.may_read("unreadable")
    produce(broker.bootstrap, "unreadable", orders(range(3)))
    admin = clients.admin({"bootstrap.servers": broker.bootstrap})
    described = _allow("unreadable", "User:*", AclOperation.DESCRIBE)
    for future in admin.create_acls([described]).values():
        future.result(60)
    await_bindings(admin, [described])
    wait_until(lambda: not client.may_read("unreadable"), "it is found out before a slot is")
    client.close()
    with (
        Reading(source_operator(broker.bootstrap, "unreadable", until="never")) as reading,
        pytest.raises(SourceFailed, match=r"topic unreadable: .*grant READ and DESCRIBE"),
    ):
        reading.read(1)


def _allow(topic: str, principal: str, operation: AclOperation) -> AclBinding:
    pattern = ResourcePatternType.LITERAL
    return AclBinding(ResourceType.TOPIC, topic, pattern, principal, "*", operation, AclPermissionType.ALLOW)
