"""A SPARK_HOME for one `local-cluster`.

Its workers write the output of executors, and any files they leave, below `SPARK_HOME/work`; no Spark setting names
another directory. The installed Spark may belong to another user, is shared by all daemons, and is never cleaned up.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.spark.versions import read_spark


def link_home(directory: Path) -> Path:
    """Links to all of the installed Spark except `work`, in a new directory below this one. Raises OSError.

    A JVM accepts its class archive for jars behind a link as well (seen with Java 17 and 25).
    """
    home = directory / "spark-home"
    home.mkdir()
    for entry in Path(read_spark().home).absolute().iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home
