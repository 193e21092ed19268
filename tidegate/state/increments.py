"""The choice of entries for the next snapshot: all of them, or those changed since an older snapshot (F28). Pure.

A snapshot may build only on the newest checkpoint that is known to be completed: a snapshot in flight may be abandoned
together with its files. The files of a completed checkpoint are kept while it is one of the `retained` newest ones.
Every snapshot in flight may push it back by one place, so with `retained` of them in flight the next snapshot is full.

The files of a snapshot are layers that are read in order: a full one, then increments. A new increment absorbs the
preceding ones that are less than twice as large, as long as it stays small compared with the state; larger ones remain
separate. This keeps the number of layers low. If all increments together would be as large as a full snapshot, a full
one is written instead. Restored files are layers like others, except that none is absorbed, because their keys are not
known.

A snapshot begins while the slot loop waits. Large key sets are therefore merged only when the snapshot is encoded;
until then only an upper bound of their size is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import msgspec

from tidegate.ids import CheckpointId

LAYERS_MAX: Final = 48
SMALL: Final = 1000
"""The number of entries up to which an increment may absorb others, however small the state is."""
SMALL_PART: Final = 20
"""Beyond SMALL, an increment may absorb others while it has at most 1 / SMALL_PART of the state's entries."""
JOINED_AT_ONCE: Final = 10_000
TRACKED_MAX: Final = 1_000_000
"""Changed keys that are remembered in total. Beyond it, snapshots are full, and old increments are not absorbed."""

File = TypeVar("File")
"""A reference to a stored file."""


class ChangeSet(Protocol):
    """The keys that have changed in an interval, each once, in the form in which a backend remembers them."""

    def __len__(self) -> int:
        """Returns the number of keys."""

    def add(self, keys: Any) -> None:
        """Adds keys."""

    def joined(self, others: Sequence[Self]) -> Self:
        """Returns the keys of this set and of others, none of which changes any more. Runs on any thread."""


class ChangedKeys(dict[Any, None]):
    """The keys themselves, in insertion order, which is the same in every process."""

    def add(self, keys: Iterable[Any]) -> None:
        """Adds keys."""
        self.update(keys if isinstance(keys, dict) else dict.fromkeys(keys))

    def joined(self, others: Sequence[ChangedKeys]) -> ChangedKeys:
        """Returns the keys of all these sets."""
        found = ChangedKeys()
        for part in (self, *others):
            for key in part:  # key by key, so that other threads get a turn
                found[key] = None
        return found


Changes = tuple[ChangeSet, ...] | None
"""Sets that no longer change; None if there were too many keys to remember."""


class KeySet:
    """The keys of several sets, which may overlap."""

    def __init__(self, parts: Iterable[ChangeSet]) -> None:
        """The parts must not change any more."""
        self._parts = tuple(part for part in parts if part)
        if len(self) <= JOINED_AT_ONCE:
            self.joined()

    def __len__(self) -> int:
        """Returns the number of keys. Before `joined` has run, this is an upper bound."""
        return sum(map(len, self._parts))

    def __or__(self, other: KeySet) -> KeySet:
        """Returns the keys of both."""
        return KeySet((*self._parts, *other._parts))

    def joined(self) -> Any:
        """Returns the set that has every key once, in the backend's form. May be called on another thread."""
        if not self._parts:
            return ()
        first, *others = self._parts
        if others:
            first = first.joined(others)
            self._parts = (first,)
        return first


class Capture(msgspec.Struct, Generic[File], frozen=True):
    """The synchronous part of a snapshot. `encode` may run on another thread and sees this moment (F23)."""

    encode: Callable[[], Iterable[bytes]] | None
    """Returns the snapshot's own files, at least one; None if nothing has changed."""
    builds_on: tuple[File, ...] = ()
    """Files of older snapshots, to be read in this order before the snapshot's own files."""
    keyed: bool = True
    """False for a list, whose files every subtask reads at a restore."""

    @property
    def increment(self) -> bool:
        """Whether the snapshot's own files are incomplete without others."""
        return bool(self.builds_on)


class Extent(msgspec.Struct, Generic[File], frozen=True):
    """What a snapshot has to contain."""

    keys: KeySet | None
    """None: all keys."""
    builds_on: tuple[File, ...] = ()


class RestoredLayer(msgspec.Struct, Generic[File], frozen=True):
    """The restored files of one snapshot."""

    entries: int
    files: tuple[File, ...]


class _Layer(Generic[File]):
    """The files of one snapshot. The `keys` of an increment are known while another increment can absorb it."""

    def __init__(self, entries: int, keys: KeySet | None, files: tuple[File, ...] = ()) -> None:
        self._entries = entries
        self.keys = keys
        self.files = files

    @property
    def entries(self) -> int:
        return self._entries if self.keys is None else len(self.keys)

    def forget_keys(self) -> None:
        self._entries, self.keys = self.entries, None


class _Flight(Generic[File]):
    """A snapshot whose checkpoint is not known to be completed or abandoned."""

    def __init__(self, below: Sequence[_Layer[File]], own: _Layer[File] | None, changed: Changes) -> None:
        self.below = tuple(below)
        self.own = own
        self.changed = changed
        """Keys that changed between the previous snapshot and this one."""

    @property
    def layers(self) -> tuple[_Layer[File], ...]:
        return self.below if self.own is None else (*self.below, self.own)


