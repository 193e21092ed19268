"""Random numbers: one generator per concern, so that what one draws changes nothing for the others."""

from __future__ import annotations

import random


def generator(seed: object, concern: str) -> random.Random:
    """The same numbers for the same words, in every process."""
    return random.Random(f"{seed}/{concern}")  # noqa: S311 - it must be repeatable, not secret
