"""Why checkpoints fail or take long, as far as no bottleneck explains it: by the phase that takes longest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidegate.config.fields.counts import render_count, render_size
from tidegate.coordinator.events import CheckpointFailure
from tidegate.coordinator.history import CheckpointKind, CheckpointRecord, CheckpointResult
from tidegate.daemon.diagnosis.situation import FoundCause, Phase, Situation, SlowCheckpoint, render_span
from tidegate.task.barriers.handler import AbortReason

FAST_BYTES_PER_S: Final = 5 << 20
"""Storage that takes 5 MiB a second from one slot is not what is wrong: there is too much to write."""
MISSING_MAX: Final = 5
STORAGE_REASONS: Final = (
    CheckpointFailure.JOURNAL_FAILED.value,
    CheckpointFailure.WRITE_FAILED.value,
    AbortReason.SNAPSHOT_FAILED.value,
)


def find_failing_storage(situation: Situation) -> Iterator[FoundCause]:
    """Finds checkpoints that fail because the storage refuses or loses what is written."""
    failed = _find_failed(situation)
    if failed and any(reason in failed[0].reason for reason in STORAGE_REASONS):
        yield _describe_failed(failed)


def find_failed(situation: Situation) -> Iterator[FoundCause]:
    """Finds checkpoints that fail for another reason."""
    failed = _find_failed(situation)
    if failed and not any(reason in failed[0].reason for reason in STORAGE_REASONS):
        yield _describe_failed(failed)


def _find_failed(situation: Situation) -> list[CheckpointRecord]:
    """Returns the failed checkpoints since the last completed one, newest first."""
    ended = [
        one
        for one in situation.facts.checkpoints
        if one.kind is not CheckpointKind.SAVEPOINT
        and one.result in {CheckpointResult.COMPLETED, CheckpointResult.FAILED}
    ]
    completed = next((n for n, one in enumerate(ended) if one.result is CheckpointResult.COMPLETED), len(ended))
    return ended[:completed]


def _describe_failed(failed: list[CheckpointRecord]) -> FoundCause:
    newest = failed[0]
    what = f"checkpoint {newest.id} has failed" if len(failed) == 1 else f"the last {len(failed)} checkpoints failed"
    missing = f"; missing: {_list_missing(newest)}" if newest.missing and newest.missing[0] not in newest.reason else ""
    evidence: dict[str, float | str] = {"failed_in_a_row": len(failed), "checkpoint": newest.id}
    return FoundCause(sentence=f"{what}: {newest.reason}{missing}", evidence=evidence)


def find_large_state(situation: Situation) -> Iterator[FoundCause]:
    """Finds state that is too large for the interval."""
    slow = situation.slow
    if slow is None or slow.subtask is None:
        return
    if slow.phase is Phase.SNAPSHOT or (slow.phase is Phase.UPLOAD and _is_large(slow)):
        what = "the snapshot of" if slow.phase is Phase.SNAPSHOT else "writing"
        yield _describe_slow(slow, f"the state is large: {what} {render_size(slow.subtask.size_bytes)}")


def find_slow_storage(situation: Situation) -> Iterator[FoundCause]:
    """Finds storage that takes long to write files of state, or an entry of the journal."""
    slow = situation.slow
    if slow is None:
        return
    if slow.phase is Phase.UPLOAD and not _is_large(slow) and slow.subtask is not None:
        written = render_size(slow.subtask.written_bytes)
        yield _describe_slow(slow, f"the checkpoint storage is slow: writing {written} of state")
    if slow.phase is Phase.JOURNAL:
        yield _describe_slow(slow, "the checkpoint storage is slow: writing the entry of the journal")


def find_waiting_barriers(situation: Situation) -> Iterator[FoundCause]:
    """Finds barriers that take long to get through the pipeline."""
    slow = situation.slow
    if slow is not None and slow.phase is Phase.BARRIER:
        yield _describe_slow(slow, "barriers wait behind rows: passing them")


def find_missing_acknowledgements(situation: Situation) -> Iterator[FoundCause]:
    """Finds subtasks that have not acknowledged a checkpoint for long."""
    slow = situation.slow
    if slow is None or slow.phase is not Phase.MISSING:
        return
    missing = slow.record.missing
    yield FoundCause(
        sentence=f"{_list_missing(slow.record)} {'has' if len(missing) == 1 else 'have'} not acknowledged checkpoint "
        f"{slow.record.id}, which {'took' if slow.is_over else 'has taken'} {render_span(slow.seconds)}",
        slot=_find_slot(missing),
        evidence={
            "checkpoint": slow.record.id,
            "checkpoint_seconds": round(slow.seconds, 1),
            "missing": _list_missing(slow.record),
            "acknowledged": len(slow.record.subtasks) + slow.record.subtasks_left_out,
        },
    )


def _find_slot(missing: tuple[str, ...]) -> int | None:
    """Returns the slot of the missing subtasks, which are named like `totals[1]`; None if they are in several."""
    slots = {one.rpartition("[")[2].rstrip("]") for one in missing}
    slot = next(iter(slots), "")
    return int(slot) if len(slots) == 1 and slot.isdigit() else None


def _list_missing(record: CheckpointRecord) -> str:
    more = len(record.missing) - MISSING_MAX
    return ", ".join(record.missing[:MISSING_MAX]) + (f" and {render_count(more, 'other')}" if more > 0 else "")


def _is_large(slow: SlowCheckpoint) -> bool:
    written = 0 if slow.subtask is None else slow.subtask.written_bytes
    return written / max(slow.phase_seconds, 1e-9) >= FAST_BYTES_PER_S


def _describe_slow(slow: SlowCheckpoint, what: str) -> FoundCause:
    at = slow.subtask
    evidence: dict[str, float | str] = {
        "checkpoint": slow.record.id,
        "checkpoint_seconds": round(slow.seconds, 1),
        f"{slow.phase.name.lower()}_seconds": round(slow.phase_seconds, 1),
        "state_bytes": slow.record.size_bytes,
    }
    if at is not None:
        evidence |= {"subtask": f"{at.vertex}[{at.slot}]", "written_bytes": at.written_bytes}
    return FoundCause(
        sentence=f"{what} {slow.describe_share()}",
        slot=None if at is None else at.slot,
        evidence=evidence,
    )
