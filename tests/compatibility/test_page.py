"""The page says what was run, and the cells have lists of jars and the versions that are pinned."""

from __future__ import annotations

import tomllib
from importlib.metadata import version

from tests.compatibility.cells import AXES, MIDDLE, derive_cells
from tests.compatibility.environments import leave_out
from tests.compatibility.page import read_results, render_table
from tests.compatibility.releases import LISTS
from tests.tidy.tree import ROOT
from tidegate.dev.broker.artifacts import KAFKA_VERSION, read_artifacts
from tidegate.spark.versions import InstalledSpark, decide_spark_problem


def test_the_table_of_the_page_is_made_of_the_results() -> None:
    assert render_table(read_results()) in (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")


def test_only_what_was_exact_is_kept() -> None:
    assert all(line.passed and line.seen > 0 and line.done["executor killed"] for line in read_results())


def test_the_middle_is_what_is_pinned() -> None:
    assert (MIDDLE.spark, MIDDLE.kafka) == (version("pyspark"), KAFKA_VERSION)


def test_every_spark_that_a_start_takes_was_run_and_may_be_installed() -> None:
    ran = {line.cell.spark for line in read_results()}
    assert {one.rpartition(".")[0] for one in ran} == {one.rpartition(".")[0] for one in AXES["spark"]}
    assert all(decide_spark_problem(InstalledSpark(one, one, ""), {}) is None for one in ran)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "pyspark>=3.5,<4.4" in project["dependencies"]


def test_every_kafka_has_its_list_of_jars() -> None:
    for cell in derive_cells({}):
        if cell.kafka_version != KAFKA_VERSION:
            listed = read_artifacts(LISTS / f"{cell.kafka_version}.txt")
            assert f"kafka_2.13-{cell.kafka_version}.jar" in [one.file_name for one in listed]


def test_a_lock_is_left_without_the_packages_that_a_cell_has_otherwise() -> None:
    lock = (ROOT / "requirements-runtime.lock").read_text(encoding="ascii")
    less = leave_out(lock, ["pyspark", "datasketches"])
    left = [line.split("==")[0] for line in less.splitlines() if "==" in line]
    assert left == [
        name
        for name in (line.split("==")[0] for line in lock.splitlines() if "==" in line)
        if name not in ("pyspark", "datasketches")
    ]
    assert less.count("--hash=") < lock.count("--hash=")


def test_cells_are_chosen_by_the_beginning_of_a_version() -> None:
    assert {cell.spark for cell in derive_cells({"spark": ["4.0"]})} == {"4.0.5"}
    assert {cell.kafka for cell in derive_cells({"kafka": ["4.3.1"]})} == {"4.3.1", "4.3.1/1"}
    assert derive_cells({"spark": ["4"], "kafka": ["2"]}) == []
    assert derive_cells({})[0] == MIDDLE
