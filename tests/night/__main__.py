"""`python -m tests.night --minutes 175`: long stories on real parts under faults, one after the other.

Each prints one line of JSON when it ends: what was done, what the outputs held, what is wrong. The seed is fresh unless
one is given, and is printed first. Exit code 1 when a story has a problem or something planned did not happen.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from tests.night.story import Night, Result

MINUTES: Final = {
    "sigterms": 14,
    "proxy": 9,
    "standalone": 8,
    "three_brokers": 12,
    "leader_frozen": 6,
    "majority_lost": 6,
    "disk_full": 5,
    "clock_steps": 5,
    "many_partitions": 5,
    "idle": 17,
    "compatibility": 3,
    "joins": 12,
    "table_bootstrap": 5,
    "uneven_sides": 33,
    "python_steps": 8,
    "clusters": 9,
    "diagnosis": 18,
}
"""Of a full night, by story. Each is a module next to this one with a function `run`."""
FULL: Final = sum(MINUTES.values())
HARD_S: Final = 900.0
"""What a story may take above twice its time: then it is ended, which is a problem."""


class StoryHangs(Exception):
    """A story did not end in time."""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stories", default=",".join(MINUTES), help="by comma; default: all, in this order")
    parser.add_argument("--minutes", type=float, default=FULL, help="of a whole night; each story has its share")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--outage", type=float, default=None, help="minutes of an outage of either cluster in the story `clusters`"
    )
    parser.add_argument("--out", type=Path, default=None, help="the lines are appended to this file, too")
    options = parser.parse_args()
    names = options.stories.split(",")
    if unknown := sorted(set(names) - MINUTES.keys()):
        parser.error(f"no such story: {', '.join(unknown)}; there are {', '.join(MINUTES)}")
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"night: seed {seed}, {len(names)} stories of {options.minutes / FULL:.0%} length", flush=True)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGTERM, _end)
    results = []
    for name in names:
        results.append(_tell(name, seed, options.minutes / FULL, options.outage))
        line = msgspec.json.encode(results[-1]).decode()
        print(line, flush=True)
        if options.out is not None:
            with options.out.open("a", encoding="utf-8") as out:
                print(line, file=out)
    failed = [result.story for result in results if result.problems]
    print(f"night: seed {seed}, {len(results)} stories, with problems: {', '.join(failed) or 'none'}", flush=True)
    return len(failed) != 0


def _tell(name: str, seed: int, scale: float, outage_minutes: float | None) -> Result:
    run: Callable[[Night], Result] = import_module(f"tests.night.{name}").run
    seconds = MINUTES[name] * 60 * scale
    outage_s = None if outage_minutes is None else outage_minutes * 60
    place = Path(tempfile.mkdtemp(prefix=f"tidegate-night-{name}-"))
    night = Night(name, seed, seconds, place, scale, outage_s)
    began = time.monotonic()
    try:
        with _bounded(2 * seconds + HARD_S + 2 * (outage_s or 0.0)):
            run(night)
    except Exception as error:  # noqa: BLE001 - a line of the table; the next story is told all the same
        night.problem(f"after {time.monotonic() - began:.0f} s: {type(error).__name__}: {error}")
        night.close()
    except BaseException:  # somebody ends the night
        shutil.rmtree(place, ignore_errors=True)
        raise
    if night.result.problems:
        night.result.kept = str(place)
    else:
        shutil.rmtree(place, ignore_errors=True)
    return night.result


@contextmanager
def _bounded(seconds: float) -> Iterator[None]:
    """Raises StoryHangs out of whatever the block waits for."""

    def hangs(number: int, frame: FrameType | None) -> None:
        raise StoryHangs(f"not within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _end(number: int, frame: FrameType | None) -> None:
    """SIGTERM: what was started is stopped on the way out."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
