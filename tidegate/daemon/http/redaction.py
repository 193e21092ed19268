"""Removes secrets and masked columns from what the HTTP port returns. Pure.

Error messages and texts of rows may contain secrets of the pipeline file, which are replaced like in the log. Masked
are the columns of `http.redact` and those made with `secret()`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from tidegate.config.fields.secrets import REDACTED
from tidegate.coordinator.history import CheckpointRecord, FailureRecord
from tidegate.daemon.pipeline_history import EventList, PipelineEvent
from tidegate.daemon.status import Diagnosis, Status
from tidegate.formats.plain import parse_json, render_json
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


MaskedRow = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""A row as the JSON object of an answer, rendered from text so that its numbers keep all their digits."""


def mask_json(row: str | bytes, columns: Collection[str]) -> MaskedRow:
    """Masks a row that is a JSON object. Raises ValueError if it is none, RecursionError if it is nested too deeply."""
    fields = parse_json(row)
    if not isinstance(fields, dict):
        raise ValueError("a row is a JSON object")  # noqa: TRY004 - the text is wrong, not its type
    return msgspec.Raw(render_json(mask(fields, columns)).encode())


def mask(row: Mapping[str, object], columns: Collection[str]) -> dict[str, object]:
    """Returns the row with `***` instead of each value whose name is one of `columns`, at any depth.

    Upper and lower case do not matter, as in expressions. Keys of maps count as names. NULL is masked as well.
    """
    return _mask_fields(row, frozenset(name.casefold() for name in columns))


def _mask_fields(row: Mapping[str, object], folded: Collection[str]) -> dict[str, object]:
    return {
        redact(name): REDACTED if name.casefold() in folded else _mask_value(value, folded)
        for name, value in row.items()
    }


def _mask_value(value: Any, folded: Collection[str]) -> Any:
    match value:
        case str():
            return redact(value)
        case dict():
            return _mask_fields(value, folded)
        case list() | tuple():
            return [_mask_value(item, folded) for item in value]
    return value
