"""The clusters of a pipeline in tests: `kafka` alone, unless the test is about several."""

from __future__ import annotations

from typing import Any, cast

from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.ids import MAIN_CLUSTER


def alone(edge: object) -> Any:
    """The clusters of a pipeline that has one; `edge` stands for its `KafkaEdge`."""
    return KafkaClusters({MAIN_CLUSTER: cast("Any", edge)})
