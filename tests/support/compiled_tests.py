"""Compiles the test files of a fresh checkout once for all workers.

pytest rewrites the assertions of a test file when it imports the file, and keeps the compiled result. All workers
import all files in the same order at the same time, so in a fresh checkout each of them would compile each file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def compile_share(config: pytest.Config, root: Path) -> None:
    """Compiles every n-th test file below `root` in each of the n workers; other processes compile what they import."""
    worker: dict[str, object] | None = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    first = int(str(worker["workerid"]).removeprefix("gw"))
    count = int(str(worker["workercount"]))
    state = config.stash[rewrite.assertstate_key]
    for file in sorted(root.rglob("test_*.py"))[first::count]:
        compiled = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(file, compiled) is None and rewrite.try_makedirs(compiled.parent):
            source, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, source, compiled)
