"""Discovery of modules in a package: an operator kind, format or store is available once its module exists."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def import_modules(package: ModuleType) -> dict[str, ModuleType]:
    """Imports the modules and packages directly in `package` and returns them by short name, in order."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}
