"""Checks that `checkpoints.storage` fits the kind of store in `checkpoints.directory`."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.config.errors import PathProblem
from tidegate.config.models import PipelineSettings
from tidegate.storage.open import STORES, scheme_of


def decide_storage_problems(settings: PipelineSettings) -> Iterator[PathProblem]:
    """Yields options that the store would ignore."""
    scheme = scheme_of(settings.checkpoints.directory)
    taken = STORES[scheme].options
    for name in sorted(settings.checkpoints.storage.model_fields_set - taken):
        of = f"a store of {scheme}:// takes {', '.join(sorted(taken))}" if taken else "a directory takes no options"
        yield PathProblem(
            ("checkpoints", "storage", name),
            f"`{name}` is not for {scheme}://",
            f"remove it, or correct `checkpoints.directory`: {of}",
            at_key=True,
        )
