"""Reads settings of topics and brokers, as far as this user may see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.kafka.connection import (
    CLUSTER_NOT_AUTHORIZED,
    TOPIC_NOT_AUTHORIZED,
    AskAgain,
    BrokerConnection,
    error_name,
)
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.requests import broker_setting_request, topic_settings_request

_UNKNOWN_TOPIC: Final = 3
UNLIMITED_MS: Final = (1 << 63) - 1
BEFORE: Final = "message.timestamp.before.max.ms"
AFTER: Final = "message.timestamp.after.max.ms"
DIFFERENCE: Final = "message.timestamp.difference.max.ms"
"""Setting of brokers before 4.0 that limits both directions. From 3.6 on it applies while the other two have their
defaults.
"""
_NAMES: Final = (
    "max.message.bytes",
    "message.timestamp.type",
    BEFORE,
    AFTER,
    DIFFERENCE,
    "cleanup.policy",
    "compression.type",
)


def read_topic_limits(broker: BrokerConnection, topic: str, timeout_s: float) -> TopicLimits:
    """Reads the limits of a topic.

    All are unknown if the topic does not exist or this user may not see its settings.
    """

    def attempt(remaining_s: float) -> TopicLimits:
        result = broker.send(topic_settings_request(topic, _NAMES), None, remaining_s).results[0]
        if result.error_code in (_UNKNOWN_TOPIC, TOPIC_NOT_AUTHORIZED):
            return TopicLimits()
        if result.error_code:
            raise AskAgain(error_name(result.error_code))
        return derive_topic_limits({config.name: config.value or "" for config in result.configs})

    return broker.until(attempt, timeout_s, f"reading the settings of topic {topic}")


def derive_topic_limits(settings: Mapping[str, str]) -> TopicLimits:
    """Derives the limits from a topic's settings. A setting that an older or newer broker lacks sets no limit. Pure."""
    takes_stamps = settings.get("message.timestamp.type", "CreateTime") == "CreateTime"
    return TopicLimits(
        batch_bytes=_number(settings.get("max.message.bytes", "")),
        before_ms=find_time_limit(settings, BEFORE)[0] if takes_stamps else None,
        after_ms=find_time_limit(settings, AFTER)[0] if takes_stamps else None,
        compacted="compact" in settings.get("cleanup.policy", ""),
        codec=settings.get("compression.type", "producer"),
    )


def find_time_limit(settings: Mapping[str, str], name: str) -> tuple[int | None, str]:
    """Returns the limit in ms for BEFORE or AFTER, and the name of the setting that imposes it. Pure."""
    for one in (name, DIFFERENCE):
        limit_ms = _number(settings.get(one, ""))
        if limit_ms is not None and limit_ms < UNLIMITED_MS:
            return limit_ms, one
    return None, name


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def read_id_lifetime_ms(broker: BrokerConnection, timeout_s: float) -> int | None:
    """Returns `transactional.id.expiration.ms` of any broker, or None if this user may not read it."""

    def attempt(remaining_s: float) -> int | None:
        node = broker.nodes(remaining_s)[0]
        request = broker_setting_request(node, "transactional.id.expiration.ms")
        result = broker.send(request, node, remaining_s).results[0]
        if result.error_code == CLUSTER_NOT_AUTHORIZED or (not result.error_code and not result.configs):
            return None
        if result.error_code:
            raise AskAgain(error_name(result.error_code))
        return int(result.configs[0].value)

    return broker.until(attempt, timeout_s, "reading transactional.id.expiration.ms")
