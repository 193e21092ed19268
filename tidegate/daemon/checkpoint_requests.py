"""Checkpoints and savepoints on demand: each request is tracked to its result (C38).

A requested checkpoint differs from others only in when it begins. The request is answered when the output is committed,
or with the reason for the failure. Up to `checkpoints.max_concurrent` checkpoints may be in progress, and one
savepoint. The coordinator decides when the files of a savepoint may be written: when all output before them is
committed. A thread of its own copies them, so that a large copy never delays the journal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.clock import Clock, monotonic_ms
from tidegate.coordinator.events import (
    CheckpointReport,
    Event,
    SavepointFailed,
    SavepointWritten,
    TriggerRefusal,
    TriggerRequested,
)
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId
from tidegate.journal.savepoint import savepoint_folder, write_savepoint
from tidegate.storage.base import StorageError
from tidegate.storage.local import directory_of, remove_empty
from tidegate.storage.open import STORES, scheme_of, suggest_scheme

if TYPE_CHECKING:
    from tidegate.daemon.services import Services


class CheckpointUnavailable(TidegateError):
    """The requested checkpoint did not complete; the pipeline is unchanged."""

    code = "checkpoint-unavailable"
    exit_code = 1
    retriable = True


class CheckpointDone(msgspec.Struct, frozen=True):
    """Answer to a request: the checkpoint is in the journal and its output is committed."""

    checkpoint: CheckpointId
    duration_ms: int
    """Time from the trigger to the end of its transactions."""
    size_bytes: int
    """Size of the state that it lists."""


class CheckpointRequests:
    """The checkpoint requests of one attempt. `feed` passes an event to the coordinator.

    All methods are called on the daemon's loop.
    """

    def __init__(self, clock: Clock, feed: Callable[[Event], None]) -> None:
        self._clock = clock
        self._feed = feed
        self._asking: asyncio.Future[CheckpointDone] | None = None
        """The request that the coordinator is currently deciding about."""
        self._under_way: dict[CheckpointId, asyncio.Future[CheckpointDone]] = {}

    async def take(self) -> CheckpointDone:
        """Takes a checkpoint and waits until it is committed. Raises CheckpointUnavailable if it fails."""
        answer: asyncio.Future[CheckpointDone] = asyncio.get_running_loop().create_future()
        self._asking = answer
        try:
            self._feed(TriggerRequested(monotonic_ms(self._clock)))
        finally:
            self._asking = None
        if not answer.done() and answer not in self._under_way.values():
            raise CheckpointUnavailable("no checkpoint was taken: the attempt has just ended; try again")
        return await answer

    # -- what the coordinator answers ------------------------------------------------------------------------------

    def begun(self, checkpoint: CheckpointId) -> None:
        """Records that the barriers of a checkpoint have been sent."""
        if self._asking is not None:
            self._under_way[checkpoint] = self._asking

    def refused(self, refusal: TriggerRefusal) -> None:
        """Fails the request: the checkpoint was refused."""
        if self._asking is not None:
            self._asking.set_exception(CheckpointUnavailable(f"no checkpoint was taken: {refusal.value}; try again"))

    def completed(self, report: CheckpointReport) -> bool:
        """Answers the request of a checkpoint that is complete and committed.

        Returns whether it was a requested one.
        """
        answer = self._under_way.pop(report.checkpoint, None)
        if answer is not None and not answer.done():  # otherwise the request was cancelled
            duration_ms = report.ended_at_ms - report.triggered_at_ms
            answer.set_result(CheckpointDone(report.checkpoint, duration_ms, report.size_bytes))
        return answer is not None

    def given_up(self, checkpoint: CheckpointId, why: str) -> None:
        """Answers the request of a checkpoint that failed, if there is one."""
        answer = self._under_way.pop(checkpoint, None)
        if answer is not None and not answer.done():
            answer.set_exception(CheckpointUnavailable(f"checkpoint {checkpoint} was given up: {why}"))

    def close(self, why: str) -> None:
        """Answers all pending requests, because the attempt decides nothing any more."""
        for checkpoint in list(self._under_way):
            self.given_up(checkpoint, why)


logger = logging.getLogger(__name__)

SAVEPOINTS: Final = "savepoints"
"""The default folder for savepoints, within the checkpoint directory; never cleaned up."""


DIRECTORY: Final = STORES["file"].example


class SavepointUnavailable(TidegateError):
    """No savepoint was written; the pipeline is unchanged."""

    code = "savepoint-unavailable"
    exit_code = 1
    retriable = True


class SavepointNotWritten(SavepointUnavailable):
    """Copying the files failed. Retrying would take and copy another complete savepoint."""

    code = "savepoint-not-written"
    retriable = False


class DirectoryRefused(TidegateError):
    """The requested directory is not one where savepoints may be written."""

    code = "savepoint-directory-refused"
    exit_code = 2
    retriable = False


def check_directory(directory: str, roots: Sequence[str]) -> None:
    """Checks that a directory is below one of `roots`, so that clients cannot choose which files are overwritten.

    Symbolic links are resolved first. Raises DirectoryRefused.
    """
    if scheme_of(directory) != "file":
        _check_address(directory, roots)
        return
    roots = [root for root in roots if scheme_of(root) == "file"]
    try:
        absolute = directory.startswith(("/", "file:"))
        target, allowed = directory_of(directory).resolve(), [directory_of(root).resolve() for root in roots]
    except (StorageError, OSError, ValueError, RuntimeError) as error:  # a loop of links, a lone surrogate
        raise DirectoryRefused(f"savepoints cannot be written to {directory!r}: {error}") from error
    if not absolute:
        raise DirectoryRefused(f"{directory!r} is not an absolute path: use one, such as {DIRECTORY}")
    if not any(target == root or root in target.parents for root in allowed):
        raise DirectoryRefused(
            f"savepoints cannot be written to {target}: {_advise(list(map(str, allowed)))}", directory=str(target)
        )


def _check_address(address: str, roots: Sequence[str]) -> None:
    """Checks an address in an object store like `check_directory`. It has no links, and only one spelling."""
    scheme = scheme_of(address)
    store = STORES.get(scheme)
    if store is None:
        raise DirectoryRefused(f"savepoints cannot be written to {scheme}://: {suggest_scheme(scheme)}")
    if wrong := store.check(address):
        raise DirectoryRefused(f"savepoints cannot be written there: {wrong}; for instance {store.example}")
    allowed = [root.rstrip("/") for root in roots if scheme_of(root) == scheme]
    if not any(f"{address.rstrip('/')}/".startswith(f"{root}/") for root in allowed):
        raise DirectoryRefused(f"savepoints cannot be written to {address}: {_advise(allowed)}", directory=address)


def _advise(allowed: Sequence[str]) -> str:
    choice = f"use a directory below {' or '.join(allowed)}, or " if allowed else ""
    return f"{choice}add one to `savepoints.roots` in the pipeline file and restart the pipeline"


def _remove_empty(path: str) -> None:
    """Removes the folder of a savepoint that could not be written, if it is empty."""
    if scheme_of(path) == "file":
        with suppress(OSError):
            remove_empty(path)


class SavepointDone(msgspec.Struct, frozen=True):
    """Answer to a request."""

    path: str
    checkpoint: CheckpointId
    size_bytes: int


class _Request(msgspec.Struct):
    directory: str
    answer: asyncio.Future[SavepointDone]
    checkpoint: CheckpointId | None = None
    path: str = ""
    """The target of the copy; once it is set, only the copy decides whether there is a savepoint."""
    not_written: bool = False
    """True if the copy failed."""


class SavepointService:
    """The savepoint requests of one attempt. `feed` passes an event to the coordinator.

    All methods are called on the daemon's loop.
    """

    def __init__(self, services: Services, feed: Callable[[Event], None]) -> None:
        self._services = services
        self._feed = feed
        self._request: _Request | None = None

    async def take(self, directory: str) -> SavepointDone:
        """Takes a savepoint. Raises SavepointUnavailable if it fails, StorageError if `directory` cannot be used."""
        self._check_free()
        # Opened first, so that an error is reported now and not after a checkpoint.
        await asyncio.to_thread(self._services.open_storage, directory)
        self._check_free()  # another request may have arrived meanwhile
        request = _Request(directory, asyncio.get_running_loop().create_future())
        self._request = request
        try:
            self._feed(TriggerRequested(monotonic_ms(self._services.clock), savepoint=True))
            if request.checkpoint is None and not request.answer.done():
                raise SavepointUnavailable("no savepoint was taken: the attempt has just ended; try again")
            return await request.answer
        finally:
            self._request = None

    # -- what the coordinator answers ------------------------------------------------------------------------------

    def begun(self, checkpoint: CheckpointId) -> None:
        """Records that the barriers of a checkpoint have been sent."""
        if self._request is not None:
            self._request.checkpoint = checkpoint

    def refused(self, refusal: TriggerRefusal) -> None:
        """Fails the request: the checkpoint was refused."""
        self._fail(f"no savepoint was taken: {refusal.value}")

    def given_up(self, checkpoint: CheckpointId, why: str) -> None:
        """Fails the request if its checkpoint was given up, unless a copy is in progress, which then decides."""
        if self._request is not None and self._request.checkpoint == checkpoint and not self._request.path:
            self._fail(f"savepoint {checkpoint} was given up: {why}")

    def close(self, why: str) -> None:
        """Answers the request when the attempt has ended and can wait no longer for a copy in progress."""
        request = self._request
        if request is not None and request.path:
            self._fail(
                f"savepoint {request.checkpoint} is still being copied to {request.path} although {why}; check later "
                f"with `tidegate savepoint verify {request.path}` whether it is complete"
            )
        self._fail(f"no savepoint was taken: {why}")

    async def write(self, checkpoint: CompletedCheckpoint) -> None:
        """Copies the files and reports to the coordinator."""
        request = self._request
        if request is None:
            now_ms = monotonic_ms(self._services.clock)
            self._feed(SavepointFailed(checkpoint.id, "the request was cancelled", now_ms))
            return
        try:
            done = await asyncio.to_thread(self._prepare_copy(checkpoint, request))
        except StorageError as error:
            request.path, request.not_written = "", True
            self._feed(SavepointFailed(checkpoint.id, error.message, monotonic_ms(self._services.clock)))
            self.given_up(checkpoint.id, error.message)  # an attempt that has ended no longer does this
            return
        logger.info("savepoint %d is complete: %s (%s bytes)", checkpoint.id, done.path, f"{done.size_bytes:,}")
        if not request.answer.done():
            request.answer.set_result(done)
        self._feed(SavepointWritten(checkpoint.id, monotonic_ms(self._services.clock)))

    def _check_free(self) -> None:
        if self._request is not None:
            raise SavepointUnavailable(f"no savepoint was taken: {TriggerRefusal.SAVEPOINT_UNDER_WAY.value}")

    def _prepare_copy(self, checkpoint: CompletedCheckpoint, request: _Request) -> Callable[[], SavepointDone]:
        """Returns a function that copies the savepoint, for a thread of its own. Raises StorageError."""
        identity = self._services.journal.identity
        if identity is None:
            raise StorageError("this daemon does not own the journal: another daemon has taken over the pipeline")
        token = self._services.make_token()
        folder = savepoint_folder(identity.pipeline, checkpoint.id, token)
        request.path = f"{request.directory.rstrip('/')}/{folder}"

        def copy() -> SavepointDone:
            target = self._services.open_storage(request.directory)
            try:
                write_savepoint(self._services.storage, target, folder, checkpoint, identity, token)
            except StorageError:
                _remove_empty(request.path)
                raise
            return SavepointDone(request.path, checkpoint.id, checkpoint.size_bytes)

        return copy

    def _fail(self, text: str) -> None:
        request = self._request
        if request is not None and not request.answer.done():
            kind = SavepointNotWritten if request.not_written else SavepointUnavailable
            request.answer.set_exception(kind(text))
