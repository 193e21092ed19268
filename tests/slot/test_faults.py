"""Which exceptions of a slot another attempt would meet again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tidegate.errors import AttemptFailed
from tidegate.slot.faults import derive_failure, derive_fault
from tidegate.user_code.failure import StepFailed
from tidegate.user_code.modules import UserCodeProblem, install_modules, load, read_modules


def _raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    assert isinstance(caught.value, Exception)
    return caught.value


def _lookup(name: str) -> int:
    return {"a": 1}[name]


def test_the_same_place_is_the_same_fault_whatever_the_values_are() -> None:
    first, second = (derive_fault(_raised(partial(_lookup, name))) for name in ("b", "c"))
    assert first == second
    assert first.startswith("KeyError < ")
    assert "test_faults.py" in first


def test_another_place_is_another_fault() -> None:
    assert derive_fault(_raised(partial(_lookup, "b"))) != derive_fault(_raised(partial(int, "b")))


@pytest.mark.parametrize("error", [OSError("disk"), MemoryError(), RuntimeError("no thread"), TimeoutError()])
def test_what_the_world_does_is_no_fault(error: Exception) -> None:
    assert derive_fault(error) == ""


def test_a_missing_module_is_not_tried_again_and_is_named() -> None:
    failed = derive_failure(ModuleNotFoundError("No module named 'polars'"))
    assert (failed.code, failed.retriable, failed.exit_code) == ("executor-lacks-module", False, 2)
    assert failed.message == "ModuleNotFoundError: No module named 'polars'"


def test_an_error_on_purpose_is_told_as_it_is_and_a_bug_whole() -> None:
    told = derive_failure(AttemptFailed("worker 1 was lost"))
    assert (told.message, told.retriable, told.traceback, told.fault) == ("worker 1 was lost", True, "", "")
    bug = derive_failure(_raised(partial(_lookup, "b")))
    assert (bug.code, bug.retriable, bug.message) == ("internal", True, "KeyError: 'b'")
    assert "Traceback" in bug.traceback
    assert bug.fault.startswith("KeyError < ")


def _open(name: str) -> None:
    try:
        _lookup(name)
    except KeyError as error:
        raise StepFailed(f"step visits: visits:Visits cannot be opened: {error}") from error


def test_an_open_of_the_users_that_raises_an_error_of_the_program_is_the_same_fault_each_time() -> None:
    """Three attempts with the same fault end the daemon (`coordinator/restart.py`)."""
    first, second = (derive_failure(_raised(partial(_open, name))) for name in ("b", "c"))
    assert first.retriable
    assert first.fault == second.fault
    assert first.fault.startswith("KeyError < ")
    unreachable = StepFailed("step visits: visits:Visits cannot be opened")
    unreachable.__cause__ = OSError("no route to the model server")
    assert derive_failure(unreachable).fault == ""


def test_a_module_of_the_users_that_executors_cannot_import_ends_the_daemon_with_the_remedy(tmp_path: Path) -> None:
    """`validate` has imported it with the daemon's interpreter; another attempt would not find the package either."""
    (tmp_path / "geo.py").write_text("import not_installed_here\nasync def resolve(row): return {}\n")
    install_modules(read_modules(tmp_path, ["geo:resolve"]))
    try:
        with pytest.raises(UserCodeProblem) as caught:
            load("geo:resolve")
    finally:
        install_modules({})
    failed = derive_failure(caught.value)
    assert (failed.code, failed.retriable, failed.exit_code) == ("executor-lacks-module", False, 2)
    assert "No module named 'not_installed_here'; put it next to the pipeline file, list its wheel" in failed.message


def test_a_module_of_the_users_that_fails_for_another_reason_is_tried_again_and_tells_the_remedy() -> None:
    """At its import it may read what will be there."""
    failed = derive_failure(UserCodeProblem("the module `geo` cannot be imported: OSError: away", "correct the module"))
    assert (failed.code, failed.retriable) == ("internal", True)
    assert failed.message.endswith("OSError: away; correct the module")
