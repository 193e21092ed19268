"""How deep tests look: `make test` plays what finds most for its time, `make deep` many times as much."""

from __future__ import annotations

import os
from typing import Final

DEPTH: Final = int(os.environ.get("TIDEGATE_DEPTH", "1"))
"""Factor of examples, seeds and records where a test takes more of them for its own sake."""
