"""The development broker: a real single-node Kafka from pinned jars, for trying things and for the tests.

Read next: `server` (the broker as an object), `artifacts` (where the jars come from), `properties` (its settings).
"""

from tidegate.dev.broker.errors import ArtifactsUnavailable, BrokerFailed
from tidegate.dev.broker.server import DevelopmentBroker

__all__ = ["ArtifactsUnavailable", "BrokerFailed", "DevelopmentBroker"]
