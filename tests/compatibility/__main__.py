"""`python -m tests.compatibility`: Spark, Kafka, Python and Java of other versions, a real story of kills on each.

`--spark 3.5,4.0 --kafka 3.3 --python 3.12 --java 21` selects cells. Each prints one line of JSON when it ends; `--out`
appends the lines to a file. Exit code 1 when a cell has a problem. What is not to be had here is such a problem, too.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.compatibility.cells import AXES, Cell, derive_cells
from tests.compatibility.environments import CannotRun, environment, find_java_home
from tests.compatibility.releases import make_broker
from tests.tidy.tree import ROOT
from tidegate.errors import TidegateError

STORY_S: Final = 900.0
"""A story ends itself before."""
END_S: Final = 60.0
"""For the end of a story that is broken off."""
TAIL: Final = 1500


class Line(msgspec.Struct, kw_only=True):
    """What came out of a cell."""

    cell: Cell
    passed: bool
    seconds: float
    """Of the story, without what was installed before it."""
    environment: bool = True
    """False where something needed is not to be had here."""
    problems: list[str] = []
    done: dict[str, Any] = {}
    seen: int = 0
    """Output records, each compared with what it has to be."""
    slowest_recovery_s: float = 0.0
    seed: int = 0
    ran: dict[str, Any] = {}
    """Versions as the story itself has found them."""
    kept: str = ""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for axis in AXES:
        parser.add_argument(f"--{axis}", default="", help=f"versions by comma, of {', '.join(AXES[axis])}")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--out", type=Path, default=None, help="the lines are appended to this file, too")
    parser.add_argument("--list", action="store_true", help="print the cells and end")
    options = parser.parse_args()
    chosen = {axis: getattr(options, axis).split(",") for axis in AXES if getattr(options, axis)}
    cells = derive_cells(chosen)
    if not cells:
        parser.error("no cell has these versions; --list shows all")
    if options.list:
        print(*(cell.name for cell in cells), sep="\n")
        return 0
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"compatibility: seed {seed}, {len(cells)} cells", flush=True)
    failed = 0
    for line in run_all(cells, seed):
        text = msgspec.json.encode(line).decode()
        print(text, flush=True)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as out:
                print(text, file=out)
        failed += not line.passed
    print(f"compatibility: seed {seed}, {len(cells)} cells, with problems: {failed}", flush=True)
    return failed != 0


def run_all(cells: list[Cell], seed: int) -> Iterable[Line]:
    """Cells with the same environment come after each other, which is made once."""
    for _, group in groupby(sorted(cells, key=_environment), key=_environment):
        same = list(group)
        with tempfile.TemporaryDirectory(prefix="tidegate-compatibility-") as place, ExitStack() as stack:
            try:
                python = stack.enter_context(environment(same[0], Path(place)))
            except CannotRun as error:
                yield from (_cannot(cell, error) for cell in same)
                continue
            yield from (_tell(cell, python, seed) for cell in same)


def _environment(cell: Cell) -> tuple[str, str]:
    return cell.python, cell.spark


def _cannot(cell: Cell, error: Exception) -> Line:
    return Line(cell=cell, passed=False, seconds=0.0, environment=False, problems=[str(error)])


def _tell(cell: Cell, python: Path, seed: int) -> Line:
    place = Path(tempfile.mkdtemp(prefix=f"tidegate-{cell.name}-"))
    began = time.monotonic()
    try:
        broker = make_broker(cell, place / "broker")
        java = find_java_home(cell.java)
        with broker.start():
            line = _story(cell, python, java, place, broker.bootstrap, seed)
    except (CannotRun, TidegateError) as error:
        line = _cannot(cell, error)
    line.seconds = line.seconds or round(time.monotonic() - began, 1)
    line.seed = seed
    if line.problems:
        line.kept = str(place)
    else:
        shutil.rmtree(place, ignore_errors=True)
    return line


def _story(cell: Cell, python: Path, java: Path, place: Path, bootstrap: str, seed: int) -> Line:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "JAVA_HOME": str(java)}
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "PYTHONHOME"):
        environ.pop(name, None)
    command = [str(python), "-m", "tests.compatibility.story", str(place), bootstrap, str(seed)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        cwd=place,
        stdin=subprocess.DEVNULL,
    )
    try:
        out, err = process.communicate(timeout=STORY_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Line(cell=cell, passed=False, seconds=STORY_S, problems=[f"not within {STORY_S:g} s: {err[-TAIL:]}"])
    except BaseException:  # somebody ends this; the story ends its daemons when its own alarm rings
        process.send_signal(signal.SIGALRM)
        process.communicate(timeout=END_S)
        raise
    try:
        told = json.loads(out.splitlines()[-1])
    except (IndexError, ValueError):
        return Line(cell=cell, passed=False, seconds=0.0, problems=[f"no result: {(out + err)[-TAIL:]}"])
    kept = {name: told[name] for name in ("seconds", "done", "seen", "slowest_recovery_s", "ran", "problems")}
    return Line(cell=cell, passed=not told["problems"], **kept)


if __name__ == "__main__":
    sys.exit(main())
