"""Transactional ids and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.ids import Attempt, OperatorName, SlotIndex
from tidegate.sinks.naming import TransactionalName, derive_name, is_replay, replay_id

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
SINKS = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,20}", fullmatch=True)
NUMBERS = st.integers(0, 10**9)


@given(NAMES, SINKS, NUMBERS, NUMBERS, NUMBERS, st.from_regex(r"[0-9a-f]{8}", fullmatch=True))
def test_X07_a_name_comes_back_from_its_id(
    pipeline: str, sink: str, subtask: int, attempt: int, pool_slot: int, journal: str
) -> None:
    name = TransactionalName(pipeline, OperatorName(sink), SlotIndex(subtask), Attempt(attempt), journal, pool_slot)
    assert derive_name(name.transactional_id) == name


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "a",
            "a.b.1-j.2",
            ".b.0.1-j.2",
            "a..0.1-j.2",
            "a.b.0.1-j.x",
            "a.b.0.01-j.2",
            "a.b.0.-1-j.2",
            "a.b.0.1-j.²",
        ),
        *("a.b.0.1.2", "a.b.0.1-.2"),
    ],
)
def test_other_ids_are_not_ours(text: str) -> None:
    assert derive_name(text) is None


def test_pipelines_of_which_one_name_begins_with_the_other_are_told_apart() -> None:
    name = derive_name("orders.eu.out.0.1-j.2")
    assert name is not None
    assert (name.pipeline, name.sink) == ("orders.eu", "out")


def test_a_sink_with_a_dot_would_be_ambiguous() -> None:
    with pytest.raises(ValueError, match=r"'b\.c'"):
        _ = TransactionalName("a", OperatorName("b.c"), SlotIndex(0), Attempt(1), "j", 0).transactional_id


def test_the_id_of_a_replay_is_known_and_is_no_sinks() -> None:
    assert replay_id("orders.eu") == "orders.eu.dead-letters"
    assert is_replay("orders.eu.dead-letters")
    assert derive_name(replay_id("orders.eu")) is None
    assert not is_replay("orders.eu.out.0.1-j.2")
