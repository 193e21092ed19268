"""Event time, W01-W32: at least one mutant per line, at its place in production code."""

from __future__ import annotations

from typing import Final

from tests.contract.planting import Mutant

VALVE: Final = "task.valve:Valve"
TREE: Final = "task.tree:OperatorTree"
OUT: Final = "task.tree:NodeOut"
SOURCE: Final = "sources.watermarks:SourceWatermarks"

WINDOWS: Final = "operators.kinds.window.running"

TIMERS: Final = (
    Mutant(
        "W20",
        "operators.event_time:DueResultsRuntime._go_on",
        "assert watermark_ms is not None",
        "out.watermark(watermark_ms)",
    ),
    Mutant("W21", f"{WINDOWS}.sliced:TumblingRuntime._fire", "parts.sort(self._by)", "parts.sort(self._by)[::-1]"),
    Mutant("W22", f"{WINDOWS}.sliced:TumblingRuntime.before_snapshot", "self._store.add(parts)", "pass"),
)

ELEMENTS: Final = (
    Mutant("W01", f"{VALVE}._end", "if all(one.ended for one in self._channels):", "if True:"),
    Mutant("W02", "task.vertex:VertexTask.finished", " and chain.settled", ""),
    Mutant("W02", f"{SOURCE}.waiting", "bool(self._before or self._after)", "False"),
    Mutant("W02", f"{SOURCE}.__init__", "Watermark(END_OF_TIME) if bounded else ", ""),
    Mutant("W02", f"{SOURCE}.on_end", "END_OF_TIME", "self._marks[part]"),
    Mutant("W05", f"{SOURCE}.on_records", "self._put(self._before", "self._put(self._after"),
    Mutant("W03", f"{OUT}.watermark", "if not self.idle:", "if True:"),
    Mutant(
        "W03",
        f"{OUT}.watermark",
        "self._tree.meter.reached(self._index, time_ms)\n    if not self.idle:",
        "if not self.idle:\n        self._tree.meter.reached(self._index, time_ms)",
    ),
    Mutant(
        "W04", "task.outputs:EdgeOutput.broadcast", "for channel in self.channels:", "for channel in self.channels[:1]:"
    ),
    Mutant("W04", f"{TREE}.pass_on", "for edge in edges:", "for edge in edges[:1]:"),
    Mutant("W05", f"{OUT}._deliver", "if not self.idle:", "if True:"),
    Mutant("W25", "task.meter:OperatorMeter.reached", "counts.watermarks += 1", "pass"),
    Mutant("W25", "task.meter:OperatorMeter.reached", "counts.watermark_ms = time_ms", "pass"),
)

MERGED: Final = (
    Mutant("W07", f"{VALVE}.__init__", "if channels < 1:", "if False:"),
    Mutant("W07", "task.valve:_Channel.__init__", "self.aligned = not idle", "self.aligned = False"),
    Mutant("W08", f"{VALVE}.on_watermark", "if one.idle:", "if False:"),
    Mutant("W09", f"{VALVE}.on_watermark", "max(one.watermark_ms, time_ms)", "time_ms"),
    Mutant("W10", f"{VALVE}._take_watermark", "one.aligned or one.watermark_ms >= self.watermark_ms", "one.aligned"),
    Mutant("W11", f"{VALVE}._lowest_ms", "min(aligned, ", "max(aligned, "),
    Mutant("W11", f"{VALVE}._raise", "if reached_ms <= self.watermark_ms:", "if False:"),
    Mutant("W12", f"{VALVE}.on_status", "one.idle == idle or ", ""),
    Mutant("W12", f"{OUT}.status", "if idle != self.idle:", "if True:"),
    Mutant("W13", f"{VALVE}.on_status", "one.aligned = one.resuming = False", "one.resuming = False"),
    Mutant("W14", f"{VALVE}._turn_idle", "if flush else []", "if False else []"),
    Mutant("W14", f"{VALVE}._turn_idle", "max(", "min("),
    Mutant("W15", f"{VALVE}._turn_idle", "if flush else []", "if True else []"),
    Mutant("W16", f"{VALVE}.on_status", "self._advance() if held else []", "[]"),
    Mutant("W17", f"{VALVE}._resume", "one.aligned = True", "one.aligned = False"),
    Mutant("W17", f"{VALVE}._resume", "return [StreamStatus(idle=False)]", "return []"),
    Mutant("W18", f"{VALVE}._take_watermark", "if resumed:", "if False:"),
    Mutant(
        "W19", "task.valve:Inputs.take_questions", "for port, valve in enumerate(self._ports)", "for port, valve in ()"
    ),
    Mutant("W19", "task.valve:Inputs._ask_ports", "self._ports[self._counted[place]].ask()", "pass"),
    Mutant("W19", "task.valve:Inputs.__init__", "ports[:index].count(port)", "0"),
)

CALLS: Final = "operators.calls.runtime:CallRuntime"
QUEUE: Final = "operators.async_queue"

ASYNCHRONOUS: Final = (
    Mutant("W26", f"{CALLS}._mark", "self._release(TURN_ROWS, out)", "pass"),
    Mutant("W27", f"{CALLS}.room", "return self._queue.room", "return 1"),
    Mutant("W27", f"{CALLS}._begin", "self._operator.capacity - self._asked", "len(self._unasked)"),
    Mutant("W28", f"{CALLS}._release", "take_calls(rows_max)", "take_calls(1 << 31)"),
    Mutant("W29", f"{QUEUE}:CallQueue.put", "self._open_segment() if self._ordered else ", ""),
    Mutant("W29", f"{QUEUE}:CallQueue.room", "self._length", "len(list(self.waiting()))"),
    Mutant("W30", f"{QUEUE}:CallQueue.take_calls", "done := self._segments[0].done", "done := self._segments[-1].done"),
    Mutant("W31", f"{QUEUE}:CallQueue._open_segment", "if not self._segments[-1].drained:", "if True:"),
    Mutant("W31", f"{QUEUE}:CallQueue._drop_drained", "self._segments.popleft()", "break"),
    Mutant("W32", f"{QUEUE}:_known", "if isinstance(element, Mark):", "if True:"),
)

STEP: Final = "operators.kinds.event_time.runtime:EventTimeRuntime"

ASSIGNED: Final = (
    Mutant("W06", f"{STEP}.on_status", "out.status(idle)", "pass"),
    Mutant("W23", f"{STEP}._advance", "self._progress.reach(self._input_ms)", "self._input_ms"),
    Mutant("W23", f"{STEP}.on_watermark", "self._input_ms = watermark_ms", "out.watermark(watermark_ms)"),
    Mutant(
        "W24",
        "plan.scope:derive_scope",
        "for cycle in _cycles({name: edges[name] for name in found if name not in order}):",
        "for cycle in ():",
    ),
)

MUTANTS: Final = (*ELEMENTS, *TIMERS, *MERGED, *ASYNCHRONOUS, *ASSIGNED)
