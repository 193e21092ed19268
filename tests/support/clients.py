"""Makes all clients of librdkafka that tests use: none of them writes its log to the output of the suite."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import confluent_kafka as ck
    from confluent_kafka.admin import AdminClient

ADMIN_S: Final = 60.0
QUIET: Final = {"log_level": 0}
LOGGER: Final = logging.getLogger("tests.librdkafka")
"""Gets what a level or `debug` among the settings lets pass, which is written to the standard error otherwise."""
LOGGER.setLevel(logging.CRITICAL + 1)


def producer(settings: Mapping[str, Any], **more: Any) -> ck.Producer:
    """Closed by `with`, `close`, or its last reference."""
    import confluent_kafka as ck

    return ck.Producer({**QUIET, **settings}, logger=LOGGER, **more)


def consumer(settings: Mapping[str, Any], **more: Any) -> ck.Consumer:
    """Closed by `with` or `close`."""
    import confluent_kafka as ck

    return ck.Consumer({**QUIET, **settings}, logger=LOGGER, **more)


def admin(settings: Mapping[str, Any]) -> AdminClient:
    """Closed by its last reference; it has no other way."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**QUIET, **settings}, logger=LOGGER)


def delete_topics(bootstrap: str, topics: list[str]) -> None:
    """Returns when the controller has answered."""
    client = admin({"bootstrap.servers": bootstrap})  # kept until the answer is there
    for future in client.delete_topics(topics).values():
        future.result(ADMIN_S)


def delete_records(bootstrap: str, places: list[ck.TopicPartition]) -> None:
    """As retention does it: those before the offsets."""
    client = admin({"bootstrap.servers": bootstrap})
    for future in client.delete_records(places).values():
        future.result(ADMIN_S)