class Increments(Generic[File]):
    """The snapshots of one state of one operator in one subtask. Used only from the loop's thread."""

    def __init__(self, retained: int, new: Callable[[], ChangeSet] = ChangedKeys) -> None:
        """`retained`: the number of completed checkpoints that are kept, at least 1. `new` creates an empty set."""
        self._retained = retained
        self._new = new
        self._changed: ChangeSet | None = new()
        """Keys that changed since the last snapshot."""
        self._given_up: Changes = ()
        """Keys that changed before it, in intervals whose snapshots were abandoned."""
        self._base: tuple[_Layer[File], ...] = ()
        self._flights: dict[CheckpointId, _Flight[File]] = {}
        self._newest = CheckpointId(0)

    def restored(self, layers: Iterable[RestoredLayer[File]]) -> None:
        """Makes the files of the restored checkpoint the base of the next snapshots, as if it had just completed.

        Together they must contain exactly the current entries. Must be called before the first change.
        """
        self._base = tuple(_Layer(layer.entries, None, layer.files) for layer in layers)

    def touch(self, keys: Any) -> None:
        """Records that these keys have been set or deleted (see ChangeSet). Without a base, none are recorded before
        the first snapshot.
        """
        if self._changed is not None and (self._base or self._flights):
            self._changed.add(keys)
            if len(self._changed) > TRACKED_MAX:
                self._changed = None

    def begin(self, checkpoint: CheckpointId, held: int) -> Extent[File]:
        """Decides what a snapshot of `held` keys contains, which is taken now.

        A snapshot that is older than the newest one belongs to an abandoned checkpoint: it is full, and nothing is
        recorded.
        """
        if checkpoint <= self._newest:
            return Extent(None)
        self._newest = checkpoint
        changed = _joined(self._given_up, None if self._changed is None else (self._changed,))
        self._changed, self._given_up = self._new(), ()
        below: tuple[_Layer[File], ...] = ()
        keys: KeySet | None = None
        parts = changed
        for flight in reversed(self._flights.values()):
            parts = _joined(flight.changed, parts)
        if self._base and len(self._flights) < self._retained and parts is not None:
            below, keys = _decide_layers(self._base, parts, held)
        own: _Layer[File] | None = None
        if keys is None or len(keys):
            own = _Layer(held, keys)
        flight = self._flights[checkpoint] = _Flight(below, own, changed)
        _forget_keys(flight.layers[1:])
        return Extent(keys, tuple(file for layer in below for file in layer.files))

    def stored(self, checkpoint: CheckpointId, files: Sequence[File]) -> None:
        """Records that the snapshot's own files are durable."""
        flight = self._flights.get(checkpoint)
        if flight is not None and flight.own is not None:
            flight.own.files = tuple(files)

    def completed(self, checkpoint: CheckpointId) -> None:
        """Makes the checkpoint the base of the next snapshots. Older checkpoints can no longer complete."""
        flight = self._flights.get(checkpoint)
        if flight is None:
            return
        if flight.own is not None and not flight.own.files:
            raise RuntimeError(f"checkpoint {checkpoint} is completed, but nothing was stored for it")
        self._base = flight.layers
        self._flights = {other: one for other, one in self._flights.items() if other > checkpoint}

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """Records that the checkpoint was abandoned: later snapshots must include the changes before it."""
        flight = self._flights.pop(checkpoint, None)
        if flight is None:
            return
        for other, behind in self._flights.items():
            if other > checkpoint:
                behind.changed = _joined(flight.changed, behind.changed)
                return
        self._given_up = _joined(self._given_up, flight.changed)


def _decide_layers(
    base: tuple[_Layer[File], ...], changed: tuple[ChangeSet, ...], held: int
) -> tuple[tuple[_Layer[File], ...], KeySet | None]:
    """Returns the layers to build on and the keys of the new layer, None for a full one."""
    if any(len(part) >= max(1, held) for part in changed):
        return (), None  # the increment would be as large as a full snapshot, which is faster than joining the sets
    keys = KeySet(changed)
    if not len(keys):
        return base, keys
    below, small = list(base), max(SMALL, held // SMALL_PART)
    while (taken := below[-1].keys) is not None and len(taken) < 2 * len(keys):  # None in the lowest, full layer
        if len(keys) + len(taken) > small:
            break
        keys |= taken
        below.pop()
    if len(below) >= LAYERS_MAX or sum(layer.entries for layer in below[1:]) + len(keys) >= held:
        return (), None
    return tuple(below), keys


def _joined(one: Changes, other: Changes) -> Changes:
    """Returns the changes of both; None if they are so many that a full snapshot is cheaper."""
    if one is None or other is None:
        return None
    return (*one, *other) if sum(map(len, (*one, *other))) <= TRACKED_MAX else None


def _forget_keys(increments: Sequence[_Layer[Any]]) -> None:
    """Forgets the keys of the lowest increments, which are the largest, until few enough are remembered."""
    tracked = sum(len(layer.keys) for layer in increments if layer.keys is not None)
    for layer in increments:
        if tracked <= TRACKED_MAX:
            return
        tracked -= 0 if layer.keys is None else len(layer.keys)
        layer.forget_keys()
