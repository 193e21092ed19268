"""`tidegate prepare`: one Spark session that does nothing but leave its classes behind."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

import click

from tidegate.daemon.class_archive import ArchiveFailed, ClassArchive
from tidegate.daemon.java import find_java
from tidegate.daemon.spark import SparkHost
from tidegate.daemon.work_directory import make_work_directory

SLOTS: Final = 2


@click.command()
def prepare() -> None:
    """Make the class archive of this machine's Java and pyspark: Spark then starts in half the CPU time.

    For images and build servers, behind every installation and update; takes some 15 s. Nothing depends on it.
    """
    archive = ClassArchive(find_java())
    directory = make_work_directory()
    new = archive.file.with_suffix(f".{directory.name}")
    try:
        options = " ".join(archive.prepare(new))
        host = SparkHost("prepare", f"local[{SLOTS}]", {"spark.driver.extraJavaOptions": options}, directory)
        host.start(SLOTS)
        host.rehearse(SLOTS)
        archive.keep(new)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArchiveFailed(
            f"no class archive in {new.parent}: {error}; Spark starts without one, as before"
        ) from error
    finally:
        if new.exists():
            new.unlink()
        shutil.rmtree(directory, ignore_errors=True)
    click.echo(f"Spark's JVMs start from {archive.file} now")
