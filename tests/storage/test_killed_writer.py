"""A writer that is killed at any moment leaves whole objects or none."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidegate.storage.checksum import unseal
from tidegate.storage.local import LocalStorage

WRITER = """
import sys
from tidegate.storage.checksum import seal
from tidegate.storage.local import LocalStorage
storage = LocalStorage(sys.argv[1])
for number in range(100_000):
    assert storage.put_if_absent(f"state/{number:06d}/x", seal(b"%d " % number * 5_000))
"""
KILLS = 8
DEADLINE_S = 60.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(KILLS))
def test_what_is_listed_after_a_kill_is_whole_and_without_gaps(tmp_path: Path, seed: int) -> None:
    storage = LocalStorage(str(tmp_path))
    enough = random.Random(seed).randint(1, 40)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    try:
        deadline = time.monotonic() + DEADLINE_S
        while len(storage.list("state/")) < enough:
            assert writer.poll() is None
            assert time.monotonic() < deadline, f"only {len(storage.list('state/'))} of {enough} objects"
    finally:
        writer.kill()
        writer.wait(timeout=DEADLINE_S)
    names = storage.list("state/")
    assert len(names) >= enough
    assert names == [f"state/{number:06d}/x" for number in range(len(names))]
    assert [unseal(name, storage.get(name)) for name in names] == [b"%d " % n * 5_000 for n in range(len(names))]
    assert storage.put_if_absent(f"state/{len(names):06d}/x", b"the next one")
