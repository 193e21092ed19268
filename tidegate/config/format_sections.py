"""Sections of sources and sinks with the settings of their format: `{format: delimited, delimited: {separator: "|"}}`.

A format declares the models (`Format.source_settings`, `Format.sink_settings`); a section has the format's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Protocol

from pydantic import Field

from tidegate.config.errors import PathProblem
from tidegate.config.fields.base import Path, Settings
from tidegate.formats.contract import Format
from tidegate.formats.registry import FORMATS


class _End(Protocol):
    """A source or a sink."""

    format: str


def derive_sections(model_of: Callable[[Format], type[Settings]]) -> Mapping[str, Any]:
    """Returns the fields of sources or of sinks for the sections of all formats that have one."""
    return {
        _field(name): (
            Annotated[model_of(one) | None, Field(alias=name, description=f"Settings of the format {name}.")],
            None,
        )
        for name, one in FORMATS.items()
        if model_of(one).model_fields
    }


def read_section(end: _End) -> dict[str, Any]:
    """Returns what the section of the format of a source or sink sets, as plain values."""
    section: Settings | None = getattr(end, _field(end.format), None)
    return {} if section is None else section.model_dump(mode="json", by_alias=True, exclude_unset=True)


def decide_section_problems(path: Path, end: _End) -> Iterator[PathProblem]:
    """Yields a problem for each section of another format than that of the source or sink at `path`."""
    for name in FORMATS:
        if name != end.format and getattr(end, _field(name), None) is not None:
            message = f"these are settings of the format {name}, and the format is {end.format}"
            yield PathProblem((*path, name), message, f"write `format: {name}`, or remove them", at_key=True)


def _field(name: str) -> str:
    """Returns the attribute of a section; the name alone could be that of a method of models, as `json` is."""
    return f"{name.replace('-', '_')}_settings"
