"""Turns a Deploy message into running subtasks, and ends them.

Imported only in slots and where they are forked from, since it imports Polars and the Kafka client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import msgspec

from tidegate.expressions.secrets import reveal_secrets
from tidegate.operators.builtin.dead_letters import DeadLetterOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.plan.origins import derive_origins
from tidegate.slot.parts import SlotParts
from tidegate.slot.reporting import SlotReporter
from tidegate.slot.restored_files import RestoredFiles
from tidegate.slot.schemas import SlotSchemas
from tidegate.slot.subtasks import Subtasks
from tidegate.slot.wiring import Wiring
from tidegate.storage.shared import Proof
from tidegate.task.dead_letter_limit import DeadLetterCount
from tidegate.task.inflight import derive_shapes
from tidegate.task.loop import LoopClock, SlotLoop
from tidegate.task.messages import Acknowledged, Completed, Deploy, SlotMessage
from tidegate.user_code.modules import install_modules
from tidegate.user_code.wheels import install_wheels

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_S: Final = 5.0


def _with_keys(plan: Plan) -> Plan:
    """Returns the plan with the keys in its expressions. The daemon produces anything shown or written of the plan."""
    if not plan.secrets:
        return plan
    return msgspec.structs.replace(plan, vertices=reveal_secrets(plan.vertices, plan.secrets))


class Deployment:
    """The work of one slot. `open` builds and starts everything; `close` ends it."""

    def __init__(
        self,
        deploy: Deploy,
        clock: LoopClock,
        send: Callable[[SlotMessage], None],
        wake: Callable[[], None],
        parts: SlotParts | None = None,
        host: str = "",
    ) -> None:
        """`host` is the name of this slot's machine, for messages."""
        self._host = host
        deploy = msgspec.structs.replace(deploy, plan=_with_keys(deploy.plan))
        plan = deploy.plan
        self._deploy = deploy
        self._send = send
        self._parts = SlotParts() if parts is None else parts
        self._storage = self._parts.open_storage(deploy.settings)
        self._copies = self._parts.open_copies(deploy)
        self._files = RestoredFiles(self._storage, self._copies)
        self.uploads = self._parts.make_uploads(self._storage, wake)
        self.uploads.copies = self._copies
        self.loop = SlotLoop(
            plan.pipeline, deploy.attempt, clock, self._answer, self.uploads.submit, self._parts.log_bad_record
        )
        self.loop.origins = derive_origins(plan)
        self.loop.shapes = derive_shapes(plan)
        for letters in plan.operators(DeadLetterOperator):
            self.loop.letters = DeadLetterCount(letters.per_minute_max)
        named = [
            one.schema for source in plan.operators(SourceOperator) for one in (source.options, source.key_options)
        ]
        self.schemas = SlotSchemas([one for one in named if one is not None], send)
        self.wiring = Wiring(plan, deploy.slot, self._parts.input_channel, self._parts.remote_output)
        self.subtasks = Subtasks(deploy, self._parts, self._files, self.wiring, self.loop, self.schemas, wake)
        self.reporter = SlotReporter(self.loop, self.subtasks, self.wiring)

    def open(self) -> None:
        """Builds all subtasks of this slot, upstream channels first, and restores their state."""
        plan = self._deploy.plan
        proof = Proof(self._storage, self._deploy.attempt, self._deploy.proof, self._parts.tools.clock)
        proof.answer(self._deploy.slot, self._host)
        self.subtasks.code = self._parts.open_code(self._storage, plan)
        install_wheels(self.subtasks.code.wheels)
        install_modules(plan.modules)
        for vertex in plan.vertices:
            self.loop.tasks.append(self.subtasks.build(vertex))
        self.subtasks.wait_ready()
        self._copies.restored([one.path for one in self._deploy.states])
        if self._files.copied_bytes:
            logger.info(
                "state restored: %d bytes from copies on this machine, %d from %s",
                self._files.copied_bytes,
                self._files.fetched_bytes,
                self._storage.location,
            )

    def on_completed(self, completed: Completed) -> None:
        """Notifies the loop and the copies of a completed checkpoint."""
        self.loop.on_completed(completed)
        if completed.attempt == self._deploy.attempt:
            self._copies.completed(completed.checkpoint)

    def close(self) -> None:
        """Closes sources first, so that no new records arrive; prepared transactions stay prepared."""
        with ExitStack() as closing:  # in reverse: a failure to close leaves nothing else open
            closing.callback(self.subtasks.code.close)
            closing.callback(self.subtasks.close_states)
            closing.callback(self._copies.close)
            closing.callback(self.uploads.close, CLOSE_TIMEOUT_S)
            closing.callback(self.subtasks.close)

    def _answer(self, message: SlotMessage) -> None:
        if isinstance(message, Acknowledged):
            self._copies.acknowledged(message.ack.checkpoint, [state.path for state in message.ack.states])
        self._send(message)
