"""Savepoints on demand: one request at a time, from the question to the path of the finished savepoint.

The coordinator says when the files may be written (all output before them is committed), a thread of its own copies
them, so that a large copy never holds up the journal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.clock import monotonic_ms
from tidegate.coordinator.events import Event, SavepointFailed, SavepointWritten, TriggerRefusal, TriggerRequested
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId
from tidegate.journal.savepoint import savepoint_folder, write_savepoint
from tidegate.storage.base import StorageError
from tidegate.storage.local import directory_of, remove_empty
from tidegate.storage.open import STORES, scheme_of, suggest_scheme

if TYPE_CHECKING:
    from tidegate.daemon.services import Services

logger = logging.getLogger(__name__)

SAVEPOINTS: Final = "savepoints"
"""Folder within the checkpoint directory for savepoints that are given no other; never cleaned up."""


DIRECTORY: Final = STORES["file"].example


class SavepointUnavailable(TidegateError):
    """No savepoint was written; the pipeline is as it was."""

    code = "savepoint-unavailable"
    exit_code = 1
    retriable = True


class SavepointNotWritten(SavepointUnavailable):
    """The copy of its files failed. Asking again would take, and copy, another whole one."""

    code = "savepoint-not-written"
    retriable = False


class DirectoryRefused(TidegateError):
    """A savepoint was asked for in a place where none may be written."""

    code = "savepoint-directory-refused"
    exit_code = 2
    retriable = False


def check_directory(directory: str, roots: Sequence[str]) -> None:
    """Savepoints are written below `roots`: whoever gives an order does not choose what the daemon's user overwrites.

    Links are followed first. Raises DirectoryRefused.
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
        raise DirectoryRefused(f"{directory!r} is not an absolute directory: name one, for instance {DIRECTORY}")
    if not any(target == root or root in target.parents for root in allowed):
        raise DirectoryRefused(
            f"no savepoint may be written to {target}: {_advise(list(map(str, allowed)))}", directory=str(target)
        )


def _check_address(address: str, roots: Sequence[str]) -> None:
    """As `check_directory`, of a store that is no directory; its addresses have no links and one spelling each."""
    scheme = scheme_of(address)
    store = STORES.get(scheme)
    if store is None:
        raise DirectoryRefused(f"savepoints cannot be written to {scheme}://: {suggest_scheme(scheme)}")
    if wrong := store.check(address):
        raise DirectoryRefused(f"savepoints cannot be written there: {wrong}; for instance {store.example}")
    allowed = [root.rstrip("/") for root in roots if scheme_of(root) == scheme]
    if not any(f"{address.rstrip('/')}/".startswith(f"{root}/") for root in allowed):
        raise DirectoryRefused(f"no savepoint may be written to {address}: {_advise(allowed)}", directory=address)


def _advise(allowed: Sequence[str]) -> str:
    choice = f"name a directory below {' or '.join(allowed)}, or " if allowed else ""
    return f"{choice}add one to `savepoints.roots` in the pipeline file and restart the pipeline"


def _remove_empty(path: str) -> None:
    """The folder of a savepoint that could not be written; what could not be deleted stays."""
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
    """Where it is being copied to; from then on only the copy decides whether there is a savepoint."""
    not_written: bool = False
    """The copy has failed."""


class SavepointService:
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
        """A checkpoint failed; perhaps it was ours. A copy under way goes on, and has the last word."""
        if self._request is not None and self._request.checkpoint == checkpoint and not self._request.path:
            self._fail(f"savepoint {checkpoint} was given up: {why}")

    def close(self, why: str) -> None:
        """The attempt has ended, and has waited for a copy under way as long as it waits for anything."""
        request = self._request
        if request is not None and request.path:
            self._fail(
                f"savepoint {request.checkpoint} is still being copied to {request.path} although {why}; "
                f"`tidegate savepoint verify {request.path}` says whether it was finished"
            )
        self._fail(f"no savepoint was taken: {why}")

    async def write(self, checkpoint: CompletedCheckpoint) -> None:
        """Copy the files and report to the coordinator."""
        request = self._request
        if request is None:
            now_ms = monotonic_ms(self._services.clock)
            self._feed(SavepointFailed(checkpoint.id, "nobody waits for it any more", now_ms))
            return
        try:
            done = await asyncio.to_thread(self._prepare_copy(checkpoint, request))
        except StorageError as error:
            request.path, request.not_written = "", True
            self._feed(SavepointFailed(checkpoint.id, error.message, monotonic_ms(self._services.clock)))
            self.given_up(checkpoint.id, error.message)  # an attempt that has ended does not say so any more
            return
        logger.info("savepoint %d is complete: %s (%s bytes)", checkpoint.id, done.path, f"{done.size_bytes:,}")
        if not request.answer.done():
            request.answer.set_result(done)
        self._feed(SavepointWritten(checkpoint.id, monotonic_ms(self._services.clock)))

    def _check_free(self) -> None:
        if self._request is not None:
            raise SavepointUnavailable(f"no savepoint was taken: {TriggerRefusal.SAVEPOINT_UNDER_WAY.value}")

    def _prepare_copy(self, checkpoint: CompletedCheckpoint, request: _Request) -> Callable[[], SavepointDone]:
        """What copies it, for a thread of its own. Raises StorageError."""
        identity = self._services.journal.identity
        if identity is None:
            raise StorageError("the journal belongs to nobody: another daemon has taken the pipeline over")
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
