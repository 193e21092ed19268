"""What the objects of a pipeline are called in its checkpoint storage.

    journal/000000000042.json                        one decision
    state/000000000007/<operator>-<subtask>.<state>.state    one state of an operator in one subtask at checkpoint 7,
                                                             or what changed in it since the files that the
                                                             checkpoint lists before it
    state/000000000007/<operator>-<subtask>.<state>.1.state  more of it, where one file would be too large
    state/000000000007/<vertex>-<subtask>.input              rows in flight in front of a subtask
    state/000000000007/<vertex>-<subtask>.output             rows in flight that waited to leave it (unaligned both)
    shared/000000000012-slot-0                               while attempt 12 starts: proof that all see one directory
    restoring/0123456789abcdef                               while a savepoint is copied into the directory

A checkpoint id is never used twice (C10), so a state object's name belongs to one checkpoint of one attempt; later ones
may list it, too.
"""

from __future__ import annotations

import re
from typing import Final

from tidegate.ids import CheckpointId, JournalSequence, OperatorName, SlotIndex

JOURNAL_PREFIX: Final = "journal/"
STATE_PREFIX: Final = "state/"
PROOF_PREFIX: Final = "shared/"
RESTORING_PREFIX: Final = "restoring/"

_JOURNAL = re.compile(r"journal/([0-9]{12})\.json")
_STATE = re.compile(r"state/([0-9]{12})/.+")


def journal_name(sequence: JournalSequence) -> str:
    """Object name of a journal entry."""
    return f"{JOURNAL_PREFIX}{sequence:012d}.json"


def journal_sequence(name: str) -> JournalSequence | None:
    """The entry that an object name stands for; None for a foreign file."""
    match = _JOURNAL.fullmatch(name)
    return None if match is None else JournalSequence(int(match[1]))


def state_name(checkpoint: CheckpointId, operator: OperatorName, subtask: SlotIndex, suffix: str = "state") -> str:
    """Object name of a piece of state of one operator in one subtask."""
    return f"{STATE_PREFIX}{checkpoint:012d}/{operator}-{subtask}.{suffix}"


def checkpoint_of_state(name: str) -> CheckpointId | None:
    """The checkpoint that a state object was written for; None for a foreign file."""
    match = _STATE.fullmatch(name)
    return None if match is None else CheckpointId(int(match[1]))


def is_state_name(name: str) -> bool:
    """Whether it can be that of a state object, of a checkpoint or a savepoint: of one in its folder."""
    return name.startswith(STATE_PREFIX) and all(part and part[0] != "." for part in name.split("/"))
