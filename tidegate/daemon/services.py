"""The services that the daemon owns and its attempts use: stores with metrics, and the host of the slots."""

from __future__ import annotations

import msgspec

from tidegate.daemon.control_server import ControlServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.progress_lines import ProgressLines
from tidegate.daemon.schema_service import SchemaService
from tidegate.daemon.stores import Stores
from tidegate.spark.host import SparkHost


class Services(Stores, frozen=True, kw_only=True):
    """The stores with their metrics: all that recovery and housekeeping need."""

    metrics: PipelineMetrics
    schemas: SchemaService = msgspec.field(default_factory=SchemaService)
    progress: ProgressLines = msgspec.field(default_factory=ProgressLines)


class SlotHost(msgspec.Struct, frozen=True):
    """How slots are started and reached."""

    spark: SparkHost
    server: ControlServer
    address: str
    """The address by which executors reach the daemon."""
