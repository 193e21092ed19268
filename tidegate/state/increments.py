"""Which entries the next snapshot writes: all of them, or those that changed since an older snapshot (F28). Pure.

A snapshot may build on the newest checkpoint that is known to be completed, and on nothing else: whatever is in flight
may be given up together with its files. The files of a completed checkpoint are kept while it is one of the `retained`
newest ones; every snapshot in flight may push it back by one place, so with `retained` of them in flight the next
snapshot is a full one.

The files of a snapshot are layers, to be read in order: a full one, then increments. A new increment takes in those
before it that are less than twice as large, so there are few, as long as it stays small beside the state; larger ones
stay by themselves. When all of them together would be as large as a full snapshot, a full one is written instead.

A snapshot begins while the slot loop waits, so sets of many keys are only put together by whoever encodes it; until
then it is only known how many they are at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from tidegate.ids import CheckpointId

LAYERS_MAX: Final = 48
SMALL: Final = 1000
"""Entries of an increment that may take in others however small the state is."""
SMALL_PART: Final = 20
"""Else it may while it has at most this part of the entries that are held."""
JOINED_AT_ONCE: Final = 10_000
TRACKED_MAX: Final = 1_000_000
"""Changed keys that are remembered, in all; beyond them snapshots are full, and old increments are not taken in."""

File = TypeVar("File")
"""Whatever stands for a stored file."""

Keys = dict[Any, Any]
"""A set in the order of insertion, which is the same in every process; the values mean nothing."""


Changes = tuple[Keys, ...] | None
"""Sets that nobody changes any more; None: too many keys to be known."""


class KeySet:
    """Keys from sets that may overlap."""

    def __init__(self, parts: Iterable[Keys]) -> None:
        """Nobody changes the parts any more."""
        self._parts = tuple(part for part in parts if part)
        if len(self) <= JOINED_AT_ONCE:
            self.joined()

    def __len__(self) -> int:
        """How many they are; before somebody has joined them, how many at most."""
        return sum(map(len, self._parts))

    def __or__(self, other: KeySet) -> KeySet:
        """The keys of both."""
        return KeySet((*self._parts, *other._parts))

    def joined(self) -> Keys:
        """Each once; may be called on another thread."""
        if len(self._parts) == 1:
            return self._parts[0]
        joined: Keys = {}
        for part in self._parts:
            for key in part:  # key by key, so that other threads get their turns
                joined[key] = None
        self._parts = (joined,)
        return joined


class Capture(msgspec.Struct, Generic[File], frozen=True):
    """The synchronous part of a snapshot. `encode` may run on another thread and sees this moment (F23)."""

    encode: Callable[[], Iterable[bytes]] | None
    """The snapshot's own files, at least one; None when nothing has changed."""
    builds_on: tuple[File, ...] = ()
    """Files of older snapshots, to be read before its own, in this order."""
    keyed: bool = True
    """False for a list, whose files every subtask reads at a restore."""

    @property
    def increment(self) -> bool:
        """Whether its own files are nothing without others."""
        return bool(self.builds_on)


class Extent(msgspec.Struct, Generic[File], frozen=True):
    """What a snapshot has to hold."""

    keys: KeySet | None
    """None: everything."""
    builds_on: tuple[File, ...] = ()


class _Layer(Generic[File]):
    """The files of one snapshot. `keys` of an increment are known while it can be taken in by another."""

    def __init__(self, entries: int, keys: KeySet | None) -> None:
        self._entries = entries
        self.keys = keys
        self.files: tuple[File, ...] = ()

    @property
    def entries(self) -> int:
        return self._entries if self.keys is None else len(self.keys)

    def forget_keys(self) -> None:
        self._entries, self.keys = self.entries, None


class _Flight(Generic[File]):
    """A snapshot whose checkpoint is not decided, as far as is known."""

    def __init__(self, below: Sequence[_Layer[File]], own: _Layer[File] | None, changed: Changes) -> None:
        self.below = tuple(below)
        self.own = own
        self.changed = changed
        """Keys that changed between the snapshot before it and this one."""

    @property
    def layers(self) -> tuple[_Layer[File], ...]:
        return self.below if self.own is None else (*self.below, self.own)


