"""Settings that all attempts of a daemon share, derived from the pipeline file."""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.config.models import PipelineSettings
from tidegate.coordinator.restart import RestartStrategy
from tidegate.coordinator.triggers import FIRST_TRIGGER_MS, CheckpointPolicy
from tidegate.storage.open import scheme_of
from tidegate.task.messages import SlotSettings

LOOK_S: Final = 10.0
"""Interval between checks of the topics: one metadata request for a few topics, on a connection that is open anyway."""

NEW_TOPICS_S: Final = 60.0
"""Interval between searches for new topics of a pattern. Each topic that is found costs an attempt."""


class AttemptSettings(msgspec.Struct, frozen=True):
    """Settings that all attempts of a daemon share."""

    checkpoints: CheckpointPolicy
    restarts: RestartStrategy
    slots: SlotSettings
    start_timeout_s: float
    look_s: float = LOOK_S
    """Interval between checks of the topics for new partitions."""
    new_topics_s: float = NEW_TOPICS_S


def derive_attempt_settings(settings: PipelineSettings, log_level: int) -> AttemptSettings:
    """Derives the settings from the pipeline file."""
    checkpoints, restart, runtime = settings.checkpoints, settings.restart, settings.runtime
    return AttemptSettings(
        CheckpointPolicy(
            interval_ms=checkpoints.interval_ms,
            timeout_ms=checkpoints.timeout_ms,
            min_pause_ms=checkpoints.min_pause_ms,
            max_concurrent=checkpoints.max_concurrent,
            tolerable_failures=checkpoints.tolerable_failures,
            retained=checkpoints.retained,
            first_ms=min(checkpoints.interval_ms, FIRST_TRIGGER_MS),
        ),
        RestartStrategy(
            initial_ms=restart.initial_ms,
            max_ms=restart.max_ms,
            give_up_failures=restart.give_up_after.failures,
            give_up_window_ms=restart.give_up_after.within_ms,
        ),
        SlotSettings(
            group_id=settings.name,
            storage_url=str(checkpoints.directory),
            transaction_timeout_ms=checkpoints.transaction_timeout_ms,
            checkpoint_interval_ms=checkpoints.interval_ms,
            max_concurrent=checkpoints.max_concurrent,
            heartbeat_interval_ms=runtime.heartbeat_interval_ms,
            lease_ms=runtime.heartbeat_timeout_ms,
            pipeline_log_level=log_level,
            unaligned_after_ms=checkpoints.unaligned.after_ms,
            checkpoints_retained=checkpoints.retained,
            state_backend=settings.state.backend,
            storage=checkpoints.storage.options,
            local_copies_max_bytes=_derive_copies_max(settings),
        ),
        runtime.start_timeout_ms / 1000,
    )


def _derive_copies_max(settings: PipelineSettings) -> int:
    """Returns 0 for a mounted directory by default: the machine's page cache already holds copies of its files."""
    wanted = settings.state.local_copies
    mounted = scheme_of(str(settings.checkpoints.directory)) == "file"
    return 0 if wanted == "never" or (wanted == "auto" and mounted) else settings.state.local_copies_max_bytes
