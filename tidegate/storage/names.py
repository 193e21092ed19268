"""Names of a pipeline's objects in its checkpoint storage.

    journal/000000000042.json                        one decision
    state/000000000007-<operator>-<subtask>.<state>.state    one state of an operator in one subtask at checkpoint 7,
                                                             or the changes since the files that the
                                                             checkpoint lists before it
    state/000000000007-<operator>-<subtask>.<state>.1.state  a further part, if one file would be too large
    state/000000000007-<vertex>-<subtask>.input              rows in flight in front of a subtask
    state/000000000007-<vertex>-<subtask>.output             rows in flight behind it (both with unaligned barriers)
    code/<sha256>/000000                                     a part of a file of `code:`, by the content of the file
    shared/000000000012-slot-0                               during the start of attempt 12: proof of a shared directory
    restoring/0123456789abcdef                               while a savepoint is copied into the directory

A checkpoint id is never reused (C10), so the name of a state object belongs to one checkpoint of one attempt. Later
checkpoints may also list the object. There is no folder for each checkpoint: in a file system, creating one takes two
more writes to the disk, for which the checkpoint would wait.
"""

from __future__ import annotations

import re
from typing import Final

from tidegate.ids import CheckpointId, JournalSequence, OperatorName, SlotIndex

JOURNAL_PREFIX: Final = "journal/"
STATE_PREFIX: Final = "state/"
PROOF_PREFIX: Final = "shared/"
RESTORING_PREFIX: Final = "restoring/"
CODE_PREFIX: Final = "code/"

_JOURNAL = re.compile(r"journal/([0-9]{12})\.json")
_STATE = re.compile(r"state/([0-9]{12})-.+")


def journal_name(sequence: JournalSequence) -> str:
    """Returns the object name of a journal entry."""
    return f"{JOURNAL_PREFIX}{sequence:012d}.json"


def journal_sequence(name: str) -> JournalSequence | None:
    """Returns the journal entry of an object name; None for a foreign file."""
    match = _JOURNAL.fullmatch(name)
    return None if match is None else JournalSequence(int(match[1]))


def state_name(checkpoint: CheckpointId, operator: OperatorName, subtask: SlotIndex, suffix: str = "state") -> str:
    """Returns the object name of a part of an operator's state in one subtask."""
    return copied_state_name(checkpoint, f"{operator}-{subtask}.{suffix}")


def copied_state_name(checkpoint: CheckpointId, name: str) -> str:
    """Returns the object name at a checkpoint of a state object with this name in a savepoint."""
    return f"{STATE_PREFIX}{checkpoint:012d}-{name}"


def code_name(sha256: str, part: int) -> str:
    """Returns the object name of a part of a file of `code:`."""
    return f"{CODE_PREFIX}{sha256}/{part:06d}"


def checkpoint_of_state(name: str) -> CheckpointId | None:
    """Returns the checkpoint for which a state object was written; None for a foreign file."""
    match = _STATE.fullmatch(name)
    return None if match is None else CheckpointId(int(match[1]))


def is_state_name(name: str) -> bool:
    """Returns whether a name can be that of a state object of a checkpoint, or of a savepoint within its folder."""
    return name.startswith(STATE_PREFIX) and all(part and part[0] != "." for part in name.split("/"))
