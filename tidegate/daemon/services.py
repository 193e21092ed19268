"""The services that the daemon owns and its attempts use: stores with metrics, and the host of the slots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from tidegate.daemon.control_server import ControlServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.progress_lines import ProgressLines
from tidegate.daemon.schema_service import SchemaService
from tidegate.daemon.stores import Stores
from tidegate.spark.host import SparkHost
from tidegate.user_code.files import LocalFile


class Services(Stores, frozen=True, kw_only=True):
    """The stores with their metrics: all that recovery and housekeeping need."""

    metrics: PipelineMetrics
    files: tuple[LocalFile, ...] | None = None
    """The files of `code:` on this machine; None in the simulation, which has none and never looks for any."""
    schemas: SchemaService = msgspec.field(default_factory=SchemaService)
    progress: ProgressLines = msgspec.field(default_factory=ProgressLines)


async def _do_nothing() -> None:
    """Waits for nothing."""


class SlotHost(msgspec.Struct, frozen=True):
    """How slots are started and reached."""

    spark: SparkHost
    server: ControlServer
    address: str
    """The address by which executors reach the daemon."""
    wait_open: Callable[[], Awaitable[None]] = _do_nothing
    """Waits until Spark offers the slots. Raises what prevents that."""
