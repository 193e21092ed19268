"""docs/messages.md explains every code of a daemon and every reason of a checkpoint, and names texts that there are."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import tidegate
from tests.tidy.tree import PACKAGE, python_files
from tidegate.coordinator.events import CheckpointFailure
from tidegate.errors import TidegateError

PAGE = (Path(__file__).parents[2] / "docs" / "messages.md").read_text("utf-8")
TOOLS = (
    *(
        "tidegate.api.",
        "tidegate.dev.",
        "tidegate.simulation.",
        "tidegate.tables.",
        "tidegate.testing.",
        "tidegate.expressions.",
    ),
    *(
        "tidegate.sources.dead_letter_topic",
        "tidegate.cli.docs",
        "tidegate.checks.upgrade_check",
        "tidegate.spark.state_source",
        "tidegate.spark.class_archive",
        "tidegate.daemon.checkpoint_requests",
    ),
)
"""Rooms whose errors end a command, in whose terminal the message is, or are in an answer that a command reports."""
PIECE = re.compile(r"\s*\.\.\.\s*")
VALUE = re.compile(r"%(?:\.?\d+)?[a-z]")


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def rows(title: str) -> Iterator[list[str]]:
    for line in section(title).splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def documented_codes() -> dict[str, set[int]]:
    titles = [title for title in re.findall(r"^## (.*)$", PAGE, re.MULTILINE) if title.startswith("Codes")]
    assert len(titles) == 4
    return {
        code: {int(one) for one in row[1].split(", ")}
        for title in titles
        for row in rows(title)
        for code in re.findall(r"`([^`]+)`", row[0])
    }


def errors(base: type[TidegateError] = TidegateError) -> Iterator[type[TidegateError]]:
    for each in base.__subclasses__():
        yield each
        yield from errors(each)


@pytest.mark.slow
def test_every_code_of_a_daemon_and_of_commands_to_it_is_explained_with_its_exit_code() -> None:
    for module in pkgutil.walk_packages(tidegate.__path__, "tidegate."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    documented = documented_codes()
    own = [each for each in errors() if each.__module__.startswith("tidegate.")]  # tests have errors, too
    used = {each.code: each.exit_code for each in own if not f"{each.__module__}.".startswith(TOOLS)}
    assert sorted(documented) == sorted(used)
    assert {code: (used[code], codes) for code, codes in documented.items() if used[code] not in codes} == {}


def test_every_reason_of_a_checkpoint_that_was_given_up_is_explained() -> None:
    named = [reason for row in rows("Checkpoints that fail") for reason in re.findall(r"`([^`]+)`", row[0])]
    assert sorted(named) == sorted(CheckpointFailure)


@cache
def texts() -> tuple[str, ...]:
    """Every text of the program, with a mark where it has values."""
    found = []
    for file in python_files(PACKAGE):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(VALUE.sub("\0", node.value))
            elif isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
                found.append("".join(map(str, parts)))
    return tuple(found)


@pytest.mark.slow
def test_the_log_has_the_texts_that_the_page_looks_up() -> None:
    named = [text for row in rows("Warnings in the log") for text in re.findall(r"`([^`]+)`", row[0])]
    assert len(named) > 30
    patterns = {text: re.compile(".*".join(map(re.escape, PIECE.split(text))), re.DOTALL) for text in named}
    assert [text for text, pattern in patterns.items() if not any(map(pattern.search, texts()))] == []
