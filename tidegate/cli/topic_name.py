"""Checks topic names given on the command line."""

from __future__ import annotations

import re

import click
from pydantic_core import PydanticCustomError

from tidegate.config.fields.types import check_topic


def require_topic(name: str, place: str = "") -> str:
    """Returns the name. Raises UsageError, prefixed with `place`, if it cannot be a topic name, without asking a
    broker.
    """
    try:
        return check_topic(name)
    except PydanticCustomError as error:
        remedy = (error.context or {}).get("remedy", "")
        if re.fullmatch(r"[\w.-]+:\d+", name):
            remedy = "write the number of partitions as --partitions; only `tidegate broker` takes NAME:PARTITIONS"
        raise click.UsageError(f"{place}{error}{'; ' if remedy else ''}{remedy}") from error
