"""The argument FILE of commands for a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

PIPELINE_FILE: Final = click.argument("file", type=click.Path(readable=False, path_type=Path))
"""Click does not check the file. An unreadable file is reported as a problem like all others, also with `--format
json`.
"""
