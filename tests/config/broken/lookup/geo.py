"""What `73_asynchronous.yaml` names."""

from __future__ import annotations


async def resolve(row: object) -> None:
    """A function for `async`."""
