"""Upgrade directives that a checkpoint records as applied: which are kept, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidegate.coordinator.upgrade import (
    APPLIED_MAX,
    DROPPED_MAX,
    CommandLineDirectives,
    Definition,
    advise,
    derive_applied,
    render_directive,
)
from tidegate.ids import OperatorName
from tidegate.plan.graph import UpgradeDirective

A, B, S = OperatorName("a"), OperatorName("b"), OperatorName("s")
MANY = tuple(f"keep: {number}" for number in range(APPLIED_MAX + 3))


def definition(directives: Mapping[OperatorName, UpgradeDirective] | None = None, *drop: OperatorName) -> Definition:
    """A source `s` and a step `a`."""
    return Definition({}, {S: {"t": 1}}, {A: ()}, frozenset(), directives or {}, CommandLineDirectives(drop=drop))


def test_what_was_given_up_gives_way_to_newer_ones_and_what_is_there_stays() -> None:
    before = {S: ("was",), A: ("keep",)} | {OperatorName(f"gone{n}"): ("--drop",) for n in range(DROPPED_MAX)}
    applied = derive_applied(before, definition(None, B), {})
    assert (applied[S], applied[A], applied[B]) == (("was",), ("keep",), ("--drop",))
    assert "gone0" not in applied
    assert len(applied) == DROPPED_MAX + 2


def test_a_step_without_directives_has_none_applied() -> None:
    assert derive_applied({}, definition(), {}) == {}


@pytest.mark.parametrize("count", [APPLIED_MAX, APPLIED_MAX + 1])
def test_applied_directives_of_a_step_are_bounded_when_it_has_none_now(count: int) -> None:
    assert derive_applied({A: MANY[:count]}, definition(), {}) == {A: MANY[count - APPLIED_MAX : count]}


def test_an_applied_directive_follows_the_name_of_its_step() -> None:
    directive = {A: UpgradeDirective(verb="reset", note="again")}
    assert derive_applied({B: ("keep", "reset: again")}, definition(directive), {B: A}) == {A: ("keep", "reset: again")}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("--keep", "`--keep`"),
        ("--reset: why", '`--reset STEP="why"`'),
        ("keep", "`state: keep`"),
        ("reset: why: so", '`state: {reset: "why: so"}`'),
    ],
)
def test_a_directive_is_shown_as_a_user_writes_it(text: str, shown: str) -> None:
    assert render_directive(text) == shown


@pytest.mark.parametrize(
    ("verbs", "applied", "advice"),
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
def test_how_to_write_a_directive(verbs: str, applied: str, advice: str) -> None:
    assert advise(A, verbs, applied) == advice
