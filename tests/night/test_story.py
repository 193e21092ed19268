"""The table of a night says what happened: nothing that was planned, counted or raised gets lost on the way."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tests.night import __main__ as night_main
from tests.night.story import Night, Result


def play(monkeypatch: pytest.MonkeyPatch, out: Path, run: Callable[[Night], Result]) -> tuple[int, Result]:
    """Exit code and line of a night with one story, which is `run`."""
    monkeypatch.setattr(night_main, "import_module", lambda name: SimpleNamespace(run=run))
    monkeypatch.setattr(
        sys, "argv", ["night", "--stories", "idle", "--minutes", "0.1", "--seed", "7", "--out", str(out)]
    )
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("tempfile.tempdir", str(out.parent))
    code = night_main.main()
    return code, msgspec.json.decode(out.read_bytes(), type=Result)


def test_a_story_that_did_what_it_planned_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(night: Night) -> Result:
        night.least("kills", 2)
        for number in night.rounds(2):
            night.count("kills")
            with night.recovery():
                assert night.place.is_dir()
            if number == 2:
                break
        return night.close()

    code, result = play(monkeypatch, tmp_path / "out", run)
    assert list(tmp_path.glob("tidegate-night-*")) == []
    assert (code, result.story, result.seed, result.done, result.problems) == (0, "idle", 7, {"kills": 2}, [])


def test_a_planned_fault_that_did_not_happen_is_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(night: Night) -> Result:
        night.least("kills", 2)
        night.count("kills")
        return night.close()

    code, result = play(monkeypatch, tmp_path / "out", run)
    assert (code, result.problems) == (1, ["a planned fault did not happen: kills: 1 of 2"])


def test_a_story_that_breaks_off_has_its_line_and_keeps_its_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(night: Night) -> Result:
        night.count("kills")
        night.least("looks")
        (night.place / "daemon-0.log").write_text("last words")
        raise AssertionError("not within 300 s: output")

    code, result = play(monkeypatch, tmp_path / "out", run)
    assert (code, result.done) == (1, {"kills": 1})
    assert "AssertionError: not within 300 s: output" in result.problems[0]
    assert result.problems[1:] == ["a planned fault did not happen: looks: 0 of 1"]
    assert (Path(result.kept) / "daemon-0.log").read_text() == "last words"


def test_a_night_that_is_ended_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(night: Night) -> Result:
        sys.exit(143)

    with pytest.raises(SystemExit):
        play(monkeypatch, tmp_path / "out", run)
    assert list(tmp_path.iterdir()) == []


def test_equal_seeds_draw_equal_moments(tmp_path: Path) -> None:
    drawn = [Night("idle", seed, 1.0, tmp_path).dice.random() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
