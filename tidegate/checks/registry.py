"""How the daemon and the commands reach the registry of a pipeline file, which may be starting as well."""

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
"""Where the command line says nothing."""
AGAIN_S: Final = 1.0

T = TypeVar("T")


def copies_of(settings: RegistrySettings) -> SchemaCopies:
    """Open the copies of schemas on this machine."""
    return SchemaCopies(cache_directory() / "schemas", settings.url[0])


def open_registry(settings: RegistrySettings) -> SchemaRegistry:
    """Make a client, to be entered in the event loop that uses it. Raises RegistryRefused for unusable certificates."""
    from tidegate.registry.transport import Transport  # loads aiohttp, which most commands do without

    return SchemaRegistry(Transport(settings), copies_of(settings))


async def patiently(ask: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """Ask until there is an answer. A warning is logged once. Raises RegistryUnavailable when the time is over."""
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
