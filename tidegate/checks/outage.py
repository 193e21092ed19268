"""How long an outage may last before what was kept for it is gone. Pure."""

from __future__ import annotations

from typing import Final

from tidegate.config.models import PipelineSettings

WEEKEND_MS: Final = 3 * 24 * 3600 * 1000
"""Where a person has to see it."""
UNATTENDED: Final = "the longest that a restart without a person may take"


def derive_unattended_ms(settings: PipelineSettings) -> int:
    """From a record's arrival to the end of a recovery that nobody has to help, at the longest: a transaction is as old
    as it can be, the checkpoint takes as long as it may, attempts fail until the daemon gives up, and one start.
    """
    checkpoints, restart, runtime = settings.checkpoints, settings.restart, settings.runtime
    return (
        checkpoints.transaction_timeout_ms
        + checkpoints.timeout_ms
        + restart.give_up_after.within_ms
        + restart.max_ms
        + runtime.start_timeout_ms
    )
