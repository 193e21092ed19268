"""Waiting for the registry at a start: it may be starting, too."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidegate.registry.errors import RegistryAway

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 30.0
"""Where the command line says nothing."""
AGAIN_S: Final = 1.0

T = TypeVar("T")


async def patiently(ask: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """What is answered within the time; the log says once what is waited for. Raises RegistryAway after it."""
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            return await ask()
        except RegistryAway as away:
            if time.monotonic() >= deadline:
                raise
            if not told:
                logger.warning("waiting for the registry, %g s at most: %s", patience_s, away.message)
            told = True
            await asyncio.sleep(AGAIN_S)
