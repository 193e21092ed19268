"""docs/operations describes what the code does: metrics, exit codes, paths, fields of a log line, states."""

from __future__ import annotations

import ast
import importlib
import logging
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest

import tidegate
from tests.tidy.tree import PACKAGE, python_files
from tidegate.coordinator.history import CheckpointRecord, FailureRecord, HistorySummary, SubtaskPhases
from tidegate.daemon.checkpoint_figures import PHASES
from tidegate.daemon.diagnosis.rules import render_rules_table
from tidegate.daemon.http.commands import COMMANDS
from tidegate.daemon.http.server import BEAT_LIMIT_S, PATHS
from tidegate.daemon.metric_catalogue import CATALOGUE, render_metrics_table
from tidegate.daemon.metrics import MARKER_ENDS, TransactionResult
from tidegate.daemon.status import CheckpointStatus, Diagnosis, OperatorStatus, PipelineState, SlotStatus, Status
from tidegate.errors import AttemptFailed, TidegateError
from tidegate.formats.failures import FailureKind
from tidegate.ids import Attempt
from tidegate.process.logs import FORMATS, MESSAGE_CHARACTERS_MAX, JsonFormatter, LogContext

PAGES = sorted((Path(__file__).parents[2] / "docs" / "operations").glob("*.md"))
PAGE = "\n".join(page.read_text("utf-8") for page in PAGES)


def test_every_kind_of_bad_record_is_explained() -> None:
    explained = re.findall(r"[A-Z][A-Z0-9_]+", "\n".join(first_cells(section("Bad records"))))
    assert sorted(explained) == sorted(FailureKind)


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^##? |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def first_cells(text: str) -> list[str]:
    return [row.split("|")[1].strip().strip("`") for row in text.splitlines() if row.startswith("| ")]


def subclasses(base: type[TidegateError]) -> Iterator[type[TidegateError]]:
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def test_the_table_of_metrics_is_the_catalogue() -> None:
    found = re.search(r"<!-- metrics: [^\n]* -->\n(.*?)\n<!-- end of metrics -->", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == render_metrics_table(), "run `python -m tidegate.daemon.metric_catalogue` and paste its table"


def test_the_table_of_diagnoses_is_that_of_the_rules() -> None:
    found = re.search(r"<!-- rules: [^\n]* -->\n(.*?)\n<!-- end of rules -->", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == render_rules_table(), "run `python -m tidegate.daemon.diagnosis.rules` and paste its table"


def test_expressions_name_metrics_that_exist() -> None:
    named = set(re.findall(r"tidegate_[a-z0-9_]+", section("Metrics") + section("Alerts")))
    assert {name.removesuffix("_bucket") for name in named} - {"tidegate_"} <= set(CATALOGUE)


def gauge_names() -> set[str]:
    """Keys of what operators answer to `gauges`."""
    return {
        str(key.value)
        for file in python_files(PACKAGE / "operators")
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef) and function.name == "gauges"
        for found in ast.walk(function)
        if isinstance(found, ast.Dict)
        for key in found.keys
        if isinstance(key, ast.Constant)
    }


@pytest.mark.parametrize(
    ("metric", "read"),
    [
        ("tidegate_operator_entries", gauge_names),
        ("tidegate_checkpoint_duration_seconds", lambda: PHASES),
        ("tidegate_transactions_total", lambda: TransactionResult),
        ("tidegate_missing_markers_written_total", lambda: MARKER_ENDS),
    ],
)
def test_values_of_a_label_are_named_where_they_are_few(metric: str, read: Callable[[], Iterable[str]]) -> None:
    values = set(read())
    assert values
    assert values - set(re.findall(r"\w+", CATALOGUE[metric].help)) == set()


@pytest.mark.slow
def test_every_exit_code_of_an_error_is_documented() -> None:
    for module in pkgutil.walk_packages(tidegate.__path__, "tidegate."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    documented = {int(cell) for cell in first_cells(section("Exit codes")) if cell.isdigit()}
    used = {(each.exit_code, each.__name__) for each in subclasses(TidegateError)}
    assert {(code, name) for code, name in used if code not in documented} == set()
    assert {0, 130, 143} <= documented


def test_codes_of_errors_are_unique() -> None:
    codes: dict[str, str] = {}
    for each in subclasses(TidegateError):
        if "code" in vars(each):
            name = f"{each.__module__}.{each.__qualname__}"
            assert codes.setdefault(each.code, name) == name


def test_all_paths_and_aliases_are_documented() -> None:
    text = section("Probes and paths")
    commands = {f"POST {command.path}" for command in COMMANDS}
    assert set(first_cells(text)) - {"path", "---", "/"} == set(PATHS) | commands
    assert f"{BEAT_LIMIT_S:.0f} s" in text


def test_all_states_are_documented() -> None:
    assert first_cells(section("States"))[2:] == [state.value for state in PipelineState]


def test_variables_of_our_own_are_documented() -> None:
    named = {
        name for file in python_files(PACKAGE) for name in re.findall(r'"(TIDEGATE_[A-Z_]+)"', file.read_text("utf-8"))
    }
    documented = set(re.findall(r"`(TIDEGATE_[A-Z_]+)`", section("Environment variables")))
    assert documented == named


def test_all_fields_of_a_log_line_are_documented() -> None:
    attributes = {"name": "x", "levelno": 40, "levelname": "ERROR", "msg": "m", "checkpoint": 1, "subtask": 0}
    record = logging.makeLogRecord(
        {**attributes, "error": AttemptFailed("gone", slot=1), "exc_text": "Traceback"},
    )
    line = JsonFormatter(LogContext("shop", Attempt(1))).format(record)
    text = section("Logs")
    assert set(first_cells(text)) - {"field", "---"} == set(re.findall(r'"(\w+)":', line)) - {"slot"}
    assert f"{MESSAGE_CHARACTERS_MAX:,} characters" in text
    assert all(f"`{style}`" in text for style in FORMATS)


@pytest.mark.parametrize(
    ("title", "answers"),
    [
        ("Status as JSON", (Status, CheckpointStatus, OperatorStatus, SlotStatus, HistorySummary, Diagnosis)),
        ("History", (CheckpointRecord, SubtaskPhases, FailureRecord)),
    ],
)
def test_all_fields_of_an_answer_are_documented(title: str, answers: tuple[type[msgspec.Struct], ...]) -> None:
    documented = set(re.findall(r"`([a-z0-9_]+)`", section(title)))
    assert {field for answer in answers for field in answer.__struct_fields__} - documented == set()
