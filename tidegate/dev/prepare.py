"""`tidegate prepare`: runs one Spark session and one broker only to store their classes in an archive."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tidegate.dev.broker.artifacts import fetch_jars
from tidegate.dev.broker.server import DevelopmentBroker, broker_archive
from tidegate.spark.class_archive import ArchiveFailed, ClassArchive, spark_archive
from tidegate.spark.host import SparkHost, join_java_options
from tidegate.spark.java import find_java

SLOTS: Final = 2
STOP_S: Final = 120.0


@click.command()
@click.option(
    "--broker", is_flag=True, help="Also for `tidegate broker`, whose jars are downloaded if they are missing."
)
def prepare(*, broker: bool) -> None:
    """Make the class archive of this machine's Java and pyspark: Spark then starts in half the CPU time.

    For images and build servers, after every installation and update; takes about 15 s. Nothing depends on it.
    """
    java = find_java()
    click.echo(f"Spark's JVMs now start from {_make(spark_archive(java), _run_spark)}")
    if broker:
        archive = broker_archive(java, fetch_jars())
        click.echo(f"development brokers now start from {_make(archive, _run_broker)}")


def _make(archive: ClassArchive, run: Callable[[Path, list[str]], None]) -> Path:
    """Runs a program with the options that store its classes, and returns the archive's file. Raises ArchiveFailed."""
    cache = archive.file.parent
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="new-", dir=cache, ignore_cleanup_errors=True) as directory:
            new = Path(directory) / archive.file.name
            run(Path(directory), archive.prepare(new))
            archive.keep(new)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArchiveFailed(
            f"no class archive was written to {cache}: {error}; everything starts without one, as before"
        ) from error
    return archive.file


def _run_spark(directory: Path, options: list[str]) -> None:
    settings = {"spark.driver.extraJavaOptions": join_java_options(options)}
    host = SparkHost("prepare", f"local[{SLOTS}]", settings, directory)
    host.start(SLOTS)
    host.rehearse(SLOTS)


def _run_broker(directory: Path, options: list[str]) -> None:
    broker = DevelopmentBroker(directory / "broker", jvm_options=options)
    try:
        broker.start().create_topics({"rehearsal": 1})
    finally:
        broker.stop(STOP_S)
