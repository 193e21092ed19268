"""Broker settings, as far as this user may read them."""

from __future__ import annotations

from tidegate.kafka.connection import CLUSTER_NOT_AUTHORIZED, AskAgain, BrokerConnection, error_name
from tidegate.kafka.requests import broker_setting_request


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
