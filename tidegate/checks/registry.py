"""Opens the registry of a pipeline file for the daemon and the commands, and waits for it if it is still starting."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tidegate.config.fields.schemas import RegistrySettings
from tidegate.registry.cache import SchemaCopies
from tidegate.registry.client import SchemaRegistry
from tidegate.registry.errors import RegistryUnavailable
from tidegate.spark.cache import cache_directory

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 30.0
"""The default, unless the command line sets it."""
AGAIN_S: Final = 1.0

T = TypeVar("T")


def copies_of(settings: RegistrySettings) -> SchemaCopies:
    """Open the copies of schemas on this machine."""
    return SchemaCopies(cache_directory() / "schemas", settings.url[0])


def open_registry(settings: RegistrySettings) -> SchemaRegistry:
    """Create a client, to be entered in the event loop that uses it.

    Raises RegistryRefused for unusable certificates.
    """
    from tidegate.registry.transport import Transport  # loads aiohttp, which most commands do without

    return SchemaRegistry(Transport(settings), copies_of(settings))


async def patiently(ask: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """Ask until there is an answer, with one warning in the log. Raises RegistryUnavailable when the time is over."""
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            return await ask()
        except RegistryUnavailable as away:
            if time.monotonic() >= deadline:
                raise
            if not told:
                logger.warning("waiting for the registry, %g s at most: %s", patience_s, away.message)
            told = True
            await asyncio.sleep(AGAIN_S)
