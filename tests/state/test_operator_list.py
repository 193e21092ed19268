"""State without keys: how it is dealt out, and that its snapshots are those of any other state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.state.driving import declare
from tidegate.datatypes import STRING
from tidegate.ids import CheckpointId
from tidegate.state.base import Share
from tidegate.state.declaration import StateField, StateForm, declare_list
from tidegate.state.errors import StateUnreadable
from tidegate.state.increments import Capture
from tidegate.state.operator_list import OperatorList, deal_values
from tidegate.state.snapshot import read_header

READERS = declare_list("readers", (StateField("name", STRING),))
KNOWN = declare_list("known", (StateField("name", STRING),), StateForm.UNION)


def make(names: str = "", union: bool = False) -> OperatorList[str]:
    one = OperatorList[str]("read", KNOWN if union else READERS)
    if names:
        one.replace([(name,) for name in names])
    return one


def names_of(one: OperatorList[str]) -> str:
    return "".join(value[0] for value in one.values)


def encoded(one: OperatorList[str]) -> list[bytes]:
    capture = one.capture(CheckpointId(10**9), full=True)
    assert capture.encode is not None
    return list(capture.encode())


@given(st.integers(0, 50), st.integers(1, 9))
def test_an_even_split_gives_each_value_to_one_subtask_and_none_two_more_than_another(count: int, of: int) -> None:
    values = [(number,) for number in range(count)]
    parts = [deal_values(values, StateForm.SPLIT, subtask, of) for subtask in range(of)]
    assert [value for part in parts for value in part] == values
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_union_gives_everything_to_everybody() -> None:
    assert [deal_values([(1,), (2,)], StateForm.UNION, subtask, 3) for subtask in range(3)] == [((1,), (2,))] * 3


def test_what_cannot_be_dealt_out_is_an_error() -> None:
    with pytest.raises(ValueError, match="dealt out by key group"):
        deal_values([], StateForm.KEYED, 0, 1)
    with pytest.raises(ValueError, match="subtask 2 is not within 0"):
        deal_values([], StateForm.SPLIT, 2, 2)
    with pytest.raises(ValueError, match="state totals of read is keyed, not a list"):
        OperatorList("read", declare())


@pytest.mark.parametrize(("union", "expected"), [(False, ["a", "bc", "de"]), (True, ["abcde"] * 3)])
def test_lists_of_two_subtasks_are_restored_by_three(union: bool, expected: list[str]) -> None:
    files = [file for part in ("abcd", "e") for file in encoded(make(part, union))]
    restored = [make(union=union) for _ in range(3)]
    for subtask, one in enumerate(restored):
        one.restore(files, Share(range(0), subtask, 3))
    assert [names_of(one) for one in restored] == expected
    assert [len(one) for one in restored] == list(map(len, expected))


def test_a_capture_does_not_see_later_changes() -> None:
    one, restored = make("ab"), make()
    capture = one.capture(CheckpointId(1))
    one.replace([])
    assert capture.encode is not None
    restored.restore(capture.encode(), Share(range(0)))
    assert names_of(restored) == "ab"


def test_F28_what_has_not_changed_is_listed_again_and_what_has_is_written_whole() -> None:
    one = make("ab")
    assert not one.capture(CheckpointId(1)).keyed
    one.stored(CheckpointId(1), ["1.0"])
    one.completed(CheckpointId(1))
    whole = one.capture(CheckpointId(2), full=True)
    assert whole.encode is not None
    assert (whole.builds_on, whole.keyed) == ((), False)
    again = one.capture(CheckpointId(2))
    assert (again.encode, again.builds_on, again.keyed) == (None, ("1.0",), False)
    one.completed(CheckpointId(2))
    one.replace([("c",)])
    for number, given_up in ((3, True), (4, False)):
        changed = one.capture(CheckpointId(number))
        assert changed.encode is not None
        assert changed.builds_on == ()
        if given_up:
            one.abandoned(CheckpointId(number))


def test_its_file_says_what_it_is_and_is_not_read_as_another_state() -> None:
    (file,) = encoded(make("ab"))
    header, _ = read_header(file)
    assert (header.operator, header.state, header.shape.form) == ("read", "readers", "split")
    assert (header.shape.keys, header.shape.key_hash, header.shape.max_parallelism) == ((), "", 0)
    with pytest.raises(StateUnreadable, match=r"a state file of read\.readers was given to read\.known"):
        make(union=True).restore([file], Share(range(0)))


def test_an_empty_list_is_no_file_and_no_keyed_state() -> None:
    assert make().capture(CheckpointId(1)) == Capture(None, keyed=False)


def test_a_closed_list_is_empty() -> None:
    one = make("ab")
    one.close()
    assert len(one) == 0
