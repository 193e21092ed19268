"""`python -m tests.chaos --kills 40 --seed 1`: kill parts of a running pipeline at seeded moments, then verify."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.support.chaos import KINDS, Scenario


def main() -> int:
    """Exit code 0 when both outputs are exact, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rate", type=float, default=4000.0)
    options = parser.parse_args()
    print(f"chaos: {options.kills} kills, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-chaos-") as directory:
        with Scenario(Path(directory), options.seed, rate=options.rate) as scenario:
            scenario.run_kills(options.kills, tuple(options.kinds.split(",")))
            outcome = scenario.finish()
        print(outcome.line())
        for example in [*outcome.paid.examples, *outcome.totals.examples]:
            print(f"  {example}")
    return 0 if outcome.exact else 1


if __name__ == "__main__":
    sys.exit(main())
