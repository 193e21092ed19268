"""`python -m tests.stores`: the common suite on real stores, one that must be refused, costs, and a story of faults.

Builds the stores first, with Go and npm (versions in servers.py), into a directory that is kept. Exit code 1 when
anything is not as it has to be.
"""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tests.night.story import Night
from tests.storage.stores import VARIABLE, NamedStore
from tests.stores.measure import measure
from tests.stores.servers import azurite, build, name_azure, name_s3, rclone, versitygw
from tests.stores.story import run
from tidegate.storage.base import StorageError
from tidegate.storage.open import open_storage

SUITE = "tests/storage/test_contract.py"
PROGRAMS = Path("build/stores")
STORY_S = 600.0
OBJECTS, FEW = 10_000, 1_000
"""For the emulator few: each deletion takes it 50 ms when it holds 10,000 objects."""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, default=PROGRAMS, help="where the stores are built")
    parser.add_argument("--seconds", type=float, default=STORY_S, help="of the story, at least")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--parts", default=",".join(PARTS), help="by comma; default: all")
    options = parser.parse_args()
    if unknown := set(options.parts.split(",")) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    options.seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    programs = options.programs.resolve()
    build(programs)
    failed = []
    for name in options.parts.split(","):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="tidegate-stores-") as place:
            problem = PARTS[name](programs, Path(place), options)
        print(f"stores: {name}: {problem or 'passed'} ({time.monotonic() - began:.0f} s)", flush=True)
        failed += [name] if problem else []
    return len(failed) != 0


def suite(programs: Path, place: Path, options: argparse.Namespace) -> str:
    """All that a storage promises, and what it costs."""
    with ExitStack() as stack:
        stores = _start_both(stack, programs, place)
        listed = place / "stores"
        listed.write_bytes(b"\n".join(msgspec.json.encode(store) for store in stores))
        names = " or ".join(store.name for store in stores)
        command = [sys.executable, "-m", "pytest", SUITE, "-q", "-k", names]
        code = subprocess.run(command, env={**os.environ, VARIABLE: str(listed)}, check=False).returncode
    return f"pytest ended with {code}" if code else ""


def costs(programs: Path, place: Path, options: argparse.Namespace) -> str:
    """Figures; that everything could be done is all that is checked."""
    with ExitStack() as stack:
        for store in _start_both(stack, programs, place):
            objects = OBJECTS if store.name == "versitygw" else FEW
            print(f"{store.name}: {msgspec.json.encode(measure(store, objects)).decode()}", flush=True)
    return ""


def refusal(programs: Path, place: Path, options: argparse.Namespace) -> str:
    """A store that ignores conditional writes is found out by trying."""
    with rclone(programs, place) as server:
        store = name_s3("rclone", server.port, place)
        try:
            open_storage(store.address, options=store.options).probe()
        except StorageError as error:
            print(error.message, flush=True)
            return "" if "ignores `If-None-Match: *`" in error.message else "refused for another reason"
    return "a store that ignores conditional writes was accepted"


def story(programs: Path, place: Path, options: argparse.Namespace) -> str:
    """Kills and faults; the output is exact. Its directory is kept when it is not."""
    kept = Path(tempfile.mkdtemp(prefix="tidegate-stores-story-"))
    print(f"seed {options.seed}, in {kept}", flush=True)
    night = Night("object_store", options.seed, options.seconds, kept)
    result = run(night, programs)
    print(msgspec.json.encode(result).decode(), flush=True)
    if not result.problems:
        shutil.rmtree(kept, ignore_errors=True)
    return "; ".join(result.problems)


def _start_both(stack: ExitStack, programs: Path, place: Path) -> list[NamedStore]:
    return [
        name_s3("versitygw", stack.enter_context(versitygw(programs, place)).port, place),
        name_azure(stack.enter_context(azurite(programs, place)).port, place),
    ]


PARTS: dict[str, Callable[[Path, Path, argparse.Namespace], str]] = {
    "refusal": refusal,
    "suite": suite,
    "costs": costs,
    "story": story,
}

if __name__ == "__main__":
    sys.exit(main())
