"""One Spark session for every conformance test.

Only the conftest of all tests imports it. Each module that imports it gets a fixture of its own, and the first one that
ends would end the JVM of the others.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

from tidegate.spark.class_archive import spark_archive
from tidegate.spark.host import JVM_OPTIONS
from tidegate.spark.java import find_java, java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

YOUNG: Final = ("-Xms256m", "-Xmn128m")
"""Room for the plans of queries: in the 16 MiB of a driver of slots, collecting garbage takes 6 % of the CPU time."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Starts Spark SQL in ANSI mode and UTC, small and local."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    java = find_java()
    os.environ["JAVA_HOME"] = str(java_home(java))  # the only Java of the machine may be that of a Python package
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join([*JVM_OPTIONS, *YOUNG, *spark_archive(java).options]),
        "spark.sql.codegen.wholeStage": "false",  # compiling every small query would take most of the time
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    builder = SparkSession.builder.master("local[1]").appName("conformance")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)  # failing queries are intended here
    yield session
    gateway: Any = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # otherwise its JVM ends only with this process
    gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None
