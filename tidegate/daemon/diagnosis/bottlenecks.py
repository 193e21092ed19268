"""What holds rows up: a slot, a step, a sink or the brokers. Only where it matters: records or barriers are late.

A busy slot that keeps up with its input is no problem, and neither is a backlog that shrinks.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Final

from tidegate.config.fields.counts import render_count
from tidegate.daemon.diagnosis.situation import FoundCause, Phase, Situation, SlotLoad, render_span
from tidegate.ids import OperatorName

BUSY: Final = 0.8
"""A slot that works for this share of its time has no reserve: the rest goes to channels, reports and checkpoints."""
CALM: Final = 0.5
"""Below this share a slot could do twice its work, so it is another one that holds the pipeline up."""
BLOCKED: Final = 0.5
STUCK_S: Final = 10.0
"""A loop turns within milliseconds, and a large batch takes seconds."""
UNEVEN: Final = 1.5
"""A slot has too much of the rows if it has this many times its fair share."""


def find_stuck_slots(situation: Situation) -> Iterator[FoundCause]:
    """Finds slots whose loop has not turned for long, with the user code that keeps it from turning."""
    for slot, loop in situation.facts.conditions.loops.items():
        if loop.seconds < STUCK_S:
            continue
        missing = {} if situation.slow is None else {"missing": ", ".join(situation.slow.record.missing[:5])}
        why = f": the code of {loop.user_code} does not return" if loop.user_code else ""
        yield FoundCause(
            sentence=f"the loop of slot {slot} has been stuck for {render_span(loop.seconds)}{why}"
            + situation.describe_effect(),
            slot=slot,
            evidence={"stuck_seconds": round(loop.seconds, 1), **situation.measure_effect(), **missing},
        )


def find_skew(situation: Situation) -> Iterator[FoundCause]:
    """Finds one slot that is busy while the others have time, because it has more of the rows."""
    if (load := _find_single(situation)) is None:
        return
    step, share, fair = _find_busiest(situation, load)
    if share < UNEVEN * fair:
        return
    yield FoundCause(
        sentence=f"slot {load.slot} has {share:.0%} of the rows of step {step}, and is busy {load.busy:.0%} of the "
        f"time, the others {_others(situation, load):.0%}{situation.describe_effect()}",
        remedy=_remedy_of_skew(situation, step),
        step=step,
        slot=load.slot,
        evidence={**_measure(situation, load), "rows_ratio": round(share, 3), "fair_ratio": round(fair, 3)},
    )


def find_slow_slot(situation: Situation) -> Iterator[FoundCause]:
    """Finds one slot that is busy while the others have time, although all have the same number of rows."""
    if (load := _find_single(situation)) is None:
        return
    step, share, fair = _find_busiest(situation, load)
    if share >= UNEVEN * fair:
        return
    yield FoundCause(
        sentence=f"slot {load.slot} is slower than the others: it has as many rows of step {step}, and is busy "
        f"{load.busy:.0%} of the time, the others {_others(situation, load):.0%}{situation.describe_effect()}",
        step=step,
        slot=load.slot,
        evidence={**_measure(situation, load), "rows_ratio": round(share, 3), "fair_ratio": round(fair, 3)},
    )


def find_overload(situation: Situation) -> Iterator[FoundCause]:
    """Finds slots that are all busy."""
    loads = situation.loads
    if not situation.suffers or not loads or statistics.fmean(one.busy for one in loads) < BUSY:
        return
    work = situation.work("busy_seconds")
    step = max(work, key=lambda name: work[name], default=None)
    busy = statistics.fmean(one.busy for one in loads)
    share = work[step] / max(sum(work.values()), 1e-9) if step is not None else 0.0
    yield FoundCause(
        sentence=f"{'the slot is' if len(loads) == 1 else f'all {len(loads)} slots are'} busy {busy:.0%} of the time, "
        f"{share:.0%} of it with step {step}{situation.describe_effect()}",
        step=step,
        evidence={
            "busy_ratio": round(busy, 3),
            "step_ratio": round(share, 3),
            "slots": len(loads),
            **situation.measure_effect(),
        },
    )


def find_slow_sinks(situation: Situation) -> Iterator[FoundCause]:
    """Finds a sink that takes no more rows, or that makes checkpoints wait until its records are written."""
    slow = situation.slow
    if slow is not None and slow.phase in {Phase.PREPARE, Phase.COMMIT}:
        at = slow.subtask
        step = None if at is None else _find_sink(situation, at.vertex)
        what = "writing the records of the sinks" if slow.phase is Phase.PREPARE else "committing the transactions"
        yield FoundCause(
            sentence=f"the brokers are slow: {what} {slow.describe_share()}",
            step=step,
            slot=None if at is None else at.slot,
            cluster=None if step is None else situation.facts.plan.clusters.get(step),
            evidence={
                "checkpoint": slow.record.id,
                "checkpoint_seconds": round(slow.seconds, 1),
                f"{slow.phase.name.lower()}_seconds": round(slow.phase_seconds, 1),
            },
        )
        return
    if not situation.suffers or not _is_blocked(situation):
        return
    step = _find_blocking_sink(situation)
    if step is None:
        return
    load = max(situation.loads, key=lambda one: one.blocked)
    yield FoundCause(
        sentence=f"the brokers accept the rows of sink {step} too slowly: slot {load.slot} is blocked "
        f"{load.blocked:.0%} of the time{situation.describe_effect()}",
        step=step,
        slot=load.slot,
        cluster=situation.facts.plan.clusters.get(step),
        evidence={"blocked_ratio": round(load.blocked, 3), **situation.measure_effect()},
    )


def find_slow_sources(situation: Situation) -> Iterator[FoundCause]:
    """Finds slots that wait for input although records wait."""
    loads = situation.loads
    if not situation.late_records or not loads or statistics.fmean(one.idle for one in loads) < CALM:
        return
    idle = statistics.fmean(one.idle for one in loads)
    read = situation.facts.status.records_in_per_second
    yield FoundCause(
        sentence=f"the brokers deliver records too slowly: the slots wait for them {idle:.0%} of the time, and read "
        f"{render_count(round(read), 'record')} a second{situation.describe_effect()}",
        evidence={
            "idle_ratio": round(idle, 3),
            "records_in_per_second": round(read, 1),
            **situation.measure_effect(),
        },
    )


def find_lag(situation: Situation) -> Iterator[FoundCause]:
    """Finds a lag that does not shrink and that no other rule explains."""
    if situation.late_records:
        yield FoundCause(
            sentence=f"the pipeline does not catch up{situation.describe_effect()}", evidence=situation.measure_effect()
        )


def _find_single(situation: Situation) -> SlotLoad | None:
    """Returns the one slot that holds up the others."""
    loads = situation.loads
    if not situation.suffers or len(loads) < 2:
        return None
    load = max(loads, key=lambda one: one.busy)
    return load if load.busy >= BUSY and _others(situation, load) <= CALM else None


def _others(situation: Situation, load: SlotLoad) -> float:
    return statistics.median(one.busy for one in situation.loads if one is not load)


def _find_busiest(situation: Situation, load: SlotLoad) -> tuple[OperatorName | None, float, float]:
    """Returns the step that a slot is busiest with, the slot's share of its rows, and what would be a fair share."""
    work = situation.work("busy_seconds", load.slot)
    step = max(work, key=lambda name: work[name], default=None)
    fair = 1 / len(situation.loads)
    if step is None:
        return None, fair, fair
    rows = situation.work("rows_in")[step]
    return step, situation.work("rows_in", load.slot)[step] / rows if rows else fair, fair


