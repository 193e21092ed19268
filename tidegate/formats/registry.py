"""Discovery of formats: every module and package in `formats/kinds`, by name (`json_schema` is `json-schema`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tidegate.formats import kinds
from tidegate.formats.contract import Format
from tidegate.modules import import_modules


def discover_formats() -> Mapping[str, Format]:
    """Returns all formats by name, sorted. Raises TypeError for a module without a format of its own name."""
    found: dict[str, Format] = {}
    for word, module in import_modules(kinds).items():
        one, name = getattr(module, "FORMAT", None), word.replace("_", "-")
        if not isinstance(one, Format) or one.name != name:
            raise TypeError(f"tidegate/formats/kinds/{word} has no FORMAT whose name is {name!r}")
        found[name] = one
    return MappingProxyType(found)


FORMATS: Final = discover_formats()
DEFAULT: Final = "json"
"""The format of sources and sinks that do not set one."""
