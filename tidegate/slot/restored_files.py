"""The state files that a slot restores: from copies on its machine if these are intact, else from the storage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from tidegate.coordinator.types import StateHandle
from tidegate.journal.state_files import read_parts, read_state
from tidegate.slot.copies import Copies
from tidegate.storage.base import StorageError, StorageReader
from tidegate.storage.checksum import unseal

logger = logging.getLogger(__name__)


class RestoredFiles:
    """A reader of state files that verifies them against their handles. Reads and raises as
    `journal/state_files.py`.
    """

    def __init__(self, storage: StorageReader, copies: Copies) -> None:
        self._storage = storage
        self._copies = copies
        self.copied_bytes = 0
        """Bytes read from copies."""
        self.fetched_bytes = 0
        """Bytes read from the storage."""

    def read_state(self, handle: StateHandle) -> bytes:
        """Returns the whole file, unsealed."""
        (body,) = self._read(handle, lambda place: [unseal(handle.path, read_state(place, handle))])
        return body

    def read_parts(self, handle: StateHandle, key_groups: range) -> Iterator[bytes]:
        """Yields the parts of the file within these key groups, as one or more files."""
        return self._read(handle, lambda place: read_parts(place, handle, key_groups))

    def _read(self, handle: StateHandle, read: Callable[[StorageReader], Iterable[bytes]]) -> Iterator[bytes]:
        """Falls back to the storage if a copy is damaged. Both have the same parts, so none is yielded twice."""
        given = 0
        if self._copies.has(handle.path):
            try:
                for part in read(self._copies):
                    given += 1
                    self.copied_bytes += len(part)
                    yield part
            except StorageError as damage:
                problem = damage.fields.get("problem", damage.message)
                logger.warning(
                    "a copy of state is removed, and %s is read instead: %s", self._storage.location, problem
                )
                self._copies.drop(handle.path)
            else:
                return
        for part in islice(read(self._storage), given, None):
            self.fetched_bytes += len(part)
            yield part
