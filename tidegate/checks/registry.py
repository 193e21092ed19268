"""How the daemon and the commands reach the registry of a pipeline file."""

from __future__ import annotations

from tidegate.registry.cache import SchemaCopies
from tidegate.registry.client import Registry
from tidegate.settings.schemas import RegistrySettings
from tidegate.spark.cache import cache_directory


def copies_of(settings: RegistrySettings) -> SchemaCopies:
    """Those on this machine."""
    return SchemaCopies(cache_directory() / "schemas", settings.url[0])


def open_registry(settings: RegistrySettings) -> Registry:
    """To be entered in the event loop that uses it. Raises RegistryRefused for certificates that cannot be used."""
    from tidegate.registry.transport import Transport  # loads aiohttp, which most commands do without

    return Registry(Transport(settings), copies_of(settings))
