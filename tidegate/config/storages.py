"""Opens addresses that belong to a pipeline, according to `checkpoints.storage` of its file."""

from __future__ import annotations

import os
from pathlib import Path

from tidegate.config.load import read_sections
from tidegate.config.models import PipelineSettings
from tidegate.storage.open import Opener, StorageOpener, open_storage


def derive_opener(settings: PipelineSettings) -> Opener:
    """Returns the opener for the checkpoint directory and other addresses of the same kind."""
    return Opener(str(settings.checkpoints.directory), settings.checkpoints.storage.options)


def opener_of_file(file: Path | None) -> StorageOpener:
    """Returns the opener that the pipeline file sets, or without a file the environment. Raises ConfigErrors."""
    return open_storage if file is None else derive_opener(read_sections(file, os.environ, "checkpoints"))
