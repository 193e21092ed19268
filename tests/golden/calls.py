"""What the pipeline of `pipeline.yaml` calls."""

from __future__ import annotations

from typing import Any


async def answer(row: dict[str, Any]) -> dict[str, Any]:
    """Of a row that was in flight at the checkpoint, too."""
    return {"word": f"word of {row['id']}"}
