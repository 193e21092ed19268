"""Runs every target that checks a release and is not part of `make test`, and prints a line for each.

These targets need more than Python (Go, root, Debian packages, other interpreters) or much time, so nothing else runs
them. The output of each goes to build/release/TARGET.log. The exit code is 1 unless all of them pass.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGETS = (
    "chart",
    "image-check",
    "stores",
    "compatibility",
    "rolling",
    "tracing",
    "browser",
    "rest",
    "audit",
)
SHOWN_LINES = 15
"""How many of the last lines are printed of a target that failed."""


def main() -> int:
    """Run the targets one after the other, for they share the cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"default: all ({', '.join(TARGETS)})")
    targets = parser.parse_args().targets or TARGETS
    if unknown := set(targets) - set(TARGETS):
        parser.error(f"no such target: {', '.join(sorted(unknown))}; choose from {', '.join(TARGETS)}")
    logs = ROOT / "build" / "release"
    logs.mkdir(parents=True, exist_ok=True)
    failed = [target for target in targets if not run(target, logs / f"{target}.log")]
    return len(failed) != 0


def run(target: str, log: Path) -> bool:
    """Run one target and print its line; returns whether it passed."""
    started = time.monotonic()
    with log.open("wb") as output:
        # Without ARGS= the target would inherit the names of targets that select what runs here.
        command = ["make", target, "ARGS="]
        code = subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False).returncode
    verdict = "passed" if code == 0 else f"FAILED with exit code {code}, see {log.relative_to(ROOT)}"
    print(f"{target:14} {verdict} ({time.monotonic() - started:.0f} s)", flush=True)
    if code != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_LINES:]
        print(*(f"    {line}" for line in lines), sep="\n", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
