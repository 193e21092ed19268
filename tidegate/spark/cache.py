"""The directory for downloads and other files that can be recreated."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Returns `$TIDEGATE_CACHE`, else `$XDG_CACHE_HOME/tidegate`, else `~/.cache/tidegate`. It need not exist yet."""
    own, shared = os.environ.get("TIDEGATE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    if own:
        return Path(own)
    return (Path(shared) if shared else Path.home() / ".cache") / "tidegate"
