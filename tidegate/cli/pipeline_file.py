"""The argument FILE of the commands that are about a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

PIPELINE_FILE: Final = click.argument("file", type=click.Path(readable=False, path_type=Path))
"""What cannot be read is a problem of the file, reported as all others are (`--format json`, too), and not click's."""
