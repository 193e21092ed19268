"""The choice of a checkpoint other than the newest to continue from. Pure (ADR 11, ADR 12).

Either a user chooses a retained checkpoint or a savepoint, or the newest checkpoint is damaged. Committed output stays
committed, so going back is consistent only if no output after the chosen checkpoint was committed. Otherwise output is
written twice, which only the owner of the readers may decide.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Final

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.clusters import derive_identity, name_committables
from tidegate.coordinator.entries import CheckpointEntry, Identity, Savepoint
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.ledger import Key, key_of
from tidegate.coordinator.recovery import Chosen, RestoreRefused, merge_positions
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions
from tidegate.errors import BEGIN_ANEW
from tidegate.ids import CheckpointId, OperatorName, TopicPartition

SHOWN: Final = 5
"""Maximum number of partitions in a message."""

SourceOffsets = dict[tuple[OperatorName, TopicPartition], int]
"""Next offsets by source and partition."""


class TransactionStatus(Enum):
    """The broker's answer about a transaction that the daemon has not asked it to end."""

    OPEN = "open"
    ABORTED = "aborted"
    COMMITTED = "committed"
    UNKNOWN = "unknown"


class RestoreTarget(msgspec.Struct, frozen=True):
    """The checkpoint or savepoint that a user asks to restore."""

    title: str
    """`checkpoint 42`, or `savepoint PATH`."""
    origin: str
    """The origin, as in JournalEntry; equal for equal targets."""
    checkpoint: CompletedCheckpoint
    identity: Identity
    retained: bool
    """True if it belongs to this journal."""
    from_rows: bool = False
    """True if it is a savepoint made from rows, so that no output was written after it."""
    carried: tuple[str, ...] = ()
    """Topics whose positions are the newest checkpoint's; see `carry_positions`."""


class Fallback(msgspec.Struct, frozen=True):
    """The way back to an older checkpoint when newer ones are damaged."""

    chosen: Chosen
    abort: tuple[Committable, ...]
    """Transactions of the newer ones; all must be confirmed as aborted before `chosen` is appended."""


def find_retained(state: JournalState, wanted: CheckpointId) -> RestoreTarget:
    """Finds a retained checkpoint. Raises RestoreRefused, which lists the retained ones."""
    for entry in state.retained:
        if entry.checkpoint.id == wanted:
            title = f"checkpoint {wanted}"
            return RestoreTarget(title, title, entry.checkpoint, entry.identity, retained=True)
    if not state.retained:
        raise RestoreRefused(
            f"checkpoint {wanted} does not exist, and neither does any other: check that this is the checkpoint "
            "directory "
            "of the pipeline and that its volume is mounted, or choose a savepoint by its path",
            wanted=wanted,
        )
    there = ", ".join(str(entry.checkpoint.id) for entry in state.retained)
    raise RestoreRefused(
        f"checkpoint {wanted} is not retained (there are: {there}); choose one of these, or a savepoint by its path",
        wanted=wanted,
    )


def derive_saved(path: str, savepoint: Savepoint, now: Identity) -> RestoreTarget:
    """Derives the target for a savepoint, which may be restored under another name.

    A savepoint made from rows without clusters can be restored on any.
    """
    identity = msgspec.structs.replace(savepoint.identity, pipeline=now.pipeline)
    title, origin = f"savepoint {path}", f"savepoint {savepoint.token}"
    return RestoreTarget(title, origin, savepoint.checkpoint, identity, retained=False, from_rows=savepoint.from_rows)


def carry_positions(
    target: RestoreTarget, newest: CompletedCheckpoint | None, latest: Collection[OperatorName]
) -> RestoreTarget:
    """Adds the newest checkpoint's positions for topics that `target` does not know, of sources with `start: latest`.

    Looking up `latest` again would skip the records written in between.
    """
    if newest is None:
        return target
    there = merge_positions(newest.positions)
    known = {(source, part.topic) for source, part in _offsets(target.checkpoint)}
    former = {topic for source, topic in known if source not in there}
    added: list[SourcePositions] = []
    for source in sorted(there.keys() & set(latest)):
        nexts, ends = (
            tuple(
                (part, at)
                for part, at in sorted(offsets.items())
                if part.topic not in former and (source, part.topic) not in known
            )
            for offsets in there[source]
        )
        if nexts:
            added.append(SourcePositions(source, nexts, ends))
    if not added:
        return target
    checkpoint = msgspec.structs.replace(target.checkpoint, positions=(*target.checkpoint.positions, *added))
    topics = tuple(sorted({part.topic for one in added for part, _ in one.next_offsets}))
    return msgspec.structs.replace(target, checkpoint=checkpoint, carried=topics)


