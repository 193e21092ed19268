"""Proof that the daemon and its slots see one storage: each writes an object that the other one reads.

An executor with a disk of its own under the same path works perfectly until somebody restores: its state is nowhere.
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
"""A network file system may show a new file a moment later."""
REMEDY: Final = "`checkpoints.directory` must be one directory for the daemon and all executors: mount it on that host"


class StorageNotShared(PipelineStopped):
    """`checkpoints.directory` is not the same place for everybody."""

    code = "storage-not-shared"
    exit_code = 2


class StorageExchanged(AttemptFailed):
    """`checkpoints.directory` was another place for a while: what was written there is not here."""

    code = "storage-exchanged"


class Proof:
    """Of one attempt. `secret` is random, so that nothing from before can be taken for it."""

    def __init__(self, storage: Storage, attempt: Attempt, secret: str, clock: Clock) -> None:
        self._storage = storage
        self._attempt = attempt
        self.secret = secret
        self._clock = clock

    def write_daemons(self) -> None:
        """Before slots are deployed. Raises StorageError."""
        self._storage.put(self._name("daemon"), self.secret.encode())

    def answer(self, slot: SlotIndex, host: str) -> None:
        """In the slot: read the daemon's object, write the own one. Raises StorageNotShared, StorageError."""
        if not self._is_there("daemon"):
            raise StorageNotShared(
                f"slot {slot} on {host} does not see what the daemon has written to {self._storage.location}: {REMEDY}",
                slot=slot,
                host=host,
                location=self._storage.location,
            )
        self._storage.put(self._name(f"slot-{slot}"), self.secret.encode())

    def check(self, slot: SlotIndex, host: str) -> None:
        """In the daemon, when the slot says that it runs. Raises StorageNotShared, StorageError."""
        if not self._is_there(f"slot-{slot}"):
            raise StorageNotShared(
                f"the daemon does not see what slot {slot} on {host} has written to {self._storage.location}: {REMEDY}",
                slot=slot,
                host=host,
                location=self._storage.location,
            )

    def derive_cause(self, unseen: StorageNotShared) -> TidegateError:
        """In the daemon, when a slot does not see what it has written: nobody does where a volume was not mounted then,
        and is now. The next attempt finds out what is there.
        """
        try:
            if self._is_there("daemon"):
                return unseen
        except StorageError:
            return unseen
        return StorageExchanged(
            f"what this daemon has written to {self._storage.location} is not there any more: was its volume unmounted "
            f"meanwhile, and mounted again?",
            location=self._storage.location,
        )

    def remove(self) -> None:
        """What this attempt, and those before it, have written. Raises StorageError.

        Not what a later one has: this daemon may be superseded without knowing it yet.
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
    """Names sort by attempt."""
    return f"{PROOF_PREFIX}{attempt:012d}-"
