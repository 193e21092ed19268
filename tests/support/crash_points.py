"""Injects a fault at every durable system call of one life, one after the other.

`python -m tests.support.crash_points LIFE WAY[,WAY...] [BUG]`, with the names below. BUG plants a bug to show that it
is found. Each case runs on a fresh copy of a directory, and a fresh process then judges the result. Prints one line for
each case and a summary for each way. The exit code is 1 if a case ends in a state that is not allowed, or its fault did
not happen.
"""

from __future__ import annotations

import errno
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from tests.support import storage_life
from tests.support.crash_tracer import FAILED, GROWS, WRITES, Action, Call, Child, Fault, Traced, is_durable, run
from tests.support.power_cut import Disk
from tidegate.storage.local import LocalStorage

Life = Callable[[Child, Path], None]
LIVES: Final[dict[str, Life]] = {
    "checkpoint": storage_life.take_checkpoints,
    "recovery": storage_life.recover,
}


class Way(msgspec.Struct, frozen=True):
    """A kind of fault and the calls that it applies to."""

    action: Action
    error: int = 0
    names: frozenset[str] | None = None
    """None: all calls."""
    reads: bool = False
    """Applies to reads instead of durable calls."""

    def counts(self, call: Call) -> bool:
        """Returns whether the call is numbered."""
        return is_durable(call) != self.reads

    def strikes(self, call: Call) -> bool:
        """Returns whether the call is a target."""
        return self.names is None or call.name in self.names


WAYS: Final[dict[str, Way]] = {
    "kill-before": Way(Action.KILL_BEFORE),
    "kill-after": Way(Action.KILL_AFTER),
    "kill-half-written": Way(Action.KILL_HALF, names=WRITES),
    "eio": Way(Action.FAIL, errno.EIO),
    "eio-for-good": Way(Action.FAIL_FOR_GOOD, errno.EIO),
    "enospc": Way(Action.FAIL, errno.ENOSPC, names=GROWS),
    "enospc-for-good": Way(Action.FAIL_FOR_GOOD, errno.ENOSPC, names=GROWS),
    "eio-read": Way(Action.FAIL, errno.EIO, reads=True),
}
POWER_CUT: Final = "power-cut"


def serve(life: str, way: Way) -> Iterator[tuple[str, bool]]:
    """Yields a line for every case and whether its state is allowed."""
    with tempfile.TemporaryDirectory(prefix="crash-points-") as folder:
        base = _make_base(Path(folder), life)
        whole = _run(Path(folder) / "whole", base, LIVES[life], None, way)
        assert (whole.killed, whole.exit_code) == (False, 0), whole.told
        for number, call in enumerate(whole.calls):
            if way.strikes(call):
                place = Path(folder) / f"{number}"
                fault = Fault(number, way.action, way.error)
                yield _describe(life, fault, call, place, _run(place, base, LIVES[life], fault, way))
                shutil.rmtree(place)


def serve_power_cuts(life: str) -> Iterator[tuple[str, bool]]:
    """Yields the same as `serve` for the worst states that a power cut after every call may leave."""
    with tempfile.TemporaryDirectory(prefix="crash-points-") as folder:
        base = _make_base(Path(folder), life)
        place = Path(folder) / "place"
        shutil.copytree(base, place)
        disks: list[Disk] = []
        images: list[tuple[str, Path, str]] = []

        def observe(call: Call | None, told: str) -> None:
            if call is None:
                disks.append(Disk(place))
                return
            disks[0].after(call)
            for names_survive in (False, True):
                image = Path(folder) / f"image-{len(images)}"
                disks[0].write_image(image, names_survive=names_survive)
                left = "names without contents" if names_survive else "nothing"
                where = f"{life}, power cut after call {len(images) // 2} ({call}), {left} of the rest"
                images.append((where, image, told))

        found = run(place, lambda child: LIVES[life](child, place), observe=observe)
        assert (found.killed, found.exit_code) == (False, 0), found.told
        for where, image, told in images:
            judged = _judge(image, told)
            yield f"{where}: {judged.told.strip()}", judged.exit_code == 0


def _make_base(folder: Path, life: str) -> Path:
    base = folder / "base"
    storage_life.build(base)
    if life == "recovery":
        storage_life.litter(base)
    return base


def _run(place: Path, base: Path, life: Life, fault: Fault | None, way: Way) -> Traced:
    shutil.copytree(base, place, copy_function=shutil.copy2)
    return run(place, lambda child: life(child, place), fault, way.counts)


def _describe(life: str, fault: Fault, call: Call, place: Path, found: Traced) -> tuple[str, bool]:
    where = f"{life} {fault.action.value} call {fault.at} ({call})"
    problem = ""
    if found.hit is None or found.hit.name != call.name:
        problem = f"the fault did not happen: {found.hit}"
    elif fault.action.value.startswith("killed") != found.killed:
        problem = f"it was {'' if found.killed else 'not '}killed"
    elif not found.killed and found.exit_code not in (0, FAILED):
        problem = f"exit code {found.exit_code}"
    elif found.exit_code == FAILED and "StorageError" not in found.told and "ObjectCorrupt" not in found.told:
        problem = "it ended otherwise than with an error of the storage"
    if not problem:
        judged = _judge(place, found.told)
        if judged.exit_code == 0:
            return f"{where}: {judged.told.strip()}", True
        problem = judged.told
    return f"{where}: {problem}\ntold:\n{found.told}", False


def _judge(place: Path, told: str) -> Traced:
    """Judges the state in a process of its own, as the next daemon would be."""

    def work(child: Child) -> None:
        child.begin()
        child.tell(storage_life.judge(place, told))

    return run(place, work)


def _write_in_place(storage: LocalStorage, name: str, data: bytes) -> bool:
    target = storage._path(name)
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return True


def _plant(bug: str) -> None:
    match bug:
        case "no-content-sync":
            LocalStorage._write_synced = lambda self, path, data: path.write_bytes(data)  # type: ignore[assignment, method-assign]  # a planted bug may be crude
        case "no-folder-sync":
            LocalStorage._sync_folder = lambda self, folder: None  # type: ignore[method-assign]  # see above
        case "in-place":
            LocalStorage.put_if_absent = _write_in_place  # type: ignore[method-assign, assignment]  # see above
        case _:
            raise ValueError(bug)


def main() -> int:
    """Runs all cases of LIFE and each WAY."""
    life, ways, *bugs = sys.argv[1:]
    for bug in bugs:
        _plant(bug)
    return max(_strike(life, way) for way in ways.split(","))


def _strike(life: str, way: str) -> int:
    cases = bad = 0
    for line, good in serve_power_cuts(life) if way == POWER_CUT else serve(life, WAYS[way]):
        cases += 1
        bad += not good
        print(line if good else f"NOT ALLOWED: {line}", flush=True)
    print(f"{life} {way}: {cases} cases, {bad} not in an allowed state", flush=True)
    return 1 if bad or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
