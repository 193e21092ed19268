"""Resolves a text that names a checkpoint or savepoint to its contents and the storage that holds it.

Everything is opened read-only. No daemon, broker or Spark is contacted, and a running daemon is not disturbed.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Final

import msgspec

from tidegate.config.load import derive_opener, read_sections
from tidegate.coordinator.entries import Identity, Writer
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.errors import PipelineStopped
from tidegate.ids import is_checkpoint_number
from tidegate.journal.journal import Journal
from tidegate.journal.savepoint import METADATA, read_savepoint
from tidegate.storage.base import Storage
from tidegate.storage.names import JOURNAL_PREFIX
from tidegate.storage.open import StorageOpener, open_storage

NEWEST: Final = "newest"
PATH_SHOWN: Final = 300
"""Characters of a user-supplied path that are shown in messages."""
_CHOSEN: Final = re.compile(r"(?P<place>.+)@(?P<checkpoint>[0-9]{1,18}|newest)", re.DOTALL)


class SourceRefused(PipelineStopped):
    """The name does not refer to a readable checkpoint or savepoint."""

    code = "state-source-refused"
    exit_code = 2


class SnapshotKind(Enum):
    """The kind of object at a path."""

    NOTHING = auto()
    DIRECTORY = auto()
    FILE = auto()
    """Also a pipe: anything that is not a directory can be read."""


def kind_of(path: str) -> SnapshotKind:
    """Returns what exists at a path. Raises SourceRefused if that cannot be determined."""
    try:
        mode = Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return SnapshotKind.NOTHING
    except OSError as error:
        raise SourceRefused(
            f"{path[:PATH_SHOWN]} cannot be accessed: {error.strerror}; check the path and the permissions"
        ) from error
    return SnapshotKind.DIRECTORY if stat.S_ISDIR(mode) else SnapshotKind.FILE


class StateSnapshot(msgspec.Struct, frozen=True):
    """A checkpoint or a savepoint, and the storage of its files."""

    title: str
    """For people: `checkpoint 42 of DIRECTORY`, `savepoint PATH`."""
    storage: Storage
    checkpoint: CompletedCheckpoint
    identity: Identity
    retained: bool
    """True if it is a checkpoint of a pipeline, which the pipeline removes once it has newer ones."""


def open_snapshot(
    source: str, checkpoint: str | None, environ: Mapping[str, str], opener: StorageOpener = open_storage
) -> StateSnapshot:
    """Opens a savepoint, or a checkpoint of a pipeline file or checkpoint directory.

    `checkpoint` is a number or `newest`, the default. The text may also end with it: `pipeline.yaml@42`. `opener` opens
    addresses; storage of a pipeline file is opened as the file specifies. Raises SourceRefused, SavepointRefused,
    ConfigErrors, StorageError, JournalRefused.
    """
    place, chosen = source, checkpoint
    found = _CHOSEN.fullmatch(source)
    if found is not None and kind_of(source) is SnapshotKind.NOTHING:
        place = found["place"]
        if checkpoint not in (None, found["checkpoint"]):
            raise SourceRefused(f"{source} names checkpoint {found['checkpoint']}, --from names {checkpoint}: name one")
        chosen = found["checkpoint"]
    if chosen is not None and chosen != NEWEST and not is_checkpoint_number(chosen):
        raise SourceRefused(
            f"{chosen!r} is not a checkpoint: write its number, as `tidegate checkpoints` lists it, or newest"
        )
    return _open(place, chosen, environ, opener)


def _open(place: str, chosen: str | None, environ: Mapping[str, str], opener: StorageOpener) -> StateSnapshot:
    directory = place
    if "://" not in place:
        kind = kind_of(place)
        if kind is SnapshotKind.FILE:
            settings = read_sections(Path(place), environ, "checkpoints")
            directory, opener = settings.checkpoints.directory, derive_opener(settings)
        elif kind is SnapshotKind.NOTHING:
            raise SourceRefused(
                f"{place}: there is no such file or directory; name a pipeline file, a checkpoint directory or a "
                "savepoint"
            )
    storage = opener(directory, create=False)
    if storage.exists(METADATA) or not storage.list(JOURNAL_PREFIX):
        if directory != place:
            raise SourceRefused(f"{directory}, the checkpoint directory of {place}, has no checkpoints yet")
        if not storage.exists(METADATA):
            raise SourceRefused(
                f"{place} has no checkpoints and is not a savepoint; name a pipeline file, a checkpoint directory or "
                "the "
                "folder of a savepoint"
            )
        if chosen is not None:
            raise SourceRefused(
                f"{place} is a savepoint, which has no checkpoints to choose from: leave out the number"
            )
        found = read_savepoint(storage)
        return StateSnapshot(f"savepoint {place}", storage, found.checkpoint, found.identity, retained=False)
    return _choose(storage, directory, chosen)


def _choose(storage: Storage, directory: str, chosen: str | None) -> StateSnapshot:
    retained = read_journal(storage).retained
    numbers = [entry.checkpoint.id for entry in retained]
    wanted = int(chosen) if chosen not in (None, NEWEST) else numbers[-1] if numbers else 0
    for entry in retained:
        if entry.checkpoint.id == wanted:
            title = f"checkpoint {wanted} of {directory}"
            return StateSnapshot(title, storage, entry.checkpoint, entry.identity, retained=True)
    if not numbers:
        raise SourceRefused(f"{directory} has no checkpoints yet")
    there = ", ".join(map(str, numbers))
    raise SourceRefused(
        f"{directory} does not retain checkpoint {wanted} (it has: {there}); choose one of these, or name a savepoint "
        "by its path"
    )


def read_journal(storage: Storage, *, may_repeat: bool = False) -> JournalState:
    """Reads the state of a directory's journal; `may_repeat` is as in Journal.

    Raises StorageError, JournalRefused, ObjectCorrupt.
    """
    return Journal(storage, Writer("reader", "", 0), retained=1, id_reserve=1, may_repeat=may_repeat).read()
