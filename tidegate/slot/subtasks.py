"""Builds the subtasks of one slot with their channels and restored state, and closes their resources."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

import msgspec

from tidegate.config.fields.counts import render_count
from tidegate.coordinator.types import StateHandle
from tidegate.formats.schemas import Schemas
from tidegate.ids import SlotIndex, StateId, SubtaskId, VertexId
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.runtime import OperatorRuntime
from tidegate.operators.spec import Slot, StepOperator
from tidegate.plan.assignment import key_group_range
from tidegate.plan.evolving import evolve
from tidegate.plan.graph import Edge, Node, Plan, Vertex
from tidegate.plan.growth import BatchLimits, derive_batch_limits
from tidegate.sinks.runtime import SinkRuntime
from tidegate.slot.copies import RestoredFiles
from tidegate.slot.parts import SlotParts
from tidegate.sources.runtime import SourceRuntime
from tidegate.state.base import Share
from tidegate.task.barriers.choice import choose_handler, may_overtake
from tidegate.task.channels import InputChannel, LocalOutput, OutputChannel, RemoteOutput
from tidegate.task.elements import Batch
from tidegate.task.inflight import read_replay
from tidegate.task.input_gate import InputGate
from tidegate.task.loop import SlotLoop
from tidegate.task.messages import Deploy
from tidegate.task.operator_chain import Runtimes
from tidegate.task.outputs import EdgeOutput
from tidegate.task.ports import OperatorState, Sink
from tidegate.task.restore import as_declared, restore_states
from tidegate.task.vertex import VertexTask
from tidegate.user_code.files import NO_FILES, CodeFiles

logger = logging.getLogger(__name__)


class Wiring:
    """The channels of one slot. Creates all inputs at once, since a subtask writes directly into those of
    its own slot.
    """

    def __init__(
        self,
        plan: Plan,
        slot: SlotIndex,
        make_input: Callable[[int], InputChannel],
        make_remote_output: Callable[[int], RemoteOutput],
    ) -> None:
        """The functions are those of SlotParts."""
        self.remote_inputs: dict[tuple[int, int], InputChannel] = {}
        """By sender and edge."""
        self.remote_outputs: dict[int, dict[int, RemoteOutput]] = {}
        """By receiver and edge."""
        self._plan = plan
        self._slot = int(slot)
        self._make_input = make_input
        self._make_remote_output = make_remote_output
        self._local: dict[int, InputChannel] = {}
        self._inputs = {
            vertex.id: [
                self._open_input(edge, sender) for edge in plan.inputs_of(vertex.id) for sender in self._ends(edge)
            ]
            for vertex in plan.vertices
        }

    def inputs_of(self, vertex: VertexId) -> Sequence[InputChannel]:
        """Returns the channels that lead to the subtask of a vertex, edge by edge, by sender."""
        return self._inputs[vertex]

    def open_output(self, edge: Edge) -> EdgeOutput:
        """Creates the sending ends of an edge."""
        channels: list[OutputChannel] = []
        for receiver in self._ends(edge):
            if receiver == self._slot:
                channels.append(LocalOutput(self._local[edge.index]))
            else:
                output = self._make_remote_output(edge.index)
                self.remote_outputs.setdefault(receiver, {})[edge.index] = output
                channels.append(output)
        return EdgeOutput(edge, channels, self._plan.max_parallelism)

    @property
    def queued(self) -> int:
        """Elements queued in front of subtasks. Safe from any thread."""
        return sum(len(channel) for channels in self._inputs.values() for channel in channels)

    def _ends(self, edge: Edge) -> Sequence[int]:
        """Returns the slots at the other end of an edge."""
        return range(self._plan.parallelism) if edge.keys else [self._slot]

    def _open_input(self, edge: Edge, sender: int) -> InputChannel:
        channel = self._make_input(edge.index)
        if sender == self._slot:
            self._local[edge.index] = channel
        else:
            self.remote_inputs[sender, edge.index] = channel
        return channel


SOURCE_TIMEOUT_S: Final = 60.0


class Subtasks:
    """The subtasks of one slot. `loop` drives them."""

    def __init__(
        self,
        deploy: Deploy,
        parts: SlotParts,
        files: RestoredFiles,
        wiring: Wiring,
        loop: SlotLoop,
        schemas: Schemas,
        wake: Callable[[], None],
    ) -> None:
        self.sources: list[SourceRuntime] = []
        self.sinks: list[SinkRuntime] = []
        self.states: dict[StateId, OperatorState] = {}
        self.code: CodeFiles = NO_FILES
        """The files of `code:`; set before the first subtask is built."""
        self._operators: list[OperatorRuntime] = []
        self._deploy = deploy
        self._parts = parts
        self._files = files
        self._wiring = wiring
        self._loop = loop
        self._schemas = schemas
        self._wake = wake
        settings = deploy.settings
        self._open_state = parts.choose_backend(settings.state_backend, settings.checkpoints_retained)

    def build(self, vertex: Vertex) -> VertexTask:
        """Builds the subtask of a vertex: its operators with their state, its channels, its rows in flight."""
        plan = self._deploy.plan
        operators: dict[int, OperatorRuntime] = {}
        sinks: dict[int, Sink] = {}
        source: SourceRuntime | None = None
        limits = derive_batch_limits(plan, vertex)
        for index, node in enumerate(vertex.nodes):
            match node.operator:
                case SourceOperator() as spec:
                    source = self._build_source(spec, limits)
                case SinkOperator() as spec:
                    sinks[index] = self._build_sink(spec)
                case _:
                    operators[index] = self._build_operator(node, limits)
        return VertexTask(
            vertex,
            SubtaskId(vertex.id, self._deploy.slot),
            self._loop,
            Runtimes(source, operators, sinks),
            {edge: self._wiring.open_output(plan.edges[edge]) for node in vertex.nodes for edge in node.all_edges},
            self._build_inputs(vertex) if plan.inputs_of(vertex.id) else None,
            limits,
        )

    def wait_ready(self) -> None:
        """Waits until every source knows its positions."""
        for source in self.sources:
            source.wait_ready(SOURCE_TIMEOUT_S)

    def close(self) -> None:
        """Closes sources first, so that no new records arrive; prepared transactions stay prepared."""
        with ExitStack() as closing:  # in reverse: a failure to close leaves nothing else open
            for sink in self.sinks:
                closing.callback(sink.close)
            for sink in self.sinks:
                closing.callback(sink.begin_close)
            for one in (*self._operators, *self.sources):
                closing.callback(one.close)

    def close_states(self) -> None:
        """Closes the states. Call it when no captured state is still to be uploaded."""
        with ExitStack() as closing:
            for state in self.states.values():
                closing.callback(state.close)

    def _build_inputs(self, vertex: Vertex) -> InputGate:
        plan, settings = self._deploy.plan, self._deploy.settings
        edges, channels = plan.inputs_of(vertex.id), self._wiring.inputs_of(vertex.id)
        unaligned = settings.unaligned_after_ms is not None and may_overtake(edges)
        handler = choose_handler(exactly_once=plan.exactly_once, unaligned=unaligned, channels=len(channels))
        return InputGate(channels, edges, handler, self.restore_inflight(vertex))

    def _build_source(self, spec: SourceOperator, limits: BatchLimits) -> SourceRuntime:
        source = self._parts.make_source(spec, self._deploy, self._wake, self._loop.bad_record, self._schemas)
        source.batch_bytes_max = limits.size_bytes
        self.sources.append(source)
        return source

    def _build_sink(self, spec: SinkOperator) -> SinkRuntime:
        sink = self._parts.make_sink(spec, self._deploy, self._wake)
        sink.open()
        self.sinks.append(sink)
        return sink

    def _build_operator(self, node: Node, limits: BatchLimits) -> OperatorRuntime:
        """Builds an operator with its restored state: the key groups of this subtask, and its share of lists."""
        deploy = self._deploy
        if not isinstance(node.operator, StepOperator):
            raise TypeError(f"{node.operator.kind} {node.operator.name} is not an operator of a slot's chain")
        plan, name = deploy.plan, node.operator.name
        operator = node.operator.open(
            Slot(
                plan.max_parallelism,
                self._open_state,
                self._key_groups,
                subtask=int(deploy.slot),
                parallelism=plan.parallelism,
                now_ms=self._loop.now_ms,
                wake=self._wake,
                open_caller=self._parts.open_caller,
                open_reader=self._parts.open_reader,
                files=self.code.path,
                rows_max=limits.rows,
                bytes_max=limits.size_bytes,
            )
        )
        self._operators.append(operator)
        for state, held in operator.states.items():
            self.states[StateId(name, state)] = held
        share = Share(self._key_groups, deploy.slot, plan.parallelism)
        directive, renamed = plan.directives.get(name), name in deploy.renamed
        evolved = partial(evolve, directive=directive, renamed=renamed) if directive is not None else as_declared
        same = bool(deploy.base)
        files = restore_states(
            name, operator.states, deploy.states, self._read_parts, share, evolved, same_key_groups=same
        )
        if files:
            count = ", ".join(f"{len(state)} in {one}" for one, state in operator.states.items())
            logger.info("state of %s restored from %s: %s", name, render_count(files, "file"), count)
        return operator

    @property
    def _key_groups(self) -> range:
        return key_group_range(self._deploy.slot, self._deploy.plan.parallelism, self._deploy.plan.max_parallelism)

    def restore_inflight(self, vertex: Vertex) -> list[tuple[int, Batch]]:
        """Returns the rows in flight towards the subtask (B50).

        Rows already received come first, then rows still at their senders.
        """
        inputs = {edge.index for edge in self._deploy.plan.inputs_of(vertex.id)}
        former = self._deploy.former_edges
        shapes = {
            index: msgspec.structs.replace(shape, name=former.get(shape.name, shape.name))
            for index, shape in self._loop.shapes.items()
            if index in inputs
        }
        pieces = read_replay(self._deploy.states, self._files.read_state, shapes, self._key_groups)
        if pieces:
            rows = sum(batch.frame.height for _, batch in pieces)
            logger.info("%s in flight towards %s restored", render_count(rows, "row"), vertex.id)
        return pieces

    def _read_parts(self, handle: StateHandle) -> Iterator[bytes]:
        return self._files.read_parts(handle, self._key_groups)
