"""Importing it puts the kinds of `kinds/` next to those of the product. It has to come before anything that looks which
kinds there are, so what needs them runs in a process of its own.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.operators import kinds

kinds.__path__.append(str(Path(__file__).with_name("kinds")))
