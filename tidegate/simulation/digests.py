"""Prints the digests of some schedules. Two processes must agree even if their hash seeds differ.

python -m tidegate.simulation.digests FIRST COUNT
"""

from __future__ import annotations

import sys

from tidegate.simulation.campaign import quiet
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.world import play


def digests(first: int, count: int) -> list[str]:
    """Returns the digests of seeds `first` to `first + count - 1`."""
    with quiet():
        return [play(draw_schedule(seed)).trace.digest for seed in range(first, first + count)]


if __name__ == "__main__":
    sys.stdout.write("\n".join(digests(int(sys.argv[1]), int(sys.argv[2]))))
