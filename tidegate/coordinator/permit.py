"""The permission to commit transactions, as a value.

Only the journal creates one, once a decision is durable: `journal.py` is the only caller of `issue_permit`. The
committer accepts nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidegate.committable import Committable
from tidegate.ids import CheckpointId, ClusterName, TransactionalId

_AUTHORITY: Final = object()


class CommitPermit:
    """Checkpoint `checkpoint` is decided: all of `committables` must be committed, none may be aborted."""

    __slots__ = ("checkpoint", "committables")

    checkpoint: CheckpointId
    committables: tuple[Committable, ...]

    def __init__(self, checkpoint: CheckpointId, committables: tuple[Committable, ...], authority: object) -> None:
        if authority is not _AUTHORITY:
            raise TypeError("a CommitPermit comes from the journal: see Journal.append_checkpoint")
        object.__setattr__(self, "checkpoint", checkpoint)
        object.__setattr__(self, "committables", committables)

    @property
    def parts(self) -> Iterator[tuple[ClusterName, CommitPermit]]:
        """The permit for the transactions of each cluster, whose names are the current ones."""
        for name in dict.fromkeys(one.cluster for one in self.committables):
            part = tuple(one for one in self.committables if one.cluster == name)
            yield name, CommitPermit(self.checkpoint, part, _AUTHORITY)

    def without(self, ended: Mapping[TransactionalId, Committable]) -> CommitPermit:
        """Returns a permit for the transactions that have not ended yet."""
        left = tuple(one for one in self.committables if ended.get(one.transactional_id) != one)
        return CommitPermit(self.checkpoint, left, _AUTHORITY)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a CommitPermit does not change: {name}")

    def __repr__(self) -> str:
        return f"CommitPermit(checkpoint={self.checkpoint}, committables={len(self.committables)})"


def issue_permit(checkpoint: CheckpointId, committables: tuple[Committable, ...]) -> CommitPermit:
    """Creates a permit; only `journal.py` may call this."""
    return CommitPermit(checkpoint, committables, _AUTHORITY)
