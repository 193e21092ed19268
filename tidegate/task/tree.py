"""The operators of one vertex as they hand rows and event time to each other: a tree of direct calls, no queue.

Rows and control elements keep their order on every way out, because a call returns when all that is downstream in the
vertex has seen what it carries.
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
from tidegate.task.elements import StreamStatus, TimeControl, Watermark
from tidegate.task.meter import OperatorMeter
from tidegate.task.outputs import EdgeOutput

if TYPE_CHECKING:
    import polars as pl

    Failed = Callable[[PlanOperator, pl.DataFrame, Sequence[RecordFailure]], pl.DataFrame | None]
    """Rows that an operator could not process; the letters about them, where there are to be any."""


class OperatorTree:
    """See the module. `outs[i]` is where the results of node i go."""

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
        self._givers = {edge: out for out in self.outs for edge in out.timed_edges}

    def is_idle(self, edge: int) -> bool:
        """Whether what leaves by this edge has been declared idle."""
        giver = self._givers.get(edge)
        return giver is not None and giver.idle

    def deliver(self, node: int, way: OutputPath, batch: pl.DataFrame) -> None:
        """Rows of a node, depth first: their order is the order of arrival on every way out."""
        self.meter.gave(node, batch.height)
        for child in way.children:
            self._runtimes[child].process(0, batch, self.outs[child])
            self.meter.took(child, batch.height)
        for edge in way.edges:
            self._outputs[edge].emit(batch)

    def send_dead_letters(self, node: int, way: OutputPath, letters: pl.DataFrame) -> None:
        """About records that failed: they are no rows of the node, and what it has to do itself goes on."""
        for edge in way.edges:
            self._outputs[edge].emit(letters)
        self.meter.spent(node)

    def pass_on(self, node: int, control: TimeControl, children: Sequence[int], edges: Sequence[int]) -> None:
        """An element of event time of a node, to all that is downstream of it (W04)."""
        self.meter.spent(node)
        for child in children:
            self.hand(child, control)
        for edge in edges:
            self._outputs[edge].broadcast(control)

    def hand(self, node: int, control: TimeControl) -> None:
        """To one node."""
        if isinstance(control, Watermark):
            self._runtimes[node].on_watermark(control.time_ms, self.outs[node])
        else:
            self._runtimes[node].on_status(control.idle, self.outs[node])
        self.meter.spent(node)


class NodeOut(Out):
    """See Out. `idle` while the node has said that it is."""

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

    @property
    def timed_edges(self) -> Sequence[int]:
        """Edges that event time leaves by."""
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
    def fail(self, batch: pl.DataFrame, failures: Sequence[RecordFailure]) -> None:
        self._tree.meter.failed(self._index, len(failures))
        letters = self._tree.failed(self._operator, batch, failures)
        if letters is not None:
            self.side(DEAD, letters)

    def watermark(self, time_ms: int) -> None:
        """W03: noted always, sent on only while active."""
        self._tree.meter.reached(self._index, time_ms)
        if not self.idle:
            self._tree.pass_on(self._index, Watermark(time_ms), *self._everywhere)

    def status(self, idle: bool) -> None:
        """Only changes are sent on."""
        if idle != self.idle:
            self.idle = self._tree.meter.counts[self._index].idle = idle
            self._tree.pass_on(self._index, StreamStatus(idle), *self._everywhere)

    def _deliver(self, way: OutputPath, batch: pl.DataFrame) -> None:
        """No rows come from an idle one (W05): what it emits all the same, by the clock, makes it active meanwhile."""
        if not self.idle:
            self._tree.deliver(self._index, way, batch)
            return
        self.status(idle=False)
        self._tree.deliver(self._index, way, batch)
        self.status(idle=True)
