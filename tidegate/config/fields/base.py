"""The base of every section of a pipeline file, and the path of a value in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

Path = tuple[str | int, ...]
"""A path from the root of the file: `("steps", 2, "where")`."""


class Settings(BaseModel):
    """Base of all sections. `INSIDE`: names that are not keys here, with what to write instead. A section also has
    those of its bases.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)
    TITLE: ClassVar[str] = ""
    """Of its section in the reference, where that is not the key by which it is found."""
    INSIDE: ClassVar[Mapping[str, str]] = {}
