"""One cell of the matrix a night, drawn by the seed from what this machine has; its result is the night's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.__main__ import Line
from tests.compatibility.cells import Cell, derive_cells
from tests.compatibility.environments import CannotRun
from tests.night import compatibility
from tests.night.story import Night, Result

EXACT = {"passed": True, "seconds": 9.0, "seen": 500, "done": {"slot killed": 1, "executor killed": 1}}


def tell(
    monkeypatch: pytest.MonkeyPatch, place: Path, seed: int, **outcome: object
) -> tuple[Cell, Result]:  # what was run, and its line
    ran: list[Cell] = []

    def run_all(cells: list[Cell], _seed: int) -> Iterator[Line]:
        ran.extend(cells)
        yield from (Line(cell=cell, **{**EXACT, **outcome}) for cell in cells)  # type: ignore[arg-type]  # words of a case

    def find_python(wanted: str) -> Path:
        if wanted == "3.14":
            raise CannotRun("no python3.14")
        return place

    monkeypatch.setattr(compatibility, "run_all", run_all)
    monkeypatch.setattr(compatibility, "find_python", find_python)
    result = compatibility.run(Night("compatibility", seed, 300.0, place))
    (cell,) = ran
    return cell, result


def test_the_seed_draws_the_cell_and_the_line_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell, result = tell(monkeypatch, tmp_path, 7)
    assert tell(monkeypatch, tmp_path, 7)[0] == cell
    assert result.drawn == cell.name
    assert cell.name in capsys.readouterr().out
    assert (result.seen, result.done["executor killed"], result.problems) == (500, 1, [])


def test_all_cells_are_drawn_in_time_but_those_of_a_python_that_is_not_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn = {tell(monkeypatch, tmp_path, seed)[0] for seed in range(400)}
    assert drawn == {cell for cell in derive_cells({}) if cell.python != "3.14"}


def test_what_is_wrong_in_the_cell_is_wrong_in_the_night(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, result = tell(monkeypatch, tmp_path, 7, passed=False, problems=["output is not exact"], kept="/tmp/cell")
    assert result.problems == ["output is not exact", "the cell's directory is kept: /tmp/cell"]


def test_a_fault_that_did_not_happen_in_the_cell_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, result = tell(monkeypatch, tmp_path, 7, done={"slot killed": 1})
    assert result.problems == ["a planned fault did not happen: executor killed: 0 of 1"]
