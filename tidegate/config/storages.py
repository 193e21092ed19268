"""How the addresses that a pipeline comes across are opened: as `checkpoints.storage` of its file says."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.config.load import read_sections
from tidegate.config.models import PipelineSettings
from tidegate.storage.open import Opener, StorageOpener, open_storage


def derive_opener(settings: PipelineSettings) -> Opener:
    """For the checkpoint directory, and for whatever else is of the same kind."""
    return Opener(str(settings.checkpoints.directory), settings.checkpoints.storage.options)


def opener_of_file(file: Path | None) -> StorageOpener:
    """As the pipeline file says; without one as the environment says. Raises ConfigErrors."""
    return open_storage if file is None else derive_opener(read_sections(file, os.environ, "checkpoints"))
