"""Fuzzed records through a pipeline with dead letters: each comes out, becomes a letter with its bytes, or is filtered.

`make soak` plays a million of them, `make test` 20,000.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from tests.testing.lettered import check_fuzzed

ROUND = 20_000
"""Records of a pipeline: everything that it writes is kept."""


def main() -> None:
    """Play rounds of other seeds; ends with an AssertionError that names the seed of one that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    given = parser.parse_args()
    fates: Counter[str] = Counter()
    print(f"seeds from {given.seed} on", flush=True)
    for number, first in enumerate(range(0, given.records, ROUND)):
        fates += check_fuzzed(given.seed + number, min(ROUND, given.records - first))
    for fate, count in fates.most_common():
        print(f"{fate:24} {count:>10,}")
    print(f"{fates.total():,} records: each came out, became a letter with its bytes, or was filtered")


if __name__ == "__main__":
    main()
