"""The modules of a package, found by looking: a kind of operator, format or store is there as soon as its module is."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def import_modules(package: ModuleType) -> dict[str, ModuleType]:
    """The modules and packages directly in `package`, imported, by their short names in order."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}
