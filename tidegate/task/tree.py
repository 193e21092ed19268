"""The operators of one vertex, which pass rows and event time to each other: a tree of direct calls, no queue.

Rows and control elements keep their order on every output, because a call returns only when everything downstream in
the vertex has processed what it carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from tidegate.formats.failures import RecordFailure
from tidegate.operators.runtime import OperatorRuntime, Out
from tidegate.operators.spec import DEAD
from tidegate.operators.spec import Operator as PlanOperator
from tidegate.plan.graph import Node, OutputPath, Vertex
from tidegate.task.elements import CatchUpMarker, StreamStatus, TimeControl, Watermark
from tidegate.task.meter import OperatorMeter
from tidegate.task.outputs import EdgeOutput

if TYPE_CHECKING:
    import polars as pl

    Failed = Callable[[PlanOperator, pl.DataFrame, Sequence[RecordFailure], int | None], pl.DataFrame | None]
    """Takes rows of a port, or results, that failed; returns the dead letters to write about them, if any."""
    Take = Callable[[pl.DataFrame], None]
    """Takes a copy of a batch; see `tap.py`."""


class OperatorTree:
    """The tree of calls in one vertex. `outs[i]` holds the outputs of node i."""

    def __init__(
        self,
        vertex: Vertex,
        runtimes: Mapping[int, OperatorRuntime],
        outputs: Mapping[int, EdgeOutput],
        meter: OperatorMeter,
        failed: Failed,
    ) -> None:
        self.outs = [NodeOut(self, index, node) for index, node in enumerate(vertex.nodes)]
        self.meter = meter
        self.failed = failed
        self._runtimes = runtimes
        self._outputs = outputs
        self._catching_up: list[int] = []
        """Nodes that still have to pass on that they have caught up."""
        self._feeders = {edge: out for out in self.outs for edge in out.timed_edges}

    def is_idle(self, edge: int) -> bool:
        """Returns whether the operator that feeds this edge has declared itself idle."""
        feeder = self._feeders.get(edge)
        return feeder is not None and feeder.idle

    def deliver(self, node: int, way: OutputPath, batch: pl.DataFrame) -> None:
        """Delivers rows of a node depth first: on every output, rows keep the order of arrival."""
        self.meter.gave(node, batch.height)
        for child in way.children:
            self._runtimes[child].process(0, batch, self.outs[child])
            self.meter.took(child, batch.height)
        for edge in way.edges:
            self._outputs[edge].emit(batch)

    def send_dead_letters(self, node: int, way: OutputPath, letters: pl.DataFrame) -> None:
        """Sends dead letters. They are not rows of the node, whose own work continues."""
        for edge in way.edges:
            self._outputs[edge].emit(letters)
        self.meter.spent(node)

    def pass_on(
        self, node: int, control: TimeControl | CatchUpMarker, children: Sequence[int], edges: Sequence[int]
    ) -> None:
        """Passes event time or the marker of catching up from a node to everything downstream of it (W04)."""
        self.meter.spent(node)
        for child in children:
            self.pass_to(child, control)
        for edge in edges:
            self._outputs[edge].broadcast(control)

    def pass_to(self, node: int, control: TimeControl | CatchUpMarker) -> None:
        """Passes event time or the marker of catching up to one node."""
        if isinstance(control, Watermark):
            self._runtimes[node].on_watermark(control.time_ms, self.outs[node])
        elif isinstance(control, StreamStatus):
            self._runtimes[node].on_status(control.idle, self.outs[node])
        elif not self._runtimes[node].on_caught_up(self.outs[node]):
            self._catching_up.append(node)
        self.meter.spent(node)

    def catch_up(self) -> None:
        """Asks the nodes again that had more to emit before they could pass on that they have caught up."""
        if self._catching_up:
            waiting, self._catching_up = self._catching_up, []
            for node in waiting:
                self.pass_to(node, CatchUpMarker())


class NodeOut(Out):
    """The outputs of one node. `idle` is set while the node has declared itself idle."""

    def __init__(self, tree: OperatorTree, index: int, node: Node) -> None:
        self._tree = tree
        self._index = index
        self._operator = node.operator
        self._main = OutputPath(node.children, node.edges)
        self._sides = node.sides
        timed = [OutputPath(node.children, node.edges), *(way for side, way in node.sides.items() if side != DEAD)]
        self._everywhere = (
            tuple(dict.fromkeys(child for way in timed for child in way.children)),
            tuple(dict.fromkeys(edge for way in timed for edge in way.edges)),
        )
        self.idle = False
        self._taps: Mapping[OutputPath, Mapping[int, Take]] | None = None
        """By output, what takes copies of its rows; None while nothing does."""

    def tap(self, tap: int, output: str, take: Take) -> None:
        """Passes batches of an output (empty: the main one) to `take`, too, before they are delivered."""
        way = self._sides[output] if output else self._main
        taps = self._taps or {}
        self._taps = {**taps, way: {**taps.get(way, {}), tap: take}}

    def end_tap(self, tap: int) -> None:
        """Ends a tap on all outputs of the node."""
        left = {way: {one: take for one, take in of.items() if one != tap} for way, of in (self._taps or {}).items()}
        self._taps = {way: of for way, of in left.items() if of} or None

    @property
    def timed_edges(self) -> Sequence[int]:
        """Edges that carry the node's event time."""
        return self._everywhere[1]

    @override
    def emit(self, batch: pl.DataFrame) -> None:
        if batch.height:
            self._deliver(self._main, batch)

    @override
    def side(self, name: str, batch: pl.DataFrame) -> None:
        way = self._sides.get(name)
        if way is None or not batch.height:
            return
        if name == DEAD:
            self._tree.send_dead_letters(self._index, way, batch)
        else:
            self._deliver(way, batch)

    @override
    def fail(self, batch: pl.DataFrame, failures: Sequence[RecordFailure], port: int | None = 0) -> None:
        self._tree.meter.failed(self._index, len(failures), port or 0)
        letters = self._tree.failed(self._operator, batch, failures, port)
        if letters is not None:
            self.side(DEAD, letters)

    def watermark(self, time_ms: int) -> None:
        """Records the watermark always, and sends it on only while active (W03)."""
        self._tree.meter.reached(self._index, time_ms)
        if not self.idle:
            self._tree.pass_on(self._index, Watermark(time_ms), *self._everywhere)

    def status(self, idle: bool) -> None:
        """Sends on only changes of status."""
        if idle != self.idle:
            self.idle = self._tree.meter.counts[self._index].idle = idle
            self._tree.pass_on(self._index, StreamStatus(idle), *self._everywhere)

    @override
    def caught_up(self) -> None:
        self._tree.pass_on(self._index, CatchUpMarker(), *self._everywhere)

    def _deliver(self, way: OutputPath, batch: pl.DataFrame) -> None:
        """Delivers rows. An idle node emits none (W05), so one that emits on a timer is made active for the
        delivery.
        """
        if self._taps is not None:
            for take in self._taps.get(way, {}).values():
                take(batch)
        if not self.idle:
            self._tree.deliver(self._index, way, batch)
            return
        self.status(idle=False)
        self._tree.deliver(self._index, way, batch)
        self.status(idle=True)
