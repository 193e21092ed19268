"""Random numbers with one generator per concern, so that what one concern draws does not affect the others."""

from __future__ import annotations

import random


def generator(seed: object, concern: str) -> random.Random:
    """Returns a generator with the same numbers for the same arguments in every process."""
    return random.Random(f"{seed}/{concern}")  # noqa: S311 - it must be repeatable, not secret
