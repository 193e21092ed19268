"""Words about changed state: what is remembered of them, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidegate.coordinator.upgrade import (
    DROPPED_MAX,
    WORDS_MAX,
    CommandLineDirectives,
    Definition,
    advise,
    derive_applied,
    render_directive,
)
from tidegate.ids import OperatorName
from tidegate.plan.graph import UpgradeDirective

A, B, S = OperatorName("a"), OperatorName("b"), OperatorName("s")
MANY = tuple(f"keep: {number}" for number in range(WORDS_MAX + 3))


def definition(words: Mapping[OperatorName, UpgradeDirective] | None = None, *drop: OperatorName) -> Definition:
    """A source `s` and a step `a`."""
    return Definition({}, {S: {"t": 1}}, {A: ()}, frozenset(), words or {}, CommandLineDirectives(drop=drop))


def test_what_was_given_up_gives_way_to_newer_ones_and_what_is_there_stays() -> None:
    before = {S: ("was",), A: ("keep",)} | {OperatorName(f"gone{n}"): ("--drop",) for n in range(DROPPED_MAX)}
    applied = derive_applied(before, definition(None, B), {})
    assert (applied[S], applied[A], applied[B]) == (("was",), ("keep",), ("--drop",))
    assert "gone0" not in applied
    assert len(applied) == DROPPED_MAX + 2


def test_of_a_step_without_words_nothing_is_remembered() -> None:
    assert derive_applied({}, definition(), {}) == {}


@pytest.mark.parametrize("count", [WORDS_MAX, WORDS_MAX + 1])
def test_words_of_a_step_are_bounded_when_it_says_none_now(count: int) -> None:
    assert derive_applied({A: MANY[:count]}, definition(), {}) == {A: MANY[count - WORDS_MAX : count]}


def test_a_word_follows_the_name_of_its_step() -> None:
    word = {A: UpgradeDirective(verb="reset", note="again")}
    assert derive_applied({B: ("keep", "reset: again")}, definition(word), {B: A}) == {A: ("keep", "reset: again")}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--keep", "`--keep`"),
        ("--reset: why", '`--reset STEP="why"`'),
        ("keep", "`state: keep`"),
        ("reset: why: so", '`state: {reset: "why: so"}`'),
    ],
)
def test_a_word_is_shown_as_a_user_writes_it(text: str, shown: str) -> None:
    assert render_directive(text) == shown


@pytest.mark.parametrize(
    ("words", "applied", "said"),
    [
        ("reset", "", "To reset it, write `state: reset` in the file, or for a single start --reset a"),
        (
            "keep or reset",
            "",
            "Choose `state: keep` or `state: reset` in the file, or for a single start --keep a or --reset a",
        ),
        (
            "keep or reset",
            "reset: old",
            (
                'The directive `state: {reset: "old"}` was applied to an earlier change: write a new '
                'note, `state: {keep: "why, and when"}`, or for a single start --keep a="why, and when"'
            ),
        ),
    ],
)
def test_how_a_word_is_said(words: str, applied: str, said: str) -> None:
    assert advise(A, words, applied) == said
