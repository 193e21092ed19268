"""`python -m tests.compatibility.debezium`: pipelines that read what a real Debezium writes.

PostgreSQL and MariaDB are those of the distribution; Kafka Connect and Debezium are fetched as the development broker
is. Prints one line of JSON a story; the exit code is 1 where one has problems.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Final

import msgspec

from tests.night.story import Night
from tests.support.postgres import ServerMissing

STORIES: Final = ("types", "avro", "mariadb", "totals")
RECORDED: Final = ("types", "avro")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stories", default=",".join(STORIES), help="by comma; default: all")
    parser.add_argument("--seed", type=int, default=None, help="of the transactions; default: a fresh one, printed")
    parser.add_argument(
        "--record", action="store_true", help="the stories `types` and `avro` write their records for the quick tests"
    )
    options = parser.parse_args()
    names = options.stories.split(",")
    if unknown := sorted(set(names) - set(STORIES)):
        parser.error(f"no such story: {', '.join(unknown)}; there are {', '.join(STORIES)}")
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    print(f"seed {seed}", file=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that the programs of a story are, too
    failed = False
    for name in names:
        place = Path(tempfile.mkdtemp(prefix=f"tidegate-debezium-{name}-"))
        more = {"record": True} if options.record and name in RECORDED else {}
        story = import_module(f"tests.compatibility.debezium.{name}")
        night = Night(name, seed, 0.0, place)
        try:
            result = story.run(night, **more)
        except Exception as error:  # noqa: BLE001 - a line like any other
            night.problem(str(error) if isinstance(error, ServerMissing) else f"{type(error).__name__}: {error}")
            result = night.close()
        sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
        sys.stdout.flush()
        if result.problems:
            failed = True
            print(f"kept: {place}", file=sys.stderr)
        else:
            shutil.rmtree(place, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
