"""`tidegate prepare`: one Spark session that does nothing but leave its classes behind."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tidegate.daemon.class_archive import ArchiveFailed, ClassArchive
from tidegate.daemon.java import find_java
from tidegate.daemon.spark import SparkHost

SLOTS: Final = 2


@click.command()
def prepare() -> None:
    """Make the class archive of this machine's Java and pyspark: Spark then starts in half the CPU time.

    For images and build servers, behind every installation and update; takes some 15 s. Nothing depends on it.
    """
    archive = ClassArchive(find_java())
    cache = archive.file.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="new-", dir=cache, ignore_cleanup_errors=True) as directory:
            new = Path(directory) / archive.file.name
            options = " ".join(archive.prepare(new))
            host = SparkHost("prepare", f"local[{SLOTS}]", {"spark.driver.extraJavaOptions": options}, Path(directory))
            host.start(SLOTS)
            host.rehearse(SLOTS)
            archive.keep(new)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArchiveFailed(f"no class archive in {cache}: {error}; Spark starts without one, as before") from error
    click.echo(f"Spark's JVMs start from {archive.file} now")
