"""Nothing is read or written outside of its block, and nothing is undefined, whatever the records are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest import SkipTest

import pytest

from tests.depth import DEPTH
from tests.native.compiled import require_compiler
from tests.tidy.tree import ROOT
from tidegate.native.build import FLAGS, compile_library

RUNTIMES = ("libasan.so", "libubsan.so")
CHECKS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
"""Less optimised than the library: optimising checked code takes longer than running it."""
RECORDS = 2_000


def find_runtimes(compiler: list[str]) -> list[str]:
    """Of a compiler that has them."""
    found = []
    for name in RUNTIMES:
        asked = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        path = Path(asked.stdout.strip())
        if not path.is_absolute():
            raise SkipTest("the C compiler has no sanitizers")
        found.append(str(path))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 1 + DEPTH))
def test_damaged_records_in_blocks_of_their_size(tmp_path: Path, seed: int) -> None:
    runtimes = find_runtimes(require_compiler())
    target = tmp_path / "checked.so"
    reason = compile_library(target, (*FLAGS, *CHECKS))
    assert not reason, reason
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own, at its end
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT),
    }
    command = [
        sys.executable,
        "-m",
        "tests.native.sanitized",
        str(target),
        "--records",
        str(RECORDS),
        "--seed",
        str(seed),
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "no report" in done.stdout
