"""What this machine says: the kind of a directory's file system, the memory that a container has left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.checks import machine


@pytest.mark.parametrize("name", ["données", "with space", "back\\slash", "return\r", os.fsdecode(b"raw\xff")])
def test_a_mount_point_of_any_name_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a letter that is not ASCII the file system above it was named: a tmpfs counted as a disk."""
    written = os.fsencode(name).replace(b"\\", rb"\134").replace(b" ", rb"\040")  # as the kernel does
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"/dev/sda / ext4 rw 0 0\nnone /mnt/" + written + b" tmpfs rw 0 0\n")
    monkeypatch.setattr(machine, "_MOUNTS", mounts)
    assert machine._kind(Path("/mnt") / name / "checkpoints") == "tmpfs"
    assert machine._kind(Path("/mnt/other")) == "ext4"


def test_what_the_kernel_only_keeps_of_files_is_no_memory_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fills whatever a container may have, and is given back at once; a container in order was warned of."""
    texts = {
        "_MEMORY": "MemAvailable: 9000000 kB\n",
        "_MEMORY_LIMIT": "1000000\n",
        "_MEMORY_USED": "999000\n",
        "_MEMORY_DETAILS": "anon 99000\ninactive_file 800000\nactive_file 100000\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(machine, name, tmp_path / name)
    assert machine._memory_left() == 801_000
