"""A slot's external parts: storage, clients, threads. The simulation and the tests pass in others."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidegate.coordinator.types import SourcePositions
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.schemas import Schemas
from tidegate.ids import OperatorName, TopicPartition
from tidegate.kafka.tools import KAFKA_TOOLS, KafkaTools
from tidegate.operators.builtin.dead_letters import Origin
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.calls.caller import Caller, OpenCaller, ThreadCaller
from tidegate.plan.graph import Plan
from tidegate.sinks.kafka import SinkPlacement
from tidegate.sinks.runtime import SinkRuntime
from tidegate.slot.copies import NO_COPIES, Copies, open_copies
from tidegate.slot.uploads import Uploads
from tidegate.sources.read_back import RecordReader
from tidegate.sources.runtime import BadRecord, SourceRuntime
from tidegate.sources.tools import SourceTools, derive_gather_times, derive_linger_s
from tidegate.state.backends import OpenState, choose_backend
from tidegate.state.local_directory import sweep
from tidegate.storage.open import open_storage
from tidegate.task.channels import InputChannel, RemoteOutput
from tidegate.task.messages import Deploy, SlotSettings
from tidegate.user_code.files import CodeFiles
from tidegate.user_code.shipping import fetch_code

if TYPE_CHECKING:
    from tidegate.storage.base import Storage

logger = logging.getLogger(__name__)

BAD_RECORDS_LOGGED: Final = 10
"""Bad records are logged with their place this often per reason, then at powers of ten."""


class SlotParts:
    """The real parts of a slot."""

    tools: KafkaTools = KAFKA_TOOLS
    open_caller: OpenCaller = ThreadCaller
    """How operators call external services."""

    def input_channel(self, edge: int) -> InputChannel:
        """Returns the receiving end of a channel."""
        return InputChannel(edge)

    def remote_output(self, edge: int) -> RemoteOutput:
        """Returns the sending end of a channel to another slot."""
        return RemoteOutput(edge)

    def open_storage(self, settings: SlotSettings) -> Storage:
        """Opens the checkpoint storage."""
        return open_storage(settings.storage_url, stays=True, options=settings.storage)

    def open_copies(self, deploy: Deploy) -> Copies:
        """Opens the copies of state files on this machine."""
        settings = deploy.settings
        if not settings.local_copies_max_bytes:
            return NO_COPIES
        owner = f"{settings.storage_url}\n{deploy.journal}"
        return open_copies(owner, settings.local_copies_max_bytes, deploy.base)

    def open_code(self, storage: Storage, plan: Plan) -> CodeFiles:
        """Opens the files of `code:` on this machine."""
        return fetch_code(storage, plan.files)

    def make_uploads(self, storage: Storage, wake: Callable[[], None]) -> Uploads:
        """Returns the thread that makes state durable."""
        return Uploads(storage, wake)

    def choose_backend(self, name: str, retained: int) -> OpenState:
        """Returns how states are opened. Removes what a killed slot has left here first, whatever its backend."""
        sweep(Path(tempfile.gettempdir()))
        return choose_backend(name, retained)

    def make_source(
        self, spec: SourceOperator, deploy: Deploy, wake: Callable[[], None], bad_record: BadRecord, schemas: Schemas
    ) -> SourceRuntime:
        """Returns a source subtask that reads on its own thread."""
        tools = SourceTools()
        interval_ms, exactly_once = deploy.settings.checkpoint_interval_ms, deploy.plan.exactly_once
        tools.linger_s = derive_linger_s(interval_ms, exactly_once=exactly_once)
        tools.gather_times = derive_gather_times(interval_ms, exactly_once=exactly_once)
        return SourceRuntime(spec, *reading_of(deploy, spec.name), wake, bad_record, tools, schemas)

    def make_sink(self, spec: SinkOperator, deploy: Deploy, wake: Callable[[], None]) -> SinkRuntime:
        """Returns a sink subtask that writes to Kafka."""
        placement = SinkPlacement(
            pipeline=deploy.plan.pipeline,
            subtask=deploy.slot,
            attempt=deploy.attempt,
            transaction_timeout_ms=deploy.settings.transaction_timeout_ms,
            journal=deploy.journal,
            exactly_once=deploy.plan.exactly_once,
            interval_ms=deploy.settings.checkpoint_interval_ms,
            max_concurrent=deploy.settings.max_concurrent,
        )
        return SinkRuntime(spec, placement, wake, tools=self.tools, masked=deploy.plan.masked)

    def open_reader(self, origins: Sequence[Origin], name: str, wake: Callable[[], None]) -> Caller:
        """Returns the reader that reads single records back."""
        return RecordReader(origins, name, wake)

    def log_bad_record(self, policy: BadRecordPolicy, where: str, count: int) -> None:
        """Logs a record that was omitted, with its place and the reason; `count` is the number for this
        reason so far.
        """
        if count <= BAD_RECORDS_LOGGED or str(count).rstrip("0") == "1":
            done = "dead letter" if policy is BadRecordPolicy.DEAD_LETTER else "skipped"
            logger.warning("%s: %s (%d so far for this reason)", done, where, count)


def reading_of(deploy: Deploy, source: OperatorName) -> tuple[Sequence[TopicPartition], SourcePositions, str]:
    """Returns the partitions that a source reads here, where it continues, and its consumer group."""
    return deploy.partitions.get(source, ()), positions_of(deploy, source), deploy.settings.group_id


def positions_of(deploy: Deploy, source: OperatorName) -> SourcePositions:
    """Returns the restored positions of one source; empty if no checkpoint knows any of its partitions here."""
    for positions in deploy.positions:
        if positions.source == source:
            return positions
    return SourcePositions(source, ())
