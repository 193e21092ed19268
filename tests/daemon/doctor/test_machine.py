"""What this machine says of a directory: of which kind the file system is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.daemon.doctor import machine


@pytest.mark.parametrize("name", ["données", "with space", "back\\slash", "return\r", os.fsdecode(b"raw\xff")])
def test_a_mount_point_of_any_name_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a letter that is not ASCII the file system above it was named: a tmpfs counted as a disk."""
    written = os.fsencode(name).replace(b"\\", rb"\134").replace(b" ", rb"\040")  # as the kernel does
    mounts = tmp_path / "mounts"
    mounts.write_bytes(b"/dev/sda / ext4 rw 0 0\nnone /mnt/" + written + b" tmpfs rw 0 0\n")
    monkeypatch.setattr(machine, "_MOUNTS", mounts)
    assert machine._kind(Path("/mnt") / name / "checkpoints") == "tmpfs"
    assert machine._kind(Path("/mnt/other")) == "ext4"
