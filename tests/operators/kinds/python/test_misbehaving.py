"""User code that misbehaves: its row fails alone, and neither other rows, other readers nor the process are affected.

`tests/e2e/test_misbehaving_code.py` has what ends or blocks a slot.
"""

from __future__ import annotations

import decimal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec
import pytest

from tests.operators.kinds.python import running
from tests.operators.kinds.python.running import messages, rows, taken
from tests.operators.subtasks import Subtasks
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.kinds.python.running import rows as running_rows
from tidegate.state.errors import LocalStateFailed
from tidegate.user_code.running import FORKED_EXIT_CODE


def operator(name: str, *keys: str, per_batch: bool = False) -> PythonOperator:
    spec = running.operator(name, keys, module="tests.operators.kinds.python.misbehaving")
    return msgspec.structs.replace(spec, per_batch=per_batch)


@pytest.fixture(autouse=True)
def _own_context() -> Iterator[None]:
    with decimal.localcontext():
        yield


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("recursion", "RecursionError: maximum recursion depth exceeded"),
        ("memory", "MemoryError, at "),
        ("text", "Ends: (its text raises SystemExit), at "),
        (
            "replaces",
            "AttributeError: `clicks` is declared by the step, and cannot be replaced: write `self.clicks.set(",
        ),
    ],
)
def test_a_row_fails_alone_whatever_its_code_does(what: str, reason: str) -> None:
    tasks = Subtasks(operator("Rows", "n"), ("n",))
    tasks.process(rows(("fine", 1), (what, 1), ("fine", 1)))
    assert taken(tasks, "clicks") == [1, 2]
    ((row, message),) = messages(tasks)
    assert (row, message[: len(reason)]) == (1, reason)
    tasks.close()


@pytest.mark.parametrize("what", ["exit", "memory", "recursion"])
def test_a_row_of_a_batch_fails_alone_whatever_its_code_does(what: str) -> None:
    tasks = Subtasks(operator("Batches", "n", per_batch=True), ("n",))
    tasks.process(rows(("fine", 1), (what, 1), ("fine", 1)))
    assert taken(tasks, "clicks") == [1, 2]
    assert [row for row, _ in messages(tasks)] == [1]
    tasks.close()


def test_changes_of_the_process_do_not_change_values() -> None:
    """The precision of decimals is that of the thread, and the thread is that of all steps."""
    tasks = Subtasks(operator("Rows", "n"), ("n",))
    tasks.process(rows(("context", 1), ("price", 1)))
    assert decimal.getcontext().prec == 2
    assert messages(tasks) == []
    tasks.restart(1)
    tasks.process(rows(("fine", 1)))
    assert taken(tasks, "clicks") == [1, 2, 3]
    tasks.close()


def test_changes_of_a_frame_reach_no_other_reader() -> None:
    tasks = Subtasks(operator("change_in_place", per_batch=True), ())
    batch = rows(("a", 1), ("b", 2))
    before = batch.clone()
    tasks.process(batch)
    assert taken(tasks, "clicks") == [1, 77]
    assert batch.equals(before)
    tasks.close()


def test_changes_of_the_keys_of_a_batch_do_not_change_whose_state_is_written() -> None:
    tasks = Subtasks(operator("Batches", "n", per_batch=True), ("n",))
    tasks.process(rows(("keys", 1)))
    tasks.process(rows(("fine", 5), ("fine", 1)))
    assert taken(tasks, "clicks") == [1, 1, 3]
    tasks.close()


def test_rows_without_end_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_rows, "ROWS_KEPT", 5)
    monkeypatch.setattr(running_rows, "_LIMIT", 12)
    tasks = Subtasks(operator("endless"), ())
    tasks.process(rows(("a", 1), ("endless", 1), ("b", 1)))
    assert taken(tasks, "user") == ["a", "b"]
    ((row, message),) = messages(tasks)
    assert (row, message.partition(",")[0]) == (1, "RuntimeError: the output: one row may emit at most 100000 rows")
    tasks.close()


def test_code_that_emits_nothing_emits_nothing() -> None:
    tasks = Subtasks(operator("silent"), ())
    tasks.process(rows(("a", 1)))
    assert (tasks.rows(), messages(tasks)) == ([], [])
    tasks.close()


def test_state_that_cannot_be_read_is_not_blamed_on_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Subtasks(operator("Rows", "n"), ("n",))
    state: Any = tasks.runtimes[0].states["pages"]

    def fail(_key: object) -> NoReturn:
        raise LocalStateFailed("the disk is full")

    monkeypatch.setattr(state, "get", fail)
    with pytest.raises(LocalStateFailed):
        tasks.process(rows(("state", 1)))
    tasks.close()


FORKS = """
import os
from tidegate.user_code.running import RUNNING
with RUNNING.of("visits"):
    child = os.fork()
if child == 0:
    os._exit(1)  # where the work of the slot would go on
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_that_user_code_has_forked_does_not_go_on_with_the_work_of_the_slot() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(FORKED_EXIT_CODE)
    assert done.stderr == "step visits: a process that its code has forked ends here\n"
