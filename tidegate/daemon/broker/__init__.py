"""The development broker: a real single-node Kafka from pinned jars, for trying things and for the tests.

Read next: `server` (the broker as an object), `artifacts` (where the jars come from), `properties` (its settings).
"""

from tidegate.daemon.broker.errors import ArtifactsUnavailable, BrokerFailed
from tidegate.daemon.broker.server import DevelopmentBroker

__all__ = ["ArtifactsUnavailable", "BrokerFailed", "DevelopmentBroker"]
