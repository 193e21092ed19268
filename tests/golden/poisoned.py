"""Reads and writes all that is ever persisted, in a process where nothing can be pickled. Run by `test_no_pickle.py`.

Everything is done twice, since imports and the compilation of expressions (in Polars) do use pickle: once as it is, and
once with every function of pickle, cPickle, cloudpickle and marshal replaced by one that raises.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.golden import test_restore
from tests.golden.bench import close, load_plan, restore
from tests.support.rig import read_journal
from tests.task import test_inflight
from tidegate.ids import CheckpointId
from tidegate.journal.savepoint import check_whole, import_states, read_savepoint, write_savepoint
from tidegate.storage.local import LocalStorage

MODULES = ("pickle", "_pickle", "marshal", "cloudpickle")
NAMES = ("load", "loads", "dump", "dumps", "Pickler", "Unpickler", "_load", "_loads", "_dump", "_dumps")
BACKENDS = ("memory", "rocksdb")


class Pickled(AssertionError):
    """An object was serialized with its class, or read so."""


def refuse(*_: object, **__: object) -> object:
    raise Pickled


def poison() -> None:
    for name in MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        for one in NAMES:
            if hasattr(module, one):
                setattr(module, one, refuse)


def is_poisoned() -> bool:
    pickle = importlib.import_module("pickle")
    try:
        pickle.loads(pickle.dumps(1))
    except Pickled:
        return True
    return False


def do_all(folder: Path) -> Iterator[str]:
    """What was done; each part compares what it has read with what is expected."""
    for backend in BACKENDS:
        test_restore.test_states_of_every_step_are_restored(folder, 3, backend)
        yield f"every kind of step, checkpoint, {backend}"
    test_restore.test_the_savepoint_is_restored(folder)
    yield "savepoints"
    test_restore.test_rows_in_flight_are_restored(folder)
    yield "rows in flight"
    yield from write_all(folder)


def write_all(folder: Path) -> Iterator[str]:
    """What this release writes: state in full, rows in flight, a savepoint, and its way back."""
    plan, storage = load_plan(2), LocalStorage(str(folder / "checkpoints"))
    entry = read_journal(folder / "checkpoints").retained[-1]
    for backend in BACKENDS:
        written = 0
        for _, subtasks in restore(plan, entry.checkpoint, storage, backend):
            for states in subtasks:
                for state in states.values():
                    captured = state.capture(CheckpointId(9))
                    written += sum(map(len, captured.encode())) if captured.encode is not None else 0
            close(subtasks)
        assert written
        yield f"state written, {backend}"
    test_inflight.test_what_was_written_is_read_in_order_encoded_before_or_not()
    yield "rows in flight written"
    with tempfile.TemporaryDirectory(dir=folder) as target:
        place = LocalStorage(target)
        write_savepoint(storage, place, "saved", entry.checkpoint, entry.identity, "a" * 16)
        saved = LocalStorage(f"{target}/saved")
        savepoint = read_savepoint(saved)
        check_whole(savepoint, saved)
        assert import_states(savepoint, saved, place, CheckpointId(5))
    yield "savepoint written and imported"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    usual = list(do_all(place))
    poison()
    assert is_poisoned()
    for done in do_all(place):
        print(done)
        usual.remove(done)
    assert not usual, usual
