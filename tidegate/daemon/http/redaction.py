"""What the HTTP port says about a pipeline, without the secrets of its file: they may stand in an error's text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from tidegate.coordinator.history import CheckpointRecord, FailureRecord
from tidegate.daemon.status import Status
from tidegate.process.logs import redact

TEXT_CHARACTERS_MAX: Final = 2000
"""Of a reason or a cause. Cut after the secrets are gone: half a secret would not be known as one."""


def redact_status(status: Status) -> Status:
    """Its reason, and the last failure's cause."""
    last = status.history.last_failure
    history = status.history if last is None else replace(status.history, last_failure=_redact_failure(last))
    return replace(status, reason=redact(status.reason), history=history)


def redact_checkpoints(records: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    """The reasons of those that did not complete."""
    return [replace(record, reason=_shorten(record.reason)) if record.reason else record for record in records]


def redact_failures(failures: Iterable[FailureRecord]) -> list[FailureRecord]:
    """Their causes."""
    return list(map(_redact_failure, failures))


def _redact_failure(failure: FailureRecord) -> FailureRecord:
    return replace(failure, cause=_shorten(failure.cause))


def _shorten(text: str) -> str:
    return redact(text)[:TEXT_CHARACTERS_MAX]