def validate_restore_target(state: JournalState, target: RestoreTarget, *, repeat_output: bool) -> bool:
    """Decides whether to restore `target`; False if it was restored before, because supervisors repeat the option.

    Raises RestoreRefused if output would be lost. Without `repeat_output`, also if output would be written again or if
    a savepoint omits input.
    """
    newest = state.newest_checkpoint
    if state.origin == target.origin:
        return False
    if newest is None:
        if not repeat_output and not target.from_rows:
            raise RestoreRefused(
                f"{target.title} is restored into a new checkpoint directory, so it cannot be known what was committed "
                "after it: output could be written a second time. If nothing has run after it, or readers tolerate "
                "that, add --repeat-output",
                target=target.title,
            )
        return True
    again, ahead = _distance(target.checkpoint, newest, _derive_later(state, target))
    if ahead and target.retained:
        raise RestoreRefused(
            f"{target.title} belongs to an abandoned history: in {', '.join(ahead[:SHOWN])} it is ahead of the "
            f"newest checkpoint, {newest.id}, so output in between could be missing; choose another one",
            target=target.title,
        )
    if (again or ahead) and not repeat_output:
        facts = []
        if again:
            facts.append(
                f"{target.title} is {again:,} input records before the newest checkpoint, {newest.id}, whose output "
                "is committed: going back writes the output of these records a second time"
            )
        if ahead:
            facts.append(f"{target.title} {_tell_ahead(newest, ahead)}")
        raise RestoreRefused(
            f"{'. '.join(facts)}. If readers tolerate that, add --repeat-output; otherwise start without "
            f"--restore to continue from checkpoint {newest.id}",
            target=target.title,
            newest=newest.id,
            records=again,
        )
    return True


def describe_output(state: JournalState, target: RestoreTarget) -> str:
    """Describes, for the log, what a restore accepted by `validate_restore_target` means for output."""
    again_text, newest = "output after it is written again", state.newest_checkpoint
    if newest is None:
        return again_text
    again, ahead = _distance(target.checkpoint, newest, _derive_later(state, target))
    told = [again_text] if again or not ahead else []
    if ahead:
        told.append(f"it {_tell_ahead(newest, ahead)}")
    if target.carried:
        told.append(
            f"it has no position of {', '.join(target.carried)}, with `start: latest`: continue from checkpoint "
            f"{newest.id}"
        )
    return "; ".join(told)


def refuse_missing_partitions(target: RestoreTarget, sources: Mapping[OperatorName, Mapping[str, int]]) -> None:
    """Raises RestoreRefused for a savepoint from rows whose positions lack partitions of a topic that they name.

    `sources` has the current partitions of each topic. Missing partitions would be read from the beginning, as if they
    had been added after the checkpoint, although the rows cover them.
    """
    if not target.from_rows:
        return
    for source, (offsets, _) in merge_positions(target.checkpoint.positions).items():
        for topic in sorted({part.topic for part in offsets}):
            there = range(sources.get(source, {}).get(topic, 0))
            missing = [str(number) for number in there if TopicPartition(topic, number) not in offsets]
            if missing:
                raise RestoreRefused(
                    f"{target.title} has positions of {source} in some partitions of {topic} and not in others "
                    f"({', '.join(missing[:20])}), which would be read from offset 0: write it again with an offset "
                    "for each of them, 0 where that is intended",
                    target=target.title,
                    source=source,
                    topic=topic,
                )


def derive_chosen(target: RestoreTarget, now: Identity) -> Chosen:
    """Derives what to append for a target once all transactions of the newest checkpoint are committed.

    States are unchanged.
    """
    checkpoint = msgspec.structs.replace(target.checkpoint, committables=())
    return Chosen(checkpoint, derive_identity(target.identity, now), target.origin)


def derive_newer(state: JournalState, entry: CheckpointEntry, now: Identity) -> tuple[Committable, ...]:
    """Returns the transactions of checkpoints after `entry`; no others contain output after it.

    Their clusters have the names of `now`.

    Every entry lists all transactions prepared up to its barrier and not known to have ended, so those that a newer
    entry adds were prepared after it.
    """
    own = {key_of(one) for one in entry.checkpoint.committables}
    newer = [old for old in state.retained if old.sequence > entry.sequence]
    named = [name_committables(old.checkpoint.committables, old.identity, now) for old in newer]
    added = {key_of(one): one for committables in named for one in committables if key_of(one) not in own}
    return tuple(one for _, one in sorted(added.items()))


def derive_candidates(state: JournalState) -> tuple[CheckpointEntry, ...]:
    """Returns the checkpoints that may replace the newest, newest first: only those with the same origin."""
    return tuple(entry for entry in reversed(state.retained[:-1]) if entry.origin == state.origin)


def derive_asked(state: JournalState, entry: CheckpointEntry, now: Identity) -> tuple[Committable, ...]:
    """Returns the transactions whose status decides whether `entry` can be restored; `now` is as in `derive_newer`."""
    own = name_committables(_own(state, entry)[1], entry.identity, now)
    return (*derive_newer(state, entry, now), *own)


