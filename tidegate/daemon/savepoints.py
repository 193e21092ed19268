"""Savepoints on demand: one request at a time, from the question to the path of the finished savepoint.

The coordinator says when the files may be written (all output before them is committed), a thread of its own copies
them, so that a large copy never holds up the journal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.clock import monotonic_ms
from tidegate.coordinator.events import Event, SavepointFailed, SavepointWritten, TriggerRefusal, TriggerRequested
from tidegate.coordinator.savepoint import savepoint_folder, write_savepoint
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId
from tidegate.storage.base import StorageError
from tidegate.storage.local import directory_of

if TYPE_CHECKING:
    from tidegate.daemon.services import Services

logger = logging.getLogger(__name__)

SAVEPOINTS: Final = "savepoints"
"""Folder within the checkpoint directory for savepoints that are given no other; never cleaned up."""


class SavepointUnavailable(TidegateError):
    """No savepoint was written; the pipeline is as it was."""

    code = "savepoint-unavailable"
    exit_code = 1
    retriable = True


class DirectoryRefused(TidegateError):
    """A savepoint was asked for in a place where none may be written."""

    code = "savepoint-directory-refused"
    exit_code = 2
    retriable = False


def check_directory(directory: str, roots: Sequence[str]) -> None:
    """Savepoints are written below `roots`: whoever gives an order does not choose what the daemon's user overwrites.

    Links are followed first. What is not a directory of this machine is left to the storage. Raises DirectoryRefused.
    """
    if "://" in directory and not directory.startswith("file:"):
        return
    try:
        absolute = directory.startswith(("/", "file:"))
        target, allowed = directory_of(directory).resolve(), [directory_of(root).resolve() for root in roots]
    except (StorageError, OSError, ValueError, RuntimeError) as error:  # a loop of links, a lone surrogate
        raise DirectoryRefused(f"savepoints cannot be written to {directory!r}: {error}") from error
    if not absolute:
        raise DirectoryRefused(f"{directory!r} is not an absolute directory: name one, for instance {allowed[0]}")
    if not any(target == root or root in target.parents for root in allowed):
        raise DirectoryRefused(
            f"no savepoint may be written to {target}: name a directory below {' or '.join(map(str, allowed))}, or add "
            "one to `savepoints.roots` in the pipeline file and restart the pipeline",
            directory=str(target),
        )


class SavepointDone(msgspec.Struct, frozen=True):
    """Answer to a request."""

    path: str
    checkpoint: CheckpointId
    size_bytes: int


class _Request(msgspec.Struct):
    directory: str
    answer: asyncio.Future[SavepointDone]
    checkpoint: CheckpointId | None = None


class SavepointDesk:
    """One per attempt. `feed` gives the coordinator an event; all calls on the daemon's loop."""

    def __init__(self, services: Services, feed: Callable[[Event], None]) -> None:
        self._services = services
        self._feed = feed
        self._request: _Request | None = None

    async def take(self, directory: str) -> SavepointDone:
        """Raises SavepointUnavailable when there will be none, StorageError when `directory` cannot be used."""
        self._check_free()
        # What is wrong with it is reported now, not after a checkpoint.
        await asyncio.to_thread(self._services.open_storage, directory)
        self._check_free()  # another request may have come meanwhile
        request = _Request(directory, asyncio.get_running_loop().create_future())
        self._request = request
        try:
            self._feed(TriggerRequested(monotonic_ms(self._services.clock), savepoint=True))
            if request.checkpoint is None and not request.answer.done():
                raise SavepointUnavailable("no savepoint was taken: the attempt has just ended; ask again")
            return await request.answer
        finally:
            self._request = None

    # -- what the coordinator answers ------------------------------------------------------------------------------

    def begun(self, checkpoint: CheckpointId) -> None:
        """Its barriers are on their way."""
        if self._request is not None:
            self._request.checkpoint = checkpoint

    def refused(self, refusal: TriggerRefusal) -> None:
        """It was not begun."""
        self._fail(f"no savepoint was taken: {refusal.value}")

    def given_up(self, checkpoint: CheckpointId, why: str) -> None:
        """A checkpoint failed; perhaps it was ours."""
        if self._request is not None and self._request.checkpoint == checkpoint:
            self._fail(f"savepoint {checkpoint} was given up: {why}")

    def close(self, why: str) -> None:
        """The attempt has ended; a copy under way has no reader any more."""
        self._fail(f"no savepoint was taken: {why}")

    async def write(self, checkpoint: CompletedCheckpoint) -> None:
        """Copy the files and report to the coordinator."""
        request = self._request
        if request is None:
            now_ms = monotonic_ms(self._services.clock)
            self._feed(SavepointFailed(checkpoint.id, "nobody waits for it any more", now_ms))
            return
        try:
            done = await asyncio.to_thread(self._copy, checkpoint, request.directory)
        except StorageError as error:
            self._feed(SavepointFailed(checkpoint.id, error.message, monotonic_ms(self._services.clock)))
            return
        logger.info("savepoint %d: %s (%s bytes)", checkpoint.id, done.path, f"{done.size_bytes:,}")
        self._feed(SavepointWritten(checkpoint.id, monotonic_ms(self._services.clock)))
        if not request.answer.done():
            request.answer.set_result(done)

    def _check_free(self) -> None:
        if self._request is not None:
            raise SavepointUnavailable(f"no savepoint was taken: {TriggerRefusal.SAVEPOINT_UNDER_WAY.value}")

    def _copy(self, checkpoint: CompletedCheckpoint, directory: str) -> SavepointDone:
        identity = self._services.journal.identity
        if identity is None:
            raise StorageError("the journal belongs to nobody: another daemon has taken the pipeline over")
        token = self._services.make_token()
        folder = savepoint_folder(identity.pipeline, checkpoint.id, token)
        target = self._services.open_storage(directory)
        write_savepoint(self._services.storage, target, folder, checkpoint, identity, token)
        return SavepointDone(f"{directory.rstrip('/')}/{folder}", checkpoint.id, checkpoint.size_bytes)

    def _fail(self, text: str) -> None:
        request = self._request
        if request is not None and not request.answer.done():
            request.answer.set_exception(SavepointUnavailable(text))
