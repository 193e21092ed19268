"""Names of topics that are given on the command line."""

from __future__ import annotations

import click
from pydantic_core import PydanticCustomError

from tidegate.settings.fields import check_topic


def require_topic(name: str, place: str = "") -> str:
    """The name; raises UsageError, after `place`, where no broker need be asked whether it can be one."""
    try:
        return check_topic(name)
    except PydanticCustomError as error:
        raise click.UsageError(f"{place}{error}") from error
