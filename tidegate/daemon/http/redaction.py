"""Removes the secrets of the pipeline file from what the HTTP port returns: error messages may contain them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from tidegate.coordinator.history import CheckpointRecord, FailureRecord
from tidegate.daemon.event_log import EventList, PipelineEvent
from tidegate.daemon.status import Diagnosis, Status
from tidegate.process.logs import redact

TEXT_CHARACTERS_MAX: Final = 2000
"""Limit of a reason or a cause. Texts are cut after redaction, because half a secret would not be recognized."""


def redact_status(status: Status) -> Status:
    """Redacts the reason, the cause of the last failure, and the texts of diagnoses."""
    last = status.history.last_failure
    history = status.history if last is None else replace(status.history, last_failure=_redact_failure(last))
    diagnoses = tuple(map(_redact_diagnosis, status.diagnoses))
    return replace(status, reason=redact(status.reason), history=history, diagnoses=diagnoses)


def redact_checkpoints(records: Iterable[CheckpointRecord]) -> list[CheckpointRecord]:
    """Redacts the reasons of checkpoints that did not complete."""
    return [replace(record, reason=_shorten(record.reason)) if record.reason else record for record in records]


def redact_failures(failures: Iterable[FailureRecord]) -> list[FailureRecord]:
    """Redacts the causes of failures."""
    return list(map(_redact_failure, failures))


def redact_events(events: Iterable[PipelineEvent]) -> EventList:
    """Redacts the texts of events, and their tracebacks, which are not cut."""
    return EventList([replace(one, text=_shorten(one.text), detail=redact(one.detail)) for one in events])


def _redact_failure(failure: FailureRecord) -> FailureRecord:
    return replace(failure, cause=_shorten(failure.cause))


def _redact_diagnosis(one: Diagnosis) -> Diagnosis:
    evidence = {name: _shorten(value) if isinstance(value, str) else value for name, value in one.evidence.items()}
    return replace(one, sentence=_shorten(one.sentence), remedy=_shorten(one.remedy), evidence=evidence)


def _shorten(text: str) -> str:
    return redact(text)[:TEXT_CHARACTERS_MAX]
