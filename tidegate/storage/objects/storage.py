"""The Storage of an object store: implements `storage/base.py` with requests that fail, time out or are answered late.

A request without an answer may have taken effect, so each call is retried under one deadline. `put_if_absent` stores a
unique token (`WRITER`) with the object. If the name turns out to be taken, the token shows whether an earlier try of
the same call created it, even if two callers write the same bytes.

Objects are written with single requests. A killed process would leave a multipart upload unfinished and invisible.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from typing_extensions import override

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.storage.base import ObjectMissing, Storage, StorageError, check_name
from tidegate.storage.objects.clients import Clients
from tidegate.storage.objects.failures import (
    LIMITS,
    Failed,
    FailureKindOfStore,
    RetryLimits,
    StoreFailure,
    Tries,
    judge,
)

WRITER: Final = "tidegatewriter"
"""Attribute of an object, in the form that every provider accepts."""
LARGE_BYTES: Final = 4 << 20
RANGE_BYTES: Final = 4 << 20
"""Large objects are read in requests of this size, each with its own timeout."""
BULK: Final = 1000
RACERS: Final = 8
CONFLICT: Final = 409


def make_token() -> str:
    """Returns a unique name."""
    return uuid.uuid4().hex


class _Part(msgspec.Struct, frozen=True):
    """A part of an object, with the object's size and tag."""

    data: bytes
    size: int
    tag: str


