"""A SPARK_HOME for one `local-cluster`.

Its workers write what executors print, and whatever those leave, below `SPARK_HOME/work`; no setting of Spark names
another place. The installed Spark may belong to another user, is shared by all daemons, and nobody cleans up there.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.spark.versions import read_spark


def link_home(directory: Path) -> Path:
    """Links to all of the installed Spark but its `work`, in a new directory below this one. Raises OSError.

    A JVM takes its class archive for jars that are reached through a link, too (seen with Java 17 and 25).
    """
    home = directory / "spark-home"
    home.mkdir()
    for entry in Path(read_spark().home).absolute().iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home
