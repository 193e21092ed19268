"""The development broker: a real single-node Kafka from pinned jars, for first steps and for the tests.

Read next: `server` (the broker as an object), `artifacts` (the source of the jars).
"""

from tidegate.dev.broker.artifacts import ArtifactsUnavailable
from tidegate.dev.broker.server import BrokerFailed, DevelopmentBroker

__all__ = ["ArtifactsUnavailable", "BrokerFailed", "DevelopmentBroker"]
