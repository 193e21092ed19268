"""Proof that the daemon and its slots access the same storage: each writes an object that the other one reads.

An executor with a local disk under the same path works until a restore, which does not find its state.
"""

from __future__ import annotations

from typing import Final

from tidegate.clock import Clock
from tidegate.errors import AttemptFailed, PipelineStopped, TidegateError
from tidegate.ids import Attempt, SlotIndex
from tidegate.storage.base import ObjectMissing, Storage, StorageError
from tidegate.storage.names import PROOF_PREFIX

TRIES: Final = 5
PAUSE_S: Final = 0.2
"""A network file system may show a new file with a delay."""
REMEDY: Final = "`checkpoints.directory` must be one directory for the daemon and all executors: mount it on that host"


class StorageNotShared(PipelineStopped):
    """`checkpoints.directory` is not the same place for the daemon and a slot."""

    code = "storage-not-shared"
    exit_code = 2


class StorageReplaced(AttemptFailed):
    """`checkpoints.directory` was temporarily another place: objects written there are missing here."""

    code = "storage-replaced"


class Proof:
    """The proof of one attempt. `secret` is random, so that no older object is mistaken for it."""

    def __init__(self, storage: Storage, attempt: Attempt, secret: str, clock: Clock) -> None:
        self._storage = storage
        self._attempt = attempt
        self.secret = secret
        self._clock = clock

    def write_daemons(self) -> None:
        """Writes the daemon's object, before slots are deployed. Raises StorageError."""
        self._storage.put(self._name("daemon"), self.secret.encode())

    def answer(self, slot: SlotIndex, host: str) -> None:
        """Reads the daemon's object and writes the slot's, in the slot. Raises StorageNotShared and StorageError."""
        if not self._is_there("daemon"):
            raise StorageNotShared(
                f"slot {slot} on {host} cannot read the object that the daemon has written to "
                f"{self._storage.location}: {REMEDY}",
                slot=slot,
                host=host,
                location=self._storage.location,
            )
        self._storage.put(self._name(f"slot-{slot}"), self.secret.encode())

    def check(self, slot: SlotIndex, host: str) -> None:
        """Reads the slot's object in the daemon, when the slot reports that it runs. Raises StorageNotShared and
        StorageError.
        """
        if not self._is_there(f"slot-{slot}"):
            raise StorageNotShared(
                f"the daemon cannot read the object that slot {slot} on {host} has written to "
                f"{self._storage.location}: {REMEDY}",
                slot=slot,
                host=host,
                location=self._storage.location,
            )

    def derive_cause(self, unseen: StorageNotShared) -> TidegateError:
        """Determines, in the daemon, why a slot does not see the daemon's object.

        If the daemon does not see it either, a volume was not mounted then and is mounted now. The next attempt
        continues with what is there.
        """
        try:
            if self._is_there("daemon"):
                return unseen
        except StorageError:
            return unseen
        return StorageReplaced(
            f"what this daemon has written to {self._storage.location} no longer exists: was its volume unmounted "
            f"and mounted again?",
            location=self._storage.location,
        )

    def remove(self) -> None:
        """Deletes the objects of this attempt and earlier ones. Raises StorageError.

        Keeps those of later attempts, since this daemon may have been superseded without knowing it.
        """
        mine = _derive_prefix(Attempt(self._attempt + 1))
        self._storage.delete_all([name for name in self._storage.list(PROOF_PREFIX) if name < mine])

    def _is_there(self, who: str) -> bool:
        for tries_left in reversed(range(TRIES)):
            try:
                return self._storage.get(self._name(who)) == self.secret.encode()
            except ObjectMissing:
                if tries_left:
                    self._clock.sleep(PAUSE_S)
        return False

    def _name(self, who: str) -> str:
        return f"{_derive_prefix(self._attempt)}{who}"


def _derive_prefix(attempt: Attempt) -> str:
    """Returns a prefix that sorts by attempt."""
    return f"{PROOF_PREFIX}{attempt:012d}-"
