"""Which options the JVMs get."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tidegate.config.encryption import ENCRYPTED_SPARK, SECRET
from tidegate.spark.host import derive_java_options, derive_settings

LOG4J = Path("/there/log4j2.properties")


def test_options_of_the_pipeline_file_come_last_and_so_win() -> None:
    assert derive_java_options("-XX:TieredStopAtLevel=4", LOG4J).endswith("-Xmn16m -XX:TieredStopAtLevel=4")


def test_a_collector_of_the_pipeline_file_replaces_ours() -> None:
    """Two collectors are a conflict that the JVM refuses."""
    derived = derive_java_options("-XX:+UseParallelGC", LOG4J)
    assert "UseSerialGC" not in derived
    assert "UseSerialGC" in derive_java_options("", LOG4J)


def test_X36_temporary_files_of_the_jvms_are_in_the_daemons_own_directory() -> None:
    here = ["-Djava.io.tmpdir=/tmp/tidegate-1-x/tmp"]
    derived = derive_java_options("-Djava.io.tmpdir=/mine", LOG4J, here).split()
    assert derived.index(here[0]) < derived.index("-Djava.io.tmpdir=/mine"), "the last one holds"


def test_a_path_with_a_space_is_one_option() -> None:
    """Spark takes the text apart as a shell does; the rest of the path was the class to run."""
    here = ['-Djava.io.tmpdir=/srv/my data/it\'s "new" \\\\x/tmp', "-XX:SharedArchiveFile=/home/ann lee/spark.jsa"]
    derived = shlex.split(derive_java_options("-Da=1", Path("/srv/my data/log4j2.properties"), here))
    assert derived[0] == "-Dlog4j2.configurationFile=file:///srv/my%20data/log4j2.properties"
    assert derived[-3:] == [*here, "-Da=1"]


def test_X34_encryption_adds_settings_and_the_pipeline_file_wins() -> None:
    plain = derive_settings("shop", "yarn", {}, encrypted=False)
    assert not plain.keys() & ENCRYPTED_SPARK.keys()
    given = {"spark.network.crypto.cipher": "AES/CTR/NoPadding", "spark.executor.memory": "1g"}
    assert derive_settings("shop", "yarn", given, encrypted=True) == {**plain, **ENCRYPTED_SPARK, **given}
    assert SECRET not in plain


def test_X34_the_secret_of_a_cluster_of_our_own_is_another_one_each_time() -> None:
    found = {derive_settings("shop", "local-cluster[2,1,512]", {}, encrypted=True)[SECRET] for _ in range(2)}
    assert len(found) == 2
    assert all(len(secret) == 64 for secret in found)


@pytest.mark.parametrize(("master", "value"), [("local[2]", "1"), ("local-cluster[2,1,512]", "1"), ("yarn", None)])
def test_no_file_where_the_daemon_was_started_is_a_module_of_slots(master: str, value: str | None) -> None:
    """A queue.py there stood for Python's own in every worker: `python -m` looks where it is started first."""
    assert derive_settings("shop", master, {}, encrypted=False).get("spark.executorEnv.PYTHONSAFEPATH") == value
