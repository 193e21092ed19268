"""Why stored state cannot be used."""

from __future__ import annotations

from tidegate.errors import PipelineStopped


class StateUnreadable(PipelineStopped):
    """A state file is damaged, or was written for another shape of state."""

    code = "state-unreadable"
    exit_code = 4
