"""A slot's reports about its work. The control thread calls it, so it only reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidegate.coordinator.types import SourcePositions
from tidegate.formats.failures import FailureKind
from tidegate.ids import OperatorName, VertexId
from tidegate.slot.subtasks import Subtasks
from tidegate.slot.wiring import Wiring
from tidegate.task.loop import SlotLoop
from tidegate.task.report import PARTITIONS_MAX, OperatorCounts, SlotReport


class SlotReporter:
    """The reporter of one slot's counts."""

    def __init__(self, loop: SlotLoop, subtasks: Subtasks, wiring: Wiring) -> None:
        self._loop = loop
        self._subtasks = subtasks
        self._wiring = wiring

    def report(self) -> SlotReport:
        """Returns the cumulative counts of this attempt.

        Works while subtasks are being built: `list` copies a growing collection in one step.
        """
        counters = self._loop.counters
        bad = _by_operator(counters.bad_records)
        timed = {
            source.operator.name: source.watermarks
            for source in self._subtasks.sources
            if source.watermarks is not None and len(source.watermarks.marks) <= PARTITIONS_MAX
        }
        return SlotReport(
            records_in={source.operator.name: source.records for source in self._subtasks.sources},
            bytes_in={source.operator.name: source.bytes for source in self._subtasks.sources},
            header_names_cut={source.operator.name: source.header_names_cut for source in self._subtasks.sources},
            records_out={sink.operator.name: sink.records for sink in self._subtasks.sinks},
            bytes_out={sink.operator.name: sink.bytes for sink in self._subtasks.sinks},
            bad_records=bad,
            dead_letters=_by_operator(counters.dead_letters),
            operators=self._count_operators(bad),
            busy_seconds=counters.busy_ms / 1000,
            backpressured_seconds=counters.backpressured_ms / 1000,
            idle_seconds=counters.idle_ms / 1000,
            queued_batches=self._wiring.queued + sum(task.replaying for task in self._loop.tasks),
            state_keys=self._count_keys(),
            newest=tuple(
                (source.operator.name, part, *found)
                for source in self._subtasks.sources
                for part, found in dict(source.newest.found).items()
            ),
            positions=tuple(
                SourcePositions(
                    source.operator.name,
                    tuple(source.reached.items()),
                    watermarks=tuple(timed[source.operator.name].known()) if source.operator.name in timed else (),
                )
                for source in self._subtasks.sources
            ),
            idle={name: watermarks.idle_partitions for name, watermarks in timed.items()},
        )

    def _count_keys(self) -> dict[OperatorName, int]:
        counts: dict[OperatorName, int] = {}
        for one, state in list(self._subtasks.states.items()):
            counts[one.operator] = counts.get(one.operator, 0) + len(state)
        return counts

    def _count_operators(
        self, bad: Mapping[OperatorName, Mapping[FailureKind, int]]
    ) -> dict[OperatorName, OperatorCounts]:
        """Returns the counts of every operator. Only a source itself counts unreadable records, since the loop never
        sees them.

        While subtasks are being built, some have no task yet and nothing to report.
        """
        found: dict[OperatorName, OperatorCounts] = {}
        for task in self._loop.tasks:
            for index, (node, counts) in enumerate(zip(task.vertex.nodes, task.chain.meter.counts, strict=True)):
                one = found[node.operator.name] = msgspec.structs.replace(counts)
                if index in task.chain.operators:
                    operator = task.chain.operators[index]
                    one.late, one.gauges = operator.late_rows, dict(operator.gauges)
        for source in self._subtasks.sources:
            own = found.get(source.operator.name)
            if own is not None:
                own.rows_in, own.filtered = source.records, source.left_out
                own.before_1971 = source.before_1971
                own.failed = sum(bad.get(source.operator.name, {}).values())
                held_by = source.held_back_by
                own.held_back_by = str(held_by) if held_by is not None else ""
        return found

    def open_transactions(self) -> dict[VertexId, int | None]:
        """Returns the age of each vertex's oldest open transaction; see Heartbeat."""
        found: dict[VertexId, int | None] = {}
        for task in self._loop.tasks:
            ages = [sink.oldest_age_ms for sink in task.chain.sinks.values()]
            if ages:
                found[task.vertex.id] = max((age for age in ages if age is not None), default=None)
        return found


def _by_operator(
    counts: Mapping[tuple[OperatorName, FailureKind], int],
) -> dict[OperatorName, dict[FailureKind, int]]:
    """Groups counts by operator. The control thread calls it: `list` copies the items in one step."""
    found: dict[OperatorName, dict[FailureKind, int]] = {}
    for (operator, kind), count in list(counts.items()):
        found.setdefault(operator, {})[kind] = count
    return found