def decide_fallback(
    state: JournalState,
    entry: CheckpointEntry,
    statuses: Mapping[Key, TransactionStatus],
    damage: Sequence[str],
    now: Identity,
) -> Fallback:
    """Falls back to `entry`, the newest undamaged one, if no output after it is committed and all output before it is.

    `damage` describes the newer ones, and `now` is as in `derive_newer`. Raises RestoreRefused with the choices.
    """
    newer = derive_newer(state, entry, now)
    left, ended = _own(state, entry)
    behind = [one for one in newer if statuses[key_of(one)] not in (TransactionStatus.OPEN, TransactionStatus.ABORTED)]
    before = [one for one in ended if statuses[key_of(one)] is not TransactionStatus.COMMITTED]
    if behind:
        why = (
            f"{len(behind)} of {len(newer)} transactions after it are {statuses[key_of(behind[0])].value} (first: "
            f"{_tell(behind[0])}), so going back writes output a second time"
        )
        raise refuse_damaged(state, damage, f"checkpoint {entry.checkpoint.id} is intact, but {why}", entry)
    if before:
        why = f"{_tell(before[0])}, which it lists, is {statuses[key_of(before[0])].value}, so output would be lost"
        raise refuse_damaged(state, damage, f"checkpoint {entry.checkpoint.id} is intact, but {why}")
    checkpoint = msgspec.structs.replace(entry.checkpoint, committables=left)
    return Fallback(Chosen(checkpoint, entry.identity), newer)


def refuse_damaged(
    state: JournalState, damage: Sequence[str], why: str, alternative: CheckpointEntry | None = None
) -> RestoreRefused:
    """Returns the error for a damaged newest checkpoint that nothing may replace without the user's consent."""
    choice = ""
    if alternative is not None:
        number = alternative.checkpoint.id
        choice = f"if readers tolerate that, start with --restore {number} --repeat-output; "
    return RestoreRefused(
        f"{'; '.join(damage)}. No older one is restored: {why}. The choices: put the files back from a backup; "
        f"{choice}restore a savepoint; or begin with {BEGIN_ANEW}",
        newest=state.retained[-1].checkpoint.id,
    )


def _own(state: JournalState, entry: CheckpointEntry) -> tuple[tuple[Committable, ...], tuple[Committable, ...]]:
    """Splits the transactions that `entry` lists into those still to be committed and those ended before."""
    listed = {key_of(one) for one in state.committables}
    own = entry.checkpoint.committables
    left = tuple(one for one in own if key_of(one) in listed)
    return left, tuple(one for one in own if key_of(one) not in listed)


def _tell_ahead(newest: CompletedCheckpoint, ahead: Sequence[str]) -> str:
    return (
        f"is ahead of the newest checkpoint, {newest.id}, in {', '.join(ahead[:SHOWN])}: the input in between "
        "is not read, so its output is missing unless something else has written it"
    )


def _tell(one: Committable) -> str:
    return f"transaction {one.transactional_id} of checkpoint {one.checkpoint}, {one.records} records"


def _derive_later(state: JournalState, target: RestoreTarget) -> SourceOffsets | None:
    """Returns the last position of each source at or after a checkpoint of this journal; None for a savepoint.

    Sources may have been renamed or dropped since, so positions are taken from every later entry.
    """
    if not target.retained:
        return None
    later: SourceOffsets = {}
    for entry in state.retained:
        if entry.checkpoint.id >= target.checkpoint.id:
            later |= _offsets(entry.checkpoint)
    return later


def _distance(
    chosen: CompletedCheckpoint, newest: CompletedCheckpoint, later: SourceOffsets | None
) -> tuple[int, list[str]]:
    """Returns the number of input records between two checkpoints, and the partitions in which `chosen` is ahead.

    A partition unknown to `chosen` is read from its beginning, unless `chosen` has it under a source name that the
    newest checkpoint no longer has.
    """
    there, here = _offsets(newest), _offsets(chosen)
    remaining = {source for source, _ in there}
    known = {source for source, _ in here}
    former = {part: offset for (source, part), offset in here.items() if source not in remaining}
    again = 0
    for (source, part), offset in there.items():
        begun = here.get((source, part), 0) if source in known else former.get(part, 0)
        again += max(0, offset - begun)
    ahead = []
    for (source, part), at in sorted(here.items()):
        last = there if later is None or source in remaining else later
        if at > last.get((source, part), 0):
            ahead.append(f"{source} {part}")
    return again, ahead


def _offsets(checkpoint: CompletedCheckpoint) -> SourceOffsets:
    merged = merge_positions(checkpoint.positions)
    return {(source, part): offset for source, (offsets, _) in merged.items() for part, offset in offsets.items()}
