"""Errors about stored state that cannot be used."""

from __future__ import annotations

from tidegate.errors import AttemptFailed, PipelineStopped


class StateUnreadable(PipelineStopped):
    """A state file that is damaged, or was written for another shape of state."""

    code = "state-unreadable"
    exit_code = 4


class LocalStateFailed(AttemptFailed):
    """State on local disk that cannot be read or written. Nothing is lost: the next attempt restores a checkpoint."""

    code = "local-state"
