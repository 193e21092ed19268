"""Chains of snapshots: what changed is of no use without what it changed."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import handle
from tests.state.driving import declare
from tidegate.coordinator.types import StateHandle, StateKind
from tidegate.coordinator.upgrade import WrittenState
from tidegate.ids import OperatorName, StateName
from tidegate.journal.state_files import derive_head, read_stored, refuse_broken_chains
from tidegate.state.declaration import StateDeclaration, declare_list
from tidegate.state.snapshot import EncodedGroup, assemble_snapshot
from tidegate.storage.base import ObjectCorrupt
from tidegate.storage.checksum import seal


def more(checkpoint: int, operator: str = "totals", subtask: int = 0) -> StateHandle:
    return msgspec.structs.replace(handle(checkpoint, operator, subtask), increment=True)


def test_increments_behind_a_full_snapshot_of_their_own_are_whole() -> None:
    refuse_broken_chains([handle(1), more(2), handle(1, subtask=1), more(2, subtask=1), more(3)])


@pytest.mark.parametrize("wrong", [more(2, subtask=1), more(2, "other")])
def test_increments_behind_a_snapshot_of_another_one_are_refused_by_name(wrong: StateHandle) -> None:
    with pytest.raises(ObjectCorrupt, match="does not list") as caught:
        refuse_broken_chains([handle(1), more(2), wrong])
    assert caught.value.fields["name"] == wrong.path


TOTALS, OTHERS = StateName("totals"), StateName("others")
KEYED, LISTED = declare(), declare_list("others", ())


@pytest.fixture
def storage() -> FakeStorage:
    return FakeStorage()


def stored(
    storage: FakeStorage, path: str, entries: int, declaration: StateDeclaration = KEYED, operator: str = "step"
) -> StateHandle:
    """A file with so many entries, which is larger the more they are."""
    groups = [EncodedGroup(group, entries, b"x" * entries) for group in (0, 1)]
    data = seal(assemble_snapshot(operator, declaration, groups))
    storage.put(path, data)
    head, digest = derive_head(data)
    found = handle(1, operator, path=path, size=len(data))
    return msgspec.structs.replace(found, state=declaration.name, head_bytes=head, head_sha256=digest)


def test_the_smallest_file_of_each_state_is_looked_at_and_keys_are_not_counted(storage: FakeStorage) -> None:
    files = [stored(storage, "b", 20), stored(storage, "a", 10), stored(storage, "c", 30)]
    files += [stored(storage, "d", 5, LISTED), stored(storage, "e", 1, operator="first"), stored(storage, "f", 10)]
    del storage.shared.objects["f"]
    step = OperatorName("step")
    assert read_stored(storage, files) == {
        (step, TOTALS): WrittenState(KEYED.shape, None, files[1].size_bytes),
        (step, OTHERS): WrittenState(LISTED.shape, None, files[3].size_bytes),
        (OperatorName("first"), TOTALS): WrittenState(KEYED.shape, None, files[4].size_bytes),
    }


def test_keys_and_bytes_are_counted_over_all_files_and_lists_have_no_keys(storage: FakeStorage) -> None:
    files = [stored(storage, "0", 0), stored(storage, "a", 10), stored(storage, "b", 20)]
    size = sum(one.size_bytes for one in files)
    files.append(stored(storage, "c", 5, LISTED))
    assert read_stored(storage, files, every=True) == {
        ("step", TOTALS): WrittenState(KEYED.shape, 60, size),
        ("step", OTHERS): WrittenState(LISTED.shape, None, files[3].size_bytes),
    }


@pytest.mark.parametrize("every", [False, True])
def test_damage_is_passed_over_and_the_other_states_are_read(storage: FakeStorage, every: bool) -> None:
    """The recovery looks for it, and for a way around it."""
    damaged, gone, whole = stored(storage, "a", 9), stored(storage, "b", 9, LISTED), stored(storage, "c", 9, KEYED, "b")
    storage.shared.objects["a"] = b"\0" + storage.shared.objects["a"][1:]
    del storage.shared.objects["b"]
    assert list(read_stored(storage, [damaged, gone, whole], every=every)) == [("b", TOTALS)]


def test_rows_in_flight_are_no_state(storage: FakeStorage) -> None:
    row = msgspec.structs.replace(handle(1), kind=StateKind.INPUT, edges=("a -> b",))
    assert read_stored(storage, [row], every=True) == {}
