"""A recovery cannot call its stages in another order: what each needs, only the stage before it makes."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import tidegate
from tidegate.daemon import commit_listed, preflight, recovery, recovery_stages, restore_point, start_offsets
from tidegate.daemon.recovery_stages import (
    OffsetsAssigned,
    Recovered,
    RestorePointAppended,
    StateVerified,
    TakenOver,
    TransactionsResolved,
)

ROOT = Path(tidegate.__file__).parent
ORDER = (
    preflight.Preflight,
    TakenOver,
    StateVerified,
    TransactionsResolved,
    RestorePointAppended,
    OffsetsAssigned,
    Recovered,
)
MAKERS: dict[type, str] = {
    preflight.Preflight: "daemon/preflight.py:run_preflight",
    TakenOver: "daemon/recovery.py:take_over",
    StateVerified: "daemon/restore_point.py:get_round_damage",
    TransactionsResolved: "daemon/commit_listed.py:commit_listed",
    RestorePointAppended: "daemon/restore_point.py:go_back",
    OffsetsAssigned: "daemon/start_offsets.py:_placed",
    Recovered: "daemon/recovery.py:clear",
}
STEPS: tuple[Callable[..., Any], ...] = (
    recovery.take_over,
    restore_point.RestorePointSelector.get_round_damage,
    commit_listed.commit_listed,
    restore_point.RestorePointSelector.go_back,
    start_offsets.fix_start_offsets,
    recovery.clear,
)


def find_makers(name: str) -> Iterator[str]:
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if name not in text:
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
                if any(isinstance(call, ast.Name) and call.id == name for call in calls):
                    yield f"{path.relative_to(ROOT).as_posix()}:{function.name}"


@pytest.mark.parametrize("stage", ORDER, ids=lambda stage: stage.__name__)
def test_a_stage_is_made_in_one_function(stage: type) -> None:
    assert list(find_makers(stage.__name__)) == [MAKERS[stage]]


def test_every_stage_is_in_the_order() -> None:
    declared = {
        kind
        for _, kind in inspect.getmembers(recovery_stages, inspect.isclass)
        if kind.__module__ == recovery_stages.__name__
    }
    assert declared == set(ORDER[1:])


@pytest.mark.parametrize("number", range(len(STEPS)), ids=lambda number: STEPS[number].__name__)
def test_a_step_takes_the_stage_before_it_and_returns_the_next(number: int) -> None:
    hints = get_type_hints(STEPS[number])
    assert hints.pop("return") is ORDER[number + 1]
    assert [kind for kind in hints.values() if kind in ORDER] == [ORDER[number]]
