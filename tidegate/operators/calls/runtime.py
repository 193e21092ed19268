"""The operator of `async` and `http`: rows go into a queue, are requested outside, and leave with their answers.

`process` starts calls and returns. Results come back by `poll`, or with the next watermark (W26), one batch per turn
(W28). Waiting rows are in the checkpoint, with the system columns. After a restore they are requested again in their
order, before anything new.

Their subtask is stored with them. With unchanged parallelism, a subtask gets its own rows back. After a change, all
rows of a former subtask go to one subtask, in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Protocol, cast

import polars as pl
from typing_extensions import override

from tidegate.formats.arrow import encode_frame
from tidegate.formats.contract import Decoded
from tidegate.formats.failures import RecordFailure
from tidegate.operators.async_queue import (
    CallFailure,
    CallQueue,
    CaughtUpMark,
    Mark,
    PendingCall,
    StatusMark,
    WatermarkMark,
)
from tidegate.operators.calls.caller import Caller, CallTarget, ThreadCaller
from tidegate.operators.calls.spec import IN_FLIGHT, CallOperator
from tidegate.operators.rowwise import without_failed
from tidegate.operators.runtime import OperatorRuntime, OperatorState, Out, system_columns
from tidegate.operators.spec import Slot
from tidegate.state.operator_list import OperatorList

TURN_ROWS: Final = 1000
"""How many rows a watermark releases at once; the rest leaves by `poll`."""
CHUNK_ROWS: Final = 256
"""The number of rows in one value of the state."""

Prepare = Callable[[pl.DataFrame], Sequence[object]]
"""Returns the request for each row. None: no call is needed, and the answer is NULLs. A CallFailure: the row fails."""


class AnswerDecoder(Protocol):
    """Converts answers to columns."""

    def decode(self, answers: Sequence[object]) -> Decoded:
        """Returns the rows of the good answers in order, and the bad ones."""


class CallRuntime(OperatorRuntime):
    """Queues rows, starts their calls, and emits rows with their answers."""

    def __init__(
        self,
        operator: CallOperator,
        slot: Slot,
        caller: Caller,
        prepare: Prepare,
        decoder: AnswerDecoder | None = None,
    ) -> None:
        """`decoder`: None if `_emit` is overridden."""
        self._operator = operator
        self._slot = slot
        self._prepare = prepare
        self._decoder = decoder
        self._caller = caller
        self._queue = CallQueue(operator.capacity, ordered=operator.ordered)
        self._in_flight = OperatorList[Any](operator.name, IN_FLIGHT)
        self.states = {IN_FLIGHT.name: cast("OperatorState", self._in_flight)}
        self._resumed = False
        self._asked = 0
        """The number of running calls: never more than the capacity."""
        self._unasked: deque[tuple[PendingCall, object]] = deque()
        """Calls beyond that number: restored ones of a larger capacity, or more than there was room for."""

    # -- the contract --------------------------------------------------------------------------------------------------

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:  # one input; answers come later
        self._resume()
        self._ask(batch)

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        """Queues the watermark behind the rows before it, and releases whatever may leave (W26)."""
        self._mark(WatermarkMark(watermark_ms), out)

    @override
    def on_status(self, idle: bool, out: Out) -> None:
        """Queues the status, which keeps its place like a watermark (W05)."""
        self._mark(StatusMark(idle), out)

    @override
    def on_caught_up(self, out: Out) -> bool:
        """Queues the marker behind the rows before it: with a constant load, the queue is never empty."""
        self._mark(CaughtUpMark(), out)
        return True

    @override
    def poll(self, rows_max: int, out: Out) -> bool:
        resumed = self._resume()
        return self._release(rows_max, out) or resumed

    @property
    @override
    def room(self) -> int:
        return self._queue.room

    @property
    @override
    def settled(self) -> bool:
        return not len(self._queue) and (self._resumed or not self._in_flight.values)

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"calls": self._asked}

    @override
    def before_snapshot(self) -> None:
        self._resume()
        values = [
            (self._slot.subtask, self._slot.parallelism, encode_frame(chunk))
            for frame in gather_rows(list(self._queue.waiting()))
            for chunk in frame.iter_slices(CHUNK_ROWS)
        ]
        if values or self._in_flight.values:
            self._in_flight.replace(values)

    @override
    def close(self) -> None:
        self._caller.close()

    # -- input ---------------------------------------------------------------------------------------------------------

    def _ask(self, batch: pl.DataFrame) -> None:
        for row, request in enumerate(self._prepare(batch)):
            call = PendingCall(batch, row)
            self._queue.put(call)
            if request is None or isinstance(request, CallFailure):
                call.failure = request
                self._queue.complete(call)
            else:
                self._unasked.append((call, request))
        self._begin()

    def _begin(self) -> None:
        """Starts as many of the waiting calls as the capacity allows."""
        count = min(len(self._unasked), self._operator.capacity - self._asked)
        if count > 0:
            self._asked += count
            self._caller.submit([self._unasked.popleft() for _ in range(count)])

    def _mark(self, mark: Mark, out: Out) -> None:
        self._resume()
        self._queue.put(mark)
        self._release(TURN_ROWS, out)

    # -- output --------------------------------------------------------------------------------------------------------

    def _release(self, rows_max: int, out: Out) -> bool:
        """Releases what may leave: one batch, and the marks before and after it. Returns True if anything left."""
        self._collect()
        moved = self._release_marks(out)
        calls = self._queue.take_calls(rows_max)
        if not calls:
            return moved
        for part in _alike(calls):
            self._emit(part, out)
        self._release_marks(out)
        return True

    def _collect(self) -> None:
        done = self._caller.take()
        for call in done:
            self._queue.complete(call)
        self._asked -= len(done)
        self._begin()

    def _release_marks(self, out: Out) -> bool:
        moved = False
        while (mark := self._queue.take_mark()) is not None:
            moved = True
            if isinstance(mark, WatermarkMark):
                out.watermark(mark.time_ms)
            elif isinstance(mark, StatusMark):
                out.status(mark.idle)
            else:
                out.caught_up()
        return moved

    def _emit(self, calls: Sequence[PendingCall], out: Out) -> None:
        """Emits rows with equal columns, after their failures, as everywhere."""
        rows = pl.concat(gather_rows(calls))
        failures = [
            RecordFailure(row, call.failure.kind, call.failure.message)
            for row, call in enumerate(calls)
            if call.failure is not None
        ]
        answered = [row for row, call in enumerate(calls) if call.failure is None]
        assert self._decoder is not None
        decoded = self._decoder.decode([calls[row].answer for row in answered])
        failures += [
            RecordFailure(answered[one.row], one.kind, one.message) for one in decoded.failures
        ]  # rows of the answers are not those of the batch
        if failures:
            out.fail(rows, sorted(failures, key=lambda one: one.row))
            rows = without_failed(rows, failures)
        made = {column.name: column for column in decoded.frame.get_columns()}
        names = [name for name, _ in self._operator.pruned_columns()] + system_columns(rows)
        self._emit_parts(pl.DataFrame([made[name] if name in made else rows[name] for name in names]), out)

    def _emit_parts(self, frame: pl.DataFrame, out: Out) -> None:
        """Emits rows in parts, since batches were not sized for the length of answers."""
        for part in self._slot.cut(frame):
            out.emit(part)

    # -- after a restore -----------------------------------------------------------------------------------------------

    def _resume(self) -> bool:
        """Requests again what was in flight at the checkpoint. Returns True if there was any."""
        if self._resumed:
            return False
        self._resumed = True
        values = self._in_flight.values
        frames = [self._operator.decode_rows(rows) for owner, count, rows in values if self._owns(owner, count)]
        for frame in frames:
            self._ask(frame)
        return bool(frames)

    def _owns(self, subtask: int, parallelism: int) -> bool:
        """Returns True if this subtask now owns the rows of a former subtask."""
        own, count = self._slot.subtask, self._slot.parallelism
        return own == (subtask if parallelism == count else subtask % count)


def open_caller(operator: CallOperator, slot: Slot, target: CallTarget) -> Caller:
    """Opens what makes the calls of one subtask."""
    make = ThreadCaller if slot.open_caller is None else slot.open_caller
    return make(f"{operator.name}[{slot.subtask}]", target, operator.policy, slot.wake)


def gather_rows(calls: Sequence[PendingCall]) -> list[pl.DataFrame]:
    """Returns the rows of these calls in order, with one frame for each run of rows of one batch."""
    frames: list[pl.DataFrame] = []
    for _, group in groupby(calls, key=lambda call: id(call.batch)):
        run = list(group)
        batch, rows = cast("pl.DataFrame", run[0].batch), [call.row for call in run]
        first, count = rows[0], len(rows)
        contiguous = rows[-1] - first + 1 == count and rows == list(range(first, first + count))
        frames.append(batch.slice(first, count) if contiguous else batch[rows])
    return frames


def _alike(calls: Sequence[PendingCall]) -> Iterator[Sequence[PendingCall]]:
    """Yields parts with equal columns. Rows restored from an older definition may lack system columns."""
    for _, group in groupby(calls, key=lambda call: cast("pl.DataFrame", call.batch).columns):
        yield list(group)
