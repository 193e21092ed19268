"""Folders that the process may not read, whoever runs the tests: permissions mean nothing to root."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest


def forbid(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    """What they hold cannot be listed."""
    real = os.scandir

    def scandir(path: Path) -> Any:
        if Path(path) in folders:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