class Increments(Generic[File]):
    """See the module. One state of one operator in one subtask, from the loop's thread only."""

    def __init__(self, retained: int) -> None:
        """`retained`: completed checkpoints that are kept, at least 1."""
        self._retained = retained
        self._changed: Keys | None = {}
        """Since the last snapshot."""
        self._given_up: Changes = ()
        """Before it, in intervals whose snapshots were given up."""
        self._base: tuple[_Layer[File], ...] = ()
        self._flights: dict[CheckpointId, _Flight[File]] = {}
        self._newest = CheckpointId(0)

    def touch(self, keys: Iterable[Any]) -> None:
        """These keys have been set, or deleted. Before the first snapshot nobody needs to know which."""
        if self._changed is not None and (self._base or self._flights):
            self._changed.update(keys if isinstance(keys, dict) else dict.fromkeys(keys))
            if len(self._changed) > TRACKED_MAX:
                self._changed = None

    def begin(self, checkpoint: CheckpointId, held: int) -> Extent[File]:
        """A snapshot of `held` keys is taken now.

        One that comes after a newer one is given up by now: it is full, and nothing is noted.
        """
        if checkpoint <= self._newest:
            return Extent(None)
        self._newest = checkpoint
        changed = _joined(self._given_up, None if self._changed is None else (self._changed,))
        self._changed, self._given_up = {}, ()
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
        """The snapshot's own files are durable."""
        flight = self._flights.get(checkpoint)
        if flight is not None and flight.own is not None:
            flight.own.files = tuple(files)

    def completed(self, checkpoint: CheckpointId) -> None:
        """The checkpoint is decided: the next snapshots build on it. What is older can never complete."""
        flight = self._flights.get(checkpoint)
        if flight is None:
            return
        if flight.own is not None and not flight.own.files:
            raise RuntimeError(f"checkpoint {checkpoint} is completed, but nothing was stored for it")
        self._base = flight.layers
        self._flights = {other: one for other, one in self._flights.items() if other > checkpoint}

    def abandoned(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up: what changed before it has still to be written by those after it."""
        flight = self._flights.pop(checkpoint, None)
        if flight is None:
            return
        for other, behind in self._flights.items():
            if other > checkpoint:
                behind.changed = _joined(flight.changed, behind.changed)
                return
        self._given_up = _joined(self._given_up, flight.changed)


def _decide_layers(
    base: tuple[_Layer[File], ...], changed: tuple[Keys, ...], held: int
) -> tuple[tuple[_Layer[File], ...], KeySet | None]:
    """The layers to build on, and the keys of the new one, None for a full one."""
    if any(len(part) >= max(1, held) for part in changed):
        return (), None  # it would be as large: quicker than to join them
    keys = KeySet(changed)
    if not len(keys):
        return base, keys
    below, small = list(base), max(SMALL, held // SMALL_PART)
    while (taken := below[-1].keys) is not None and len(taken) < 2 * len(keys):  # those of the lowest, full, are None
        if len(keys) + len(taken) > small:
            break
        keys |= taken
        below.pop()
    if len(below) >= LAYERS_MAX or sum(layer.entries for layer in below[1:]) + len(keys) >= held:
        return (), None
    return tuple(below), keys


def _joined(one: Changes, other: Changes) -> Changes:
    """The changes of both; so many that a full snapshot is cheaper are not known any more."""
    if one is None or other is None:
        return None
    return (*one, *other) if sum(map(len, (*one, *other))) <= TRACKED_MAX else None


def _forget_keys(increments: Sequence[_Layer[Any]]) -> None:
    """The largest first, until few enough are remembered."""
    tracked = sum(len(layer.keys) for layer in increments if layer.keys is not None)
    for layer in increments:
        if tracked <= TRACKED_MAX:
            return
        tracked -= 0 if layer.keys is None else len(layer.keys)
        layer.forget_keys()
