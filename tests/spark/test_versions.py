"""What is said of a Spark, a Java and Pythons that do not go together, before anything is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidegate.spark.job_errors import ExecutorsRunAnotherPython, derive_job_error, describe_failure
from tidegate.spark.versions import (
    InstalledSpark,
    RuntimeProblem,
    decide_language_problems,
    decide_spark_problem,
    here,
    read_python,
    read_spark,
)

SOUND = InstalledSpark("4.3.0", "4.3.0", "/opt/spark")


def refused(spark: InstalledSpark, environ: dict[str, str] | None = None) -> RuntimeProblem:
    found = decide_spark_problem(spark, environ or {})
    assert found is not None
    return found


@pytest.mark.parametrize("version", ["3.5.0", "3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0", "4.3.7"])
def test_every_spark_of_the_range_is_taken_in_any_patch(version: str) -> None:
    assert decide_spark_problem(InstalledSpark(version, version, "/opt/spark"), {}) is None


@pytest.mark.parametrize("version", ["3.4.4", "2.4.8", "4.4.0", "5.0.0"])
def test_another_spark_is_refused_with_its_version_and_the_range(version: str) -> None:
    problem = refused(InstalledSpark(version, version, "/opt/spark"))
    assert problem.message == f"pyspark is {version}; Tidegate runs on Spark 3.5 to 4.3"
    assert "pyspark>=3.5,<4.4" in problem.remedy


@pytest.mark.parametrize("variable", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_variables_of_spark_connect_are_refused_by_name(variable: str) -> None:
    problem = refused(SOUND, {variable: "sc://host"})
    assert variable in problem.message
    assert problem.remedy.startswith(f"unset {variable}")


def test_a_package_without_jars_is_refused_as_one_for_spark_connect() -> None:
    problem = refused(InstalledSpark("4.3.0", "", "/opt/lib/pyspark"))
    assert "has no Spark with it (/opt/lib/pyspark has no jars/spark-core)" in problem.message
    assert "Spark Connect" in problem.message


def test_a_home_of_another_minor_version_is_refused_with_both() -> None:
    problem = refused(InstalledSpark("4.3.0", "3.5.1-vendor-7", "/opt/spark"))
    assert problem.message == "pyspark is 4.3.0, and the Spark in /opt/spark is 3.5.1-vendor-7"
    assert problem.remedy == "pip install 'pyspark==3.5.*', or unset SPARK_HOME"
    assert decide_spark_problem(InstalledSpark("4.3.0", "4.3.1", "/opt/spark"), {}) is None


def test_without_pyspark_nothing_else_is_said() -> None:
    assert "not installed" in refused(InstalledSpark("", "", "")).message


def test_what_is_installed_here_is_read_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    own = read_spark()
    assert own.library == own.jars
    assert decide_spark_problem(own, {}) is None
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.9.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert read_spark() == InstalledSpark(own.library, "3.5.9", str(tmp_path))


def test_an_unpacked_spark_on_the_path_of_python_is_found_with_its_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster: PYTHONPATH is SPARK/python."""
    package = tmp_path / "python" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text('__version__: str = "4.0.2"\n')
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.0.2.jar").touch()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "python"))
    assert read_spark() == InstalledSpark("4.0.2", "4.0.2", str(tmp_path))


def test_slots_of_another_python_are_refused_at_their_setting() -> None:
    (problem,) = decide_language_problems("4.3.0", 17, "3.11", "3.12")
    assert problem.message == "slots would run on Python 3.12, the daemon runs on 3.11"
    assert problem.name == "spark.pyspark.python"
    assert list(decide_language_problems("4.3.0", 17, "3.11", "3.11")) == []
    assert list(decide_language_problems("4.3.0", None, "3.11", "")) == [], "of another machine, so not known"


@pytest.mark.parametrize(("spark", "java", "refused"), [("3.5.9", 25, True), ("4.0.5", 25, True), ("4.0.5", 21, False)])
def test_a_java_that_is_too_new_for_this_spark_is_refused_with_the_newest_that_is_not(
    spark: str, java: int, refused: bool
) -> None:
    problems = list(decide_language_problems(spark, java, "3.11", ""))
    assert [one.message for one in problems] == ([f"Spark {spark} does not run on Java {java}"] if refused else [])
    assert all(one.remedy == "set JAVA_HOME to a Java of version 17 to 21" for one in problems)


def test_the_newest_spark_is_told_nothing_about_the_newest_java() -> None:
    assert list(decide_language_problems("4.3.0", 25, "3.13", "3.13")) == []


def test_the_python_of_an_interpreter_is_what_it_says(tmp_path: Path) -> None:
    assert read_python(sys.executable) == here()
    assert read_python(str(tmp_path / "nothing")) == ""
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 3.9\n")
    other.chmod(0o755)
    assert read_python(str(other)) == "3.9"


MISMATCH = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: ResultStage 0 has failed
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: \
3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.
Please check environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON are correctly set.
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
"""
"""Of Spark 4.3.0; 3.5.9 has the same sentence."""


def test_executors_of_another_python_end_the_daemon_with_both_versions_and_the_remedy() -> None:
    """Another attempt would meet the same, so it is no failed attempt."""
    text = describe_failure(MISMATCH)
    assert text == "Python in worker has different version: 3.12 than that in driver: 3.11"
    error = derive_job_error(text)
    assert isinstance(error, ExecutorsRunAnotherPython)
    assert (error.exit_code, error.retriable) == (2, False)
    assert f"give them Python {here()}" in error.message
