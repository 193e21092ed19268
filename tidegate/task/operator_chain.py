"""The operators of a vertex in one subtask: sources, steps and sinks that pass rows to each other by direct calls.

The chain is called with one batch, watermark or status at a time and returns when everything downstream in the vertex
has processed it. It knows nothing of channels and barriers (`input_gate.py`, `vertex.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tidegate.ids import CheckpointId, StateId, TransactionalId
from tidegate.operators.runtime import END_OF_TIME, ROWS_MAX, BatchTooLarge, OperatorRuntime
from tidegate.operators.spec import Columns
from tidegate.plan.graph import Vertex
from tidegate.plan.growth import BatchLimits
from tidegate.plan.taps import TapPoint
from tidegate.task.elements import Batch, CatchUpMarker, Control, TimeControl
from tidegate.task.meter import OperatorMeter
from tidegate.task.outputs import EdgeOutput
from tidegate.task.ports import OperatorState, Sink, Source, StateCapture
from tidegate.task.tree import NodeOut, OperatorTree

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from tidegate.task.tree import Failed

CALL_MS: Final = 50.0
STALL_MS: Final = 500.0
MEMORY: Final = 0.8
"""Factor by which the weight of a call shrinks with each later call."""
TRIAL: Final = 16
"""Number of one-row calls after which two rows are tried."""
ORIGIN: Final = 0.1
"""Weight of the point (0 rows, 0 ms), the only other known point while all calls have the same number of rows."""


class BatchPacer:
    """Limits the rows that a subtask takes at a time, so that a barrier never waits long for one batch. Pure.

    A call of the head of a vertex lasts as long as the batch takes to pass through the vertex. When two consecutive
    calls exceed `CALL_MS`, the next one gets fewer rows. One long call is not enough: it may only mean that the process
    was not scheduled for a moment. Much shorter calls let the limit grow again.

    Only the time per additional row counts: the slope of a line through the recent calls. A call has a fixed cost
    whatever its rows are, and on a machine with too little CPU the fixed cost alone may exceed `CALL_MS`. Fewer rows
    would then shorten no call and only slow the subtask down. A call of `STALL_MS` or more is always attributed to its
    rows. If this reduces the limit to one row, a call with two rows is tried now and then, since calls of one size
    reveal no slope.
    """

    def __init__(self) -> None:
        self.rows = ROWS_MAX
        """The maximum number of rows at a time; at least 1."""
        self._long = False
        self._single = 0
        """Calls since the limit became one row."""
        self._forget()

    def observe(self, rows: int, elapsed_ms: float) -> None:
        """Records the number of rows and the duration of a call."""
        if elapsed_ms >= STALL_MS:
            self._forget()
        row_ms = self._row_ms(rows, elapsed_ms)
        before, self._long = self._long, elapsed_ms > CALL_MS
        long = before and self._long
        self._single = self._single + 1 if self.rows == 1 else 0
        if self._single == TRIAL:
            self.rows = 2
        elif long and row_ms * self.rows > CALL_MS:
            self.rows = max(1, int(CALL_MS / row_ms))
        elif (long or elapsed_ms + row_ms * rows < CALL_MS) and rows >= self.rows:
            self.rows = min(ROWS_MAX, self.rows * 2)

    def _forget(self) -> None:
        self._calls = self._sum_rows = self._sum_ms = self._sum_squares = self._sum_products = 0.0

    def _row_ms(self, rows: int, elapsed_ms: float) -> float:
        """Returns the time per additional row: the slope of the least-squares line."""
        self._calls = self._calls * MEMORY + 1
        self._sum_rows = self._sum_rows * MEMORY + rows
        self._sum_ms = self._sum_ms * MEMORY + elapsed_ms
        self._sum_squares = self._sum_squares * MEMORY + rows * rows
        self._sum_products = self._sum_products * MEMORY + rows * elapsed_ms
        points = self._calls + ORIGIN
        rise = points * self._sum_products - self._sum_rows * self._sum_ms
        run = points * self._sum_squares - self._sum_rows * self._sum_rows
        return max(0.0, min(rise / run, elapsed_ms / rows))


class Runtimes(NamedTuple):
    """The runtime of every node of a vertex; operators and sinks by the index of their node."""

    source: Source | None = None
    operators: Mapping[int, OperatorRuntime] = {}
    sinks: Mapping[int, Sink] = {}


class OperatorChain:
    """The runtimes of a vertex in one subtask. `limits` bounds one call; a source observes the byte limit itself."""

    def __init__(
        self,
        vertex: Vertex,
        runtimes: Runtimes,
        outputs: Mapping[int, EdgeOutput],
        limits: BatchLimits,
        elapsed_ms: Callable[[], float],
        failed: Failed,
    ) -> None:
        self.source, self.operators, self.sinks = runtimes
        self.outputs = outputs
        self.limits = limits
        self.pace = BatchPacer()
        self.states: Mapping[StateId, OperatorState] = {
            StateId(vertex.nodes[index].operator.name, name): state
            for index, operator in self.operators.items()
            for name, state in operator.states.items()
        }
        self.meter = OperatorMeter([node.operator.REST for node in vertex.nodes], elapsed_ms)
        heads = {} if self.source is None else {0: self.source}
        self._runtimes: Mapping[int, OperatorRuntime] = {**heads, **self.operators, **self.sinks}
        self._timed = _overriding(self._runtimes, "next_deadline_ms")
        self._bounded = _overriding(self._runtimes, "room")
        self._vertex = vertex
        self._tree = OperatorTree(vertex, self._runtimes, outputs, self.meter, failed)
        self._polled = _overriding(self.operators, "poll")
        self._after = {index: [*self._bounded_after(vertex, index)] for index in self._runtimes}

    # -- room and time -------------------------------------------------------------------------------------------------

    @property
    def writable(self) -> bool:
        """Whether every output of the vertex accepts rows."""
        return all(output.writable for output in self.outputs.values())

    @property
    def room(self) -> int:
        """Rows that may be processed next, few enough that no barrier waits long for them; 0 while an output is full.

        A batch for a sink that is nearly full is split: a barrier can overtake what is queued in a channel, but a sink
        must send everything it was given first.
        """
        if not self.writable:
            return 0
        return min(self.limits.rows, self.pace.rows, *[runtime.room for runtime in self._bounded.values()])

    @property
    def settled(self) -> bool:
        """Whether everything due has been emitted; a final barrier waits for this."""
        return all(runtime.settled for runtime in self._runtimes.values())

    @property
    def deadlines_ms(self) -> list[int | None]:
        """When each operator with timed work next has some even if no row arrives, ms since 1970."""
        return [runtime.next_deadline_ms for runtime in self._timed.values()]

    def is_idle(self, edge: int) -> bool:
        """Whether the operator that feeds this edge has declared itself idle."""
        return self._tree.is_idle(edge)

    @property
    def has_ended(self) -> bool:
        """Whether the head has passed on the end of event time."""
        return self.meter.counts[0].watermark_ms == END_OF_TIME

    def stop_source(self) -> None:
        """Stops the source: it emits nothing more, not even on a timer."""
        self._timed = {index: one for index, one in self._timed.items() if one is not self.source}

    # -- rows and event time -------------------------------------------------------------------------------------------

    @property
    def head_out(self) -> NodeOut:
        """The outputs of the head."""
        return self._tree.outs[0]

    def tap(self, tap: int, point: TapPoint, take: Callable[[Columns, pl.DataFrame], None]) -> None:
        """Begins a tap on an output of a node; `take` gets the columns to show and each batch."""
        kinds = self._vertex.nodes[point.node].operator.output_columns(point.output)
        columns = tuple(column for column in kinds if column[0] in point.columns)
        self._tree.outs[point.node].tap(tap, point.output, partial(take, columns))

    def end_tap(self, tap: int) -> None:
        """Ends a tap."""
        for out in self._tree.outs:
            out.end_tap(tap)

    def process(self, port: int, batch: Batch, node: int = 0) -> Sequence[Batch]:
        """Passes a batch to the head, or to another node. Returns the parts whose results have no room, the newest rows
        first.
        """
        started = self.meter.begin()
        left: list[Batch] = []
        while True:
            try:
                self._runtimes[node].process(port, batch.frame, self._tree.outs[node])
            except BatchTooLarge:
                batch, rest = batch.split(batch.frame.height // 2)
                left.append(rest)
            else:
                ended = self.meter.took(node, batch.frame.height, port)
                self.pace.observe(batch.frame.height, ended - started)
                return left

    def pass_to_head(self, control: TimeControl | CatchUpMarker) -> None:
        """Passes event time or the marker of catching up to the head."""
        self.meter.begin()
        self._tree.pass_to(0, control)

    def poll_operators(self) -> bool:
        """Emits what operators have received from outside and what they still have to emit."""
        moved = False
        if self._polled:
            self.meter.begin()
        for index, runtime in self._polled.items():
            rows = self._room_after(index)
            if rows and runtime.poll(rows, self._tree.outs[index]):
                self.meter.spent(index)
                moved = True
        self._tree.catch_up()
        return moved

    def on_time(self, now_ms: int) -> bool:
        """Runs the operators that are due. Returns True if one has more to do at once."""
        more = False
        for index, runtime in self._timed.items():
            due_ms = runtime.next_deadline_ms
            if due_ms is not None and due_ms <= now_ms and self._room_after(index):
                self.meter.begin()
                more |= runtime.on_time(now_ms, self._tree.outs[index])
                self.meter.spent(index)
        return more

    def broadcast(self, control: Control) -> None:
        """Sends a control element to every output of the vertex."""
        for output in self.outputs.values():
            output.broadcast(control)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def capture(self, checkpoint: CheckpointId, *, full: bool) -> dict[StateId, StateCapture]:
        """Takes the synchronous part of the snapshot of every state."""
        for runtime in self.operators.values():
            runtime.before_snapshot()
        return {one: state.capture(checkpoint, full=full) for one, state in self.states.items()}

    def prepare(self, checkpoint: CheckpointId, *, final: bool) -> None:
        """Prepares the transactions of every sink."""
        for sink in self.sinks.values():
            sink.prepare(checkpoint, final=final)

    def complete(self, checkpoint: CheckpointId, released: frozenset[TransactionalId]) -> None:
        """Handles a checkpoint that is in the journal; `released` as in Completed."""
        for state in self.states.values():
            state.completed(checkpoint)
        for sink in self.sinks.values():
            sink.completed(checkpoint, released)

    # -- shape ---------------------------------------------------------------------------------------------------------

    def _bounded_after(self, vertex: Vertex, index: int) -> Iterator[OperatorRuntime]:
        """Yields the runtimes with a room of their own that receive what a node emits."""
        for child in vertex.nodes[index].all_children:
            if child in self._bounded:
                yield self._bounded[child]
            yield from self._bounded_after(vertex, child)

    def _room_after(self, index: int) -> int:
        """Returns how many rows an operator may emit by itself.

        Its own room does not count: an operator that is full must emit, or it would stay full forever.
        """
        if not self.writable:
            return 0
        return min(self.limits.rows, self.pace.rows, *[runtime.room for runtime in self._after[index]])


def _overriding(runtimes: Mapping[int, OperatorRuntime], name: str) -> dict[int, OperatorRuntime]:
    """Returns the runtimes that override a method or property. The others need not be asked in each turn."""
    default = getattr(OperatorRuntime, name)
    return {index: one for index, one in runtimes.items() if getattr(type(one), name) is not default}
