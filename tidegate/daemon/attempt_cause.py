"""Derives why an attempt failed, from the errors and the slots' reports. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tidegate.daemon.control_server import SlotConnection, SlotLost
from tidegate.errors import AttemptFailed, PipelineStopped, TidegateError
from tidegate.formats.failures import RecordPlace
from tidegate.slot.faults import ExecutorLacksModule, lacking_module
from tidegate.spark.job_errors import SparkJobEnded
from tidegate.storage.shared import StorageNotShared
from tidegate.task.messages import SlotFailed


class SlotError(AttemptFailed):
    """A slot failed for a reason that another attempt may resolve."""

    code = "slot-failed"


class SlotRefused(PipelineStopped):
    """A slot failed for a reason that every further attempt would meet again."""

    code = "slot-refused"


def derive_cause(errors: Sequence[TidegateError]) -> TidegateError:
    """Returns the most informative error; among bad records of several slots, the first one of the lowest partition."""
    cause = min(errors, key=_rank)
    others = [error for error in errors if _rank(error) == _rank(cause) and "offset" in error.fields]
    return min(others, key=_place) if cause in others else cause


def _place(error: TidegateError) -> tuple[object, ...]:
    return tuple(error.fields[name] for name in RecordPlace.__struct_fields__)


def _rank(error: TidegateError) -> int:
    """Ranks errors that need a person first, and a lost slot before the errors of its peers."""
    if not error.retriable:
        return 0
    if isinstance(error, SlotLost):
        return 1
    if isinstance(error, SlotError) and error.fields.get("code") in {"peer-lost", "control-lost"}:
        return 4
    return 3 if isinstance(error, SparkJobEnded) else 2


def derive_slot_error(slot: SlotConnection, failed: SlotFailed) -> TidegateError:
    """Turns a slot's failure report into an error that is retriable or not."""
    if failed.code == StorageNotShared.code:
        return StorageNotShared(failed.message)
    if failed.code == ExecutorLacksModule.code:
        return lacking_module(f"{slot} cannot run", failed.message)
    kind = SlotError if failed.retriable else SlotRefused
    text = f"{slot}: {failed.message}" if failed.retriable else failed.message
    place = {} if failed.record is None else msgspec.structs.asdict(failed.record)
    error = kind(text, code=failed.code, fault=failed.fault, **place)
    if failed.traceback:
        error.add_note(failed.traceback)
    return error
