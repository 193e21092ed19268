"""Names of topics that are given on the command line."""

from __future__ import annotations

import re

import click
from pydantic_core import PydanticCustomError

from tidegate.config.fields.types import check_topic


def require_topic(name: str, place: str = "") -> str:
    """The name; raises UsageError, after `place`, where no broker need be asked whether it can be one."""
    try:
        return check_topic(name)
    except PydanticCustomError as error:
        remedy = (error.context or {}).get("remedy", "")
        if re.fullmatch(r"[\w.-]+:\d+", name):
            remedy = "write the number of partitions as --partitions; only `tidegate broker` takes NAME:PARTITIONS"
        raise click.UsageError(f"{place}{error}{'; ' if remedy else ''}{remedy}") from error
