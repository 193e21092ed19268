"""The source without permission: a broker with access lists."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the library's stubs forget to export them
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.conftest import BrokerMaker
from tests.sources.kafka_topics import Reading, orders, produce, source_operator
from tidegate.daemon.broker.server import create_topics
from tidegate.sources.errors import SourceFailed

pytestmark = pytest.mark.slow

ACCESS_LISTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def test_topics_that_may_not_be_described_or_read_stop_the_pipeline(own_broker: BrokerMaker) -> None:
    broker = own_broker(properties=ACCESS_LISTS)
    create_topics(broker.bootstrap, {"hidden": 1, "unreadable": 1})
    produce(broker.bootstrap, "unreadable", orders(range(3)))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    lists = [
        _allow("hidden", "User:somebody", AclOperation.READ),
        _allow("unreadable", "User:*", AclOperation.DESCRIBE),
    ]
    for future in admin.create_acls(lists).values():
        future.result(30)
    for topic in ("hidden", "unreadable"):
        with (
            Reading(source_operator(broker.bootstrap, topic, until="never")) as reading,
            pytest.raises(SourceFailed, match=f"topic {topic}: .*grant READ and DESCRIBE"),
        ):
            reading.source.wait_ready(30)
            reading.read(1)


def _allow(topic: str, principal: str, operation: AclOperation) -> AclBinding:
    pattern = ResourcePatternType.LITERAL
    return AclBinding(ResourceType.TOPIC, topic, pattern, principal, "*", operation, AclPermissionType.ALLOW)
