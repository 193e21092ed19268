"""Creates all librdkafka clients of the tests, so that none of them logs to the output of the suite."""

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
"""Receives what a level or `debug` in the settings lets through, which otherwise goes to standard error."""
LOGGER.setLevel(logging.CRITICAL + 1)


def producer(settings: Mapping[str, Any], **more: Any) -> ck.Producer:
    """Creates a producer, closed by `with`, `close` or its last reference."""
    import confluent_kafka as ck

    return ck.Producer({**QUIET, **settings}, logger=LOGGER, **more)


def consumer(settings: Mapping[str, Any], **more: Any) -> ck.Consumer:
    """Creates a consumer, closed by `with` or `close`. It does not wait half a second at the end of a partition."""
    import confluent_kafka as ck

    return ck.Consumer({**QUIET, "fetch.wait.max.ms": 20, **settings}, logger=LOGGER, **more)


def admin(settings: Mapping[str, Any]) -> AdminClient:
    """Creates an admin client, which only its last reference closes."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**QUIET, **settings}, logger=LOGGER)


def delete_topics(bootstrap: str, topics: list[str]) -> None:
    """Deletes topics and returns when the controller has answered."""
    client = admin({"bootstrap.servers": bootstrap})  # kept until the response has arrived
    for future in client.delete_topics(topics).values():
        future.result(ADMIN_S)


def delete_records(bootstrap: str, places: list[ck.TopicPartition]) -> None:
    """Deletes the records before the offsets, as retention does."""
    client = admin({"bootstrap.servers": bootstrap})
    for future in client.delete_records(places).values():
        future.result(ADMIN_S)
