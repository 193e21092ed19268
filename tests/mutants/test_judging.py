"""What was judged is about code that is still there."""

from __future__ import annotations

import pytest

from tests.mutants.judging import JUDGED, find_unjudged, read_judged
from tests.mutants.work import NOT_CALLED, ROOMS, ROOT, Mutant

SURVIVOR = Mutant("1", "task.loop", "Loop.run", "survived", "a < b", "a <= b")


@pytest.mark.parametrize("room", ROOMS)
def test_judged_functions_are_in_their_modules_with_the_lines_that_were_judged(room: str) -> None:
    lost = []
    for name in read_judged(room):
        place, _, change = name.partition(": ")
        (module, function), old = place.split(), change.partition("  =>")[0]
        source = (ROOT / "tidegate" / f"{module.replace('.', '/')}.py").read_text()
        there = f"def {function.rpartition('.')[2]}(" in source
        stands = old in {"*", NOT_CALLED} or " ".join(old.split()) in " ".join(source.split())
        if not (there and stands):
            lost.append(name)
    assert lost == []


def test_every_file_of_judged_ones_is_of_a_room_and_begins_with_a_reason() -> None:
    for file in JUDGED.iterdir():
        assert file.stem in ROOMS
        assert file.read_text()[0].isalpha()


def test_a_mutant_keeps_its_judgement_when_lines_move_and_loses_it_when_they_change() -> None:
    assert find_unjudged([SURVIVOR], {SURVIVOR.name}) == []
    other = Mutant("2", "task.loop", "Loop.run", "survived", "a < c", "a <= c")
    assert find_unjudged([SURVIVOR, other], {SURVIVOR.name}) == [other]
    assert find_unjudged([SURVIVOR, other], {SURVIVOR.any_name}) == []
    assert find_unjudged([Mutant("3", "task.loop", "Loop.run", "killed")], set()) == []


def test_a_mutant_that_was_not_tried_is_open_and_no_time_out() -> None:
    untried = Mutant("4", "task.loop", "Loop.run", "not checked")
    assert untried.fate == "not tried"
    assert find_unjudged([untried], set()) == [untried]