class ObjectStorage(Storage):
    """An object store as checkpoint storage. Safe for concurrent use by several threads and processes."""

    def __init__(
        self,
        location: str,
        clients: Clients,
        limits: RetryLimits = LIMITS,
        clock: Clock = SYSTEM_CLOCK,
        token: Callable[[], str] = make_token,
    ) -> None:
        import obstore
        from obstore.exceptions import BaseError

        self.location: str = location
        self._obstore = obstore
        self._brisk = clients.brisk
        self._patient = clients.patient
        self._bulk = clients.bulk
        self._errors: tuple[type[Exception], ...] = (BaseError, FileNotFoundError)
        self._limits = limits
        self._tries = Tries(location, limits, self._errors, clock)
        self._token = token
        self._has_bulk = True

    def look(self) -> None:
        """Checks with one request that the store can be reached and listed. Raises StorageError."""
        self._tries.run("reach", "the store", lambda: next(iter(self._obstore.list(self._brisk, "probe")), None))

    @override
    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Creates the object if absent, with retries.

        If others delete the object before the call was answered, a retry may create it again.
        """
        check_name(name)
        writer = self._token()

        def create() -> bool:
            try:
                self._write(name, data, mode="create", attributes={WRITER: writer})
            except self._errors as error:
                failure = judge(error)
                if failure.kind is not FailureKindOfStore.TAKEN:
                    raise
                return self._find_writer(name, failure) == writer
            return True

        return self._tries.run("write", name, create, self._deadline_s(data))

    @override
    def put(self, name: str, data: bytes) -> None:
        check_name(name)
        self._tries.run("write", name, lambda: self._write(name, data), self._deadline_s(data))

    @override
    def get(self, name: str) -> bytes:
        check_name(name)
        found = self._tries.run("read", name, lambda: self._read_head(name))
        if isinstance(found, bytes):
            return found
        size, tag = found
        parts = [
            self._read_range(name, start, min(start + RANGE_BYTES, size), tag) for start in range(0, size, RANGE_BYTES)
        ]
        return b"".join(parts)

    @override
    def get_range(self, name: str, start: int, length: int) -> bytes:
        check_name(name)
        found = self._tries.run("read", name, lambda: self._read_first(name, start, min(length, RANGE_BYTES)))
        if len(found.data) < RANGE_BYTES:
            return found.data
        end = min(start + length, found.size)
        parts = [
            self._read_range(name, begin, min(begin + RANGE_BYTES, end), found.tag)
            for begin in range(start + RANGE_BYTES, end, RANGE_BYTES)
        ]
        return b"".join([found.data, *parts])

    @override
    def exists(self, name: str) -> bool:
        check_name(name)
        try:
            self._tries.run("look for", name, lambda: self._obstore.head(self._brisk, name))
        except ObjectMissing:
            return False
        return True

    @override
    def list(self, prefix: str) -> list[str]:
        folder = prefix.rpartition("/")[0]

        def pages() -> list[str]:
            return [entry["path"] for page in self._obstore.list(self._brisk, folder or None) for entry in page]

        names = self._tries.run("list", prefix or "everything", pages)
        return sorted(name for name in names if name.startswith(prefix) and not name.startswith("."))

    @override
    def delete(self, name: str) -> None:
        check_name(name)
        self._tries.run("delete", name, lambda: self._remove(name))

    @override
    def delete_all(self, names: Sequence[str]) -> None:
        """Deletes up to a thousand objects per request if the store supports it."""
        for name in names:
            check_name(name)
        for start in range(0, len(names), BULK):
            batch = list(names[start : start + BULK])
            if not (len(batch) > 1 and self._has_bulk and self._delete_batch(batch)):
                for name in batch:
                    self.delete(name)

    @override
    def probe(self) -> None:
        """Removes its test objects; rejects a store that ignores conditions."""
        name = f"probe/{self._token()}"
        try:
            self._probe(name)
        except StorageError as error:
            if error.fields.get("lasting"):
                with suppress(StorageError):
                    self.delete(name)
            raise
        self.delete(name)
        if self.exists(name):
            raise self._unfit(f"{name} is still there after it was deleted")

    # -- requests ------------------------------------------------------------------------------------------------------

    def _deadline_s(self, data: bytes) -> float:
        return self._limits.large_deadline_s if len(data) > LARGE_BYTES else self._limits.deadline_s

    def _write(self, name: str, data: bytes, **how: Any) -> None:
        client = self._patient if len(data) > LARGE_BYTES else self._brisk
        try:
            self._obstore.put(client, name, data, use_multipart=False, **how)
        except FileNotFoundError as error:
            raise Failed(_no_bucket(judge(error))) from None

    def _find_writer(self, name: str, taken: StoreFailure) -> str:
        """Returns the token of the writer that created the existing object."""
        try:
            found = self._obstore.get(self._brisk, name, options={"head": True})
        except FileNotFoundError:
            passing = taken.status == CONFLICT  # two requests collided in the store, which rejected both
            reason = f"{taken.reason}, yet nothing is there; somebody else deletes it"
            raise Failed(
                StoreFailure(FailureKindOfStore.PASSING if passing else FailureKindOfStore.LASTING, reason)
            ) from None
        return str(found.attributes.get(WRITER, ""))

    def _read_head(self, name: str) -> bytes | tuple[int, str]:
        """Returns the content, or size and tag of a large object."""
        try:
            found = self._obstore.get(self._brisk, name)
            size = int(found.meta["size"])
            if size > LARGE_BYTES:
                return size, found.meta["e_tag"] or ""
            return bytes(found.bytes().to_bytes())
        except FileNotFoundError as error:
            raise Failed(judge(error)) from None

    def _read_first(self, name: str, start: int, length: int) -> _Part:
        """Reads up to `length` bytes from `start` on.

        Returns no bytes if the object ends before, a case that stores and obstore reject in many ways.
        """
        try:
            if length:
                found = self._obstore.get(self._brisk, name, options={"range": (start, start + length)})
                return _Part(bytes(found.bytes().to_bytes()), int(found.meta["size"]), found.meta["e_tag"] or "")
        except self._errors as error:
            failure = judge(error)
            if failure.kind is not FailureKindOfStore.LASTING or start < self._size(name):
                raise Failed(failure) from None
        return _Part(b"", self._size(name), "")

    def _size(self, name: str) -> int:
        return int(self._obstore.head(self._brisk, name)["size"])

    def _read_range(self, name: str, start: int, end: int, tag: str) -> bytes:
        options: Any = {"range": (start, end), **({"if_match": tag} if tag else {})}

        def read() -> bytes:
            data = bytes(self._obstore.get(self._brisk, name, options=options).bytes().to_bytes())
            if len(data) != end - start:
                raise Failed(
                    StoreFailure(
                        FailureKindOfStore.LASTING, f"{len(data)} bytes came where {end - start} were asked for"
                    )
                )
            return data

        return self._tries.run("read", name, read)

    def _remove(self, name: str) -> None:
        try:
            self._obstore.delete(self._brisk, name)
        except FileNotFoundError as error:
            if judge(error).kind is not FailureKindOfStore.ABSENT:
                raise

    def _delete_batch(self, names: Sequence[str]) -> bool:
        """Returns whether the objects were deleted in one request; a store without support is not asked again."""
        try:
            self._tries.run(
                "delete",
                f"{len(names)} objects",
                lambda: self._obstore.delete(self._bulk, names),
                self._limits.bulk_deadline_s,
            )
        except ObjectMissing:
            return False  # one was already deleted, and it is unknown which others are
        except StorageError as error:
            if not error.fields.get("lasting"):
                raise
            self._has_bulk = False
            return False
        return True

    # -- probe ---------------------------------------------------------------------------------------------------------

    def _probe(self, name: str) -> None:
        if not self.put_if_absent(name, b"first"):
            raise self._unfit(f"a new name was taken already: {name}")
        if self.put_if_absent(name, b"other") or self.get(name) != b"first":
            raise self._unfit(
                "it lets an existing object be created again (it ignores `If-None-Match: *`): two daemons could both "
                "win there"
            )
        self.put(name, b"second")
        if self.get(name) != b"second":
            raise self._unfit(f"{name} reads differently than written last")
        if self.list("probe/").count(name) != 1:
            raise self._unfit(f"{name} is not in the listing right after it was written")
        self._race(f"{name}-race")

    def _race(self, name: str) -> None:
        """Creates one name from several threads at a time.

        This detects a store that checks before it writes, if it is slow enough.
        """
        won: list[bool] = []
        failed: list[StorageError] = []

        def create(number: int) -> None:
            try:
                won.append(self.put_if_absent(name, b"%d" % number))
            except StorageError as error:
                failed.append(error)

        racers = [threading.Thread(target=create, args=(number,), daemon=True) for number in range(RACERS)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
        self.delete(name)
        if failed:
            raise failed[0]
        if won.count(True) != 1:
            raise self._unfit(f"{won.count(True)} of {RACERS} won when they created one name at a time")

    def _unfit(self, problem: str) -> StorageError:
        return StorageError(
            f"{self.location}: the store cannot keep checkpoints: {problem}. Choose one with conditional writes and "
            "consistent reads (`tidegate docs operations/object-stores`, What the store must do), or a directory that "
            "all machines mount",
            location=self.location,
            lasting=True,
        )


def _no_bucket(failure: StoreFailure) -> StoreFailure:
    """Classifies a 404 of a write: a missing object cannot be the cause."""
    remedy = failure.remedy or "create the bucket, or correct `checkpoints.directory`"
    return StoreFailure(FailureKindOfStore.LASTING, failure.reason, remedy, failure.status)