def _remedy_of_skew(situation: Situation, step: OperatorName | None) -> str:
    """Tells keys from partitions: a step in a vertex with a source has the rows of the source's partitions."""
    vertices = situation.facts.plan.vertices
    sources = {vertices.get(one.name) for one in situation.facts.status.operators if one.kind == "source"}
    if step is not None and vertices.get(step) in sources:
        return (
            "the partitions that this slot reads have more records than the others: let producers spread them, or "
            "use more partitions and a `parallelism` that divides their number"
        )
    return (
        "one key, or a few, has most of the rows: aggregate before the step, add a column to its keys, or filter "
        "placeholder keys such as null"
    )


def _measure(situation: Situation, load: SlotLoad) -> Mapping[str, float | str]:
    others = round(_others(situation, load), 3)
    return {"busy_ratio": round(load.busy, 3), "others_busy_ratio": others, **situation.measure_effect()}


def _is_blocked(situation: Situation) -> bool:
    """Returns whether slots wait until rows can leave them, and none is busy instead."""
    loads = situation.loads
    return bool(loads) and max(one.blocked for one in loads) >= BLOCKED and max(one.busy for one in loads) < BUSY


def _find_blocking_sink(situation: Situation) -> OperatorName | None:
    """Returns the sink of the vertex that was blocked most, or the only sink there is."""
    blocked = situation.work("blocked_seconds")
    vertices = situation.facts.plan.vertices
    for name in sorted(blocked, key=lambda one: blocked[one], reverse=True):
        if blocked[name] > 0 and name in vertices and (sink := _find_sink(situation, vertices[name])) is not None:
            return sink
    sinks = [one.name for one in situation.facts.status.operators if one.kind == "sink"]
    return sinks[0] if len(sinks) == 1 else None


def _find_sink(situation: Situation, vertex: str) -> OperatorName | None:
    """Returns the first sink of a vertex."""
    vertices = situation.facts.plan.vertices
    sinks = (one.name for one in situation.facts.status.operators if one.kind == "sink")
    return next((name for name in sinks if vertices.get(name) == vertex), None)
