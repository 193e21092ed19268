"""`python -m tests.mutants coordinator task/loop`: small changes to the production code, one at a time, each of which a
quick test or the type checker should notice. Those that survive are listed, for a person to look at.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

from tests.mutants.work import ROOMS, Mutant, folder_of, prepare, read_mutants


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints what became of the mutants of each place. Raises CalledProcessError when the tool failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="only what survived the last run, with the tests of now")
    parser.add_argument("--report", action="store_true", help="of the last run, without another")
    parser.add_argument("places", nargs="*", default=ROOMS, help=f"rooms or modules; {', '.join(ROOMS)} without any")
    options = parser.parse_args(arguments)
    for place in options.places:
        mutants = read_mutants(place) if options.report else run(place, options.processes, again=options.again)
        counts = Counter(mutant.fate for mutant in mutants)
        told = ", ".join(f"{count} {fate}" for fate, count in sorted(counts.items()))
        print(f"{place}: {len(mutants)} mutants, {told}", flush=True)
        for name in dict.fromkeys(mutant.name for mutant in mutants if mutant.survived):
            print(f"    {name}")


def run(place: str, processes: int, *, again: bool) -> list[Mutant]:
    """Raises CalledProcessError when the tool could not do its work; its log says why."""
    survivors = [mutant.key for mutant in read_mutants(place) if mutant.survived] if again else []
    folder = folder_of(place) if again else prepare(place)
    command = [sys.executable, "-P", "tests/mutants/tool.py", "--max-children", str(processes), *survivors]
    with (folder / "run.log").open("w") as log:
        print(f"{place}: {log.name}", flush=True)
        subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=True)
    return read_mutants(place)


if __name__ == "__main__":
    main()
