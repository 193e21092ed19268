"""Which options the JVMs get."""

from __future__ import annotations

from pathlib import Path

from tidegate.daemon.spark import derive_java_options

LOG4J = Path("log4j2.properties")


def test_options_of_the_pipeline_file_come_last_and_so_win() -> None:
    assert derive_java_options("-XX:TieredStopAtLevel=4", LOG4J).endswith("-Xshare:auto -XX:TieredStopAtLevel=4")


def test_a_collector_of_the_pipeline_file_replaces_ours() -> None:
    """Two collectors are a conflict that the JVM refuses."""
    derived = derive_java_options("-XX:+UseParallelGC", LOG4J)
    assert "UseSerialGC" not in derived
    assert "UseSerialGC" in derive_java_options("", LOG4J)
