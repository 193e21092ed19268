"""One cell of the matrix of `make compatibility`, drawn by the seed: other versions of Spark, Kafka, Python or Java.

Drawn is what this machine has interpreters for. An environment is made and removed, and Spark of another version is
downloaded unless pip has it already. The story is that of `tests/compatibility`, whatever the length of the night.
"""

from __future__ import annotations

from tests.compatibility.__main__ import run_all
from tests.compatibility.cells import AXES, derive_cells
from tests.compatibility.environments import CannotRun, find_python
from tests.compatibility.story import FAULTS
from tests.night.story import Night, Result


def run(night: Night) -> Result:
    """See the module."""
    here = [python for python in AXES["python"] if _is_here(python)]
    cells = derive_cells({"python": here})
    cell = night.dice.choice(cells)
    night.result.drawn = cell.name
    without = sorted(set(AXES["python"]) - set(here))
    less = f"; not here: Python {', '.join(without)}" if without else ""
    print(f"compatibility: {cell.name}, drawn from {len(cells)} cells{less}", flush=True)
    for fault in FAULTS:
        night.least(fault)
    (line,) = run_all([cell], night.seed)
    night.result.done = {what: count for what, count in line.done.items() if isinstance(count, int | float)}
    night.result.seen = line.seen
    night.result.slowest_recovery_s = line.slowest_recovery_s
    for problem in line.problems:
        night.problem(problem)
    if line.kept:
        night.problem(f"the cell's directory is kept: {line.kept}")
    return night.close()


def _is_here(python: str) -> bool:
    try:
        find_python(python)
    except CannotRun:
        return False
    return True
