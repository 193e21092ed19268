"""Savepoints after they were written: found, read to the last byte, removed; a death at every storage call."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.test_storage_crashes import Death, MortalStorage
from tests.coordinator.values import IDENTITY, committable, completed, handle, positions
from tidegate.coordinator.entries import Savepoint
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle, StateKind
from tidegate.datatypes import BIGINT, STRING
from tidegate.ids import OperatorName, SlotIndex, StateName
from tidegate.journal.savepoint import (
    METADATA,
    FoundSavepoint,
    SavepointNeeded,
    SavepointRefused,
    check_whole,
    examine_savepoint,
    examine_state,
    find_savepoints,
    mark_of,
    read_savepoint,
    refuse_needed,
    remove_savepoint,
    savepoint_folder,
    write_savepoint,
)
from tidegate.journal.state_files import derive_head
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.snapshot import encode_snapshot
from tidegate.storage.base import ObjectCorrupt, Storage
from tidegate.storage.checksum import seal
from tidegate.storage.local import LocalStorage
from tidegate.storage.open import open_storage

TOKEN = "0123456789abcdef"
SHAPE = StateShape((StateField("k", STRING),), (StateField("n", BIGINT),), "h", 8)
TOTALS = StateDeclaration(StateName("totals"), SHAPE)


def stored(storage: Storage, subtask: int, keys: int, operator: str = "totals") -> StateHandle:
    entries = [((f"key {number}",), (number,)) for number in range(keys)]
    data = seal(encode_snapshot(operator, TOTALS, {subtask: entries}))
    path = handle(7, subtask=subtask).path
    storage.put(path, data)
    return handle_of(path, subtask, data)


def handle_of(path: str, subtask: int, data: bytes) -> StateHandle:
    digest = hashlib.sha256(data).hexdigest()
    where = (OperatorName("totals"), SlotIndex(subtask), path, len(data), digest)
    return StateHandle(*where, *derive_head(data), state=TOTALS.name)


def checkpoint_in(storage: Storage) -> CompletedCheckpoint:
    states = [stored(storage, 0, 3), stored(storage, 1, 4)]
    return completed(7, states=states, committables=[committable(7)], at=[positions("orders", {"orders": {0: 5}})])


def write(target: Storage, number: int = 7) -> str:
    """Name of the folder."""
    origin = FakeStorage()
    folder = savepoint_folder("shop", checkpoint_in(origin).id, f"{number:08d}")
    write_savepoint(origin, target, folder, checkpoint_in(origin), IDENTITY, TOKEN)
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / write(LocalStorage(str(tmp_path)))


def folder_of(path: Path) -> LocalStorage:
    return LocalStorage(str(path), create=False)


def change(path: Path, how: str) -> None:
    """Of the second file of state."""
    data = bytearray(path.read_bytes())
    if how == "bit":
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data))
    elif how == "cut":
        path.write_bytes(bytes(data[:-1]))
    else:
        path.unlink()


def test_C29_a_whole_savepoint_has_nothing_wrong_and_its_keys_are_counted(path: Path) -> None:
    (path / "README").write_text("kept by hand")
    found = examine_savepoint(folder_of(path))
    assert (found.problems, found.keys, found.extra) == ((), 7, ("README",))
    assert found.savepoint.keys == 7
    assert sorted(one.name for one in path.iterdir()) == ["README", METADATA, "state"], "it was only read"


def test_elements_of_lists_are_no_keys(tmp_path: Path) -> None:
    origin, target = FakeStorage(), LocalStorage(str(tmp_path))
    states = [stored(origin, 0, 3), msgspec.structs.replace(stored(origin, 1, 4), kind=StateKind.LIST)]
    written = write_savepoint(origin, target, "s", completed(7, states=states), IDENTITY, TOKEN)
    found = examine_savepoint(folder_of(tmp_path / "s"))
    assert (found.keys, found.problems) == (written.keys, ()) == (3, ())


@pytest.mark.parametrize("how", ["bit", "cut", "gone"])
def test_C29_every_damaged_file_is_named(path: Path, how: str) -> None:
    for file in (path / "state").iterdir():
        change(file, how)
    problems = examine_savepoint(folder_of(path)).problems
    assert [text.partition(":")[0] for text in problems] == ["state/00000-totals-0.state", "state/00001-totals-1.state"]


def forge(path: Path, old: StateHandle, data: bytes, **changes: object) -> None:
    """A savepoint whose checksums fit, and which is wrong all the same."""
    found = read_savepoint(folder_of(path))
    digest, of_nothing = hashlib.sha256(data).hexdigest(), hashlib.sha256(b"").hexdigest()
    new = msgspec.structs.replace(old, sha256=digest, size_bytes=len(data), head_bytes=0, head_sha256=of_nothing)
    states = tuple(new if one.path == old.path else one for one in found.checkpoint.states)
    forged = msgspec.structs.replace(found, checkpoint=msgspec.structs.replace(found.checkpoint, states=states))
    (path / old.path).write_bytes(data)
    (path / METADATA).write_bytes(seal(msgspec.json.encode(msgspec.structs.replace(forged, **changes))))


def test_a_file_with_the_right_checksum_of_another_operator_or_with_bytes_to_spare_is_found(path: Path) -> None:
    found = read_savepoint(folder_of(path)).checkpoint.states[0]
    body = encode_snapshot("other", TOTALS, {0: []})
    for data, told in (
        (seal(body), "it belongs to other.totals, but is listed as totals.totals"),
        (
            seal(encode_snapshot("totals", TOTALS, {0: []}) + b"x"),
            "its header describes 1 bytes of entries, there are 2",
        ),
        (seal(b"GARBAGE-" * 4), "does not begin with TGKS"),
        (b"not sealed", "does not begin with the header of a sealed object"),
    ):
        forge(path, found, data)
        (problem,) = examine_savepoint(folder_of(path)).problems
        assert told in problem


def test_a_savepoint_that_says_not_whose_it_is_or_lists_transactions_is_not_whole(path: Path) -> None:
    found = read_savepoint(folder_of(path))
    first = found.checkpoint.states[0]
    data = (path / first.path).read_bytes()
    forge(path, first, data, identity=msgspec.structs.replace(IDENTITY, clusters={}))
    assert "the pipeline, the clusters or the token are missing" in examine_savepoint(folder_of(path)).problems[0]
    listing = msgspec.structs.replace(found.checkpoint, committables=(committable(7),))
    forge(path, first, data, identity=IDENTITY, checkpoint=listing)
    assert "it lists 1 transaction, " in examine_savepoint(folder_of(path)).problems[0]


def test_a_savepoint_is_found_wherever_it_lies_and_stays_whole_when_it_is_moved(path: Path, tmp_path: Path) -> None:
    write(LocalStorage(str(tmp_path)), 8)
    (tmp_path / "archive" / "2026").mkdir(parents=True)
    moved = Path(shutil.move(path, tmp_path / "archive" / "2026" / "before-the-change"))
    found, unread = find_savepoints(folder_of(tmp_path), open_storage)
    assert unread == []
    assert [(Path(one.path).name, one.problem) for one in found] == [
        ("before-the-change", ""),
        ("savepoint-shop-7-00000008", ""),
    ]
    assert [one.path for one in find_savepoints(folder_of(moved), open_storage)[0]] == [str(moved)]
    assert examine_savepoint(folder_of(moved)).problems == ()
    check_whole(read_savepoint(folder_of(moved)), folder_of(moved))


def test_what_is_not_whole_is_listed_with_the_reason(path: Path, tmp_path: Path) -> None:
    (path / "state" / "00001-totals-1.state").unlink()
    unfinished = tmp_path / write(LocalStorage(str(tmp_path)), 8)
    (unfinished / METADATA).unlink()
    damaged = tmp_path / write(LocalStorage(str(tmp_path)), 9)
    change(damaged / METADATA, "bit")
    LocalStorage(str(tmp_path)).put("state/000000000007-totals-0.state", b"of a checkpoint directory")
    found = {Path(one.path).name: one for one in find_savepoints(folder_of(tmp_path), open_storage)[0]}
    problems = {name: one.problem for name, one in found.items()}
    assert len(problems) == 3
    assert found[path.name].savepoint == read_savepoint(folder_of(path)), "its metadata is whole"
    assert problems[path.name] == "1 file missing (first: state/00001-totals-1.state)"
    assert problems[unfinished.name] == f"unfinished: 2 files of state and no {METADATA}"
    assert "is corrupt" in problems[damaged.name]


def test_a_path_is_that_of_the_directory_and_the_folder_and_nothing_is_created_there() -> None:
    outer, inside = FakeStorage(), FakeStorage()
    outer.location = "memory/X/"
    written = write_savepoint(inside, outer, "savepoint-X", checkpoint_in(inside), IDENTITY, TOKEN)
    inside.shared.objects = {n.removeprefix("savepoint-X/"): data for n, data in outer.shared.objects.items()}
    opened: list[tuple[str, bool]] = []

    def opener(url: str, *, create: bool = True) -> Storage:
        opened.append((url, create))
        return inside

    assert find_savepoints(outer, opener) == ([FoundSavepoint("memory/X/savepoint-X", written, "")], [])
    assert opened == [("memory/X/savepoint-X", False)]


def test_state_without_metadata_is_an_unfinished_savepoint_by_the_name_of_its_folder() -> None:
    storage = FakeStorage()
    for folder in ("app", "archive/savepoint-a", "zoo"):
        storage.put(f"{folder}/state/00000-totals-0.state", b"")
    assert [one.path for one in find_savepoints(storage, open_storage)[0]] == ["memory/archive/savepoint-a"]


def test_a_head_with_another_checksum_than_the_metadata_has_is_found() -> None:
    """A restore of some key groups would refuse it."""
    storage = FakeStorage()
    one = stored(storage, 0, 3)
    assert examine_state(storage, one) == 3
    with pytest.raises(ObjectCorrupt, match=r"the checksum of its first .* differs from the metadata"):
        examine_state(storage, msgspec.structs.replace(one, head_bytes=one.head_bytes + 1))


def test_a_state_without_entries_is_whole() -> None:
    storage = FakeStorage()
    data = seal(encode_snapshot("totals", TOTALS, {}))
    storage.put("state/f", data)
    assert examine_state(storage, handle_of("state/f", 0, data)) == 0


@pytest.mark.parametrize(("location", "removed"), [("memory/savepoint-a/", True), ("memory/savepoint-a/X", False)])
def test_an_unfinished_one_is_known_by_the_name_of_its_own_folder(location: str, removed: bool) -> None:
    folder = FakeStorage()
    folder.location = location
    folder.put("state/00000-totals-0.state", b"")
    with contextlib.suppress(SavepointRefused):
        remove_savepoint(folder, unfinished=True)
    assert (folder.list("") == []) is removed


def test_C29_the_metadata_goes_first_and_nothing_but_the_savepoint_is_removed(path: Path) -> None:
    (path / "README").write_text("kept by hand")
    deleted: list[str] = []

    class Watched(LocalStorage):
        def delete(self, name: str) -> None:
            deleted.append(name)
            super().delete(name)

    assert remove_savepoint(Watched(str(path), create=False)) == 3
    assert deleted[0] == METADATA
    assert [one.name for one in path.iterdir() if one.is_file()] == ["README"]


def test_what_is_no_savepoint_is_not_removed(tmp_path: Path) -> None:
    LocalStorage(str(tmp_path)).put("state/000000000007-totals-0.state", b"of a checkpoint directory")
    LocalStorage(str(tmp_path)).put("journal/000000000000.json", b"entry")
    for unfinished in (False, True):
        with pytest.raises(SavepointRefused, match="is not a savepoint"):
            remove_savepoint(folder_of(tmp_path), unfinished=unfinished)
    assert len(folder_of(tmp_path).list("")) == 2


def test_one_that_is_not_finished_is_removed_only_when_that_is_said(path: Path) -> None:
    (path / METADATA).unlink()
    with pytest.raises(SavepointRefused, match=r"is incomplete .*`tidegate savepoint delete --unfinished`"):
        remove_savepoint(folder_of(path))
    assert remove_savepoint(folder_of(path), unfinished=True) == 2
    assert folder_of(path).list("") == []


def test_damaged_metadata_is_no_reason_to_remove_state(path: Path) -> None:
    change(path / METADATA, "bit")
    for unfinished in (False, True):
        with pytest.raises(ObjectCorrupt):
            remove_savepoint(folder_of(path), unfinished=unfinished)
    assert len(folder_of(path).list("")) == 3


def test_a_savepoint_that_a_pipeline_needs_is_not_deleted(path: Path) -> None:
    found, checkpoints = read_savepoint(folder_of(path)), FakeStorage()
    refuse_needed(found, checkpoints, "savepoint another")
    with pytest.raises(SavepointNeeded, match=r"was restored from it.*--force"):
        refuse_needed(found, checkpoints, f"savepoint {TOKEN}")
    checkpoints.put(mark_of(found), b"")
    with pytest.raises(SavepointNeeded, match="a daemon is restoring it"):
        refuse_needed(found, checkpoints, "")


def test_the_name_of_the_mark_is_safe_whatever_the_token_is(path: Path) -> None:
    found = msgspec.structs.replace(read_savepoint(folder_of(path)), token="../../etc/passwd")
    assert re.fullmatch("restoring/[0-9a-f]{16}", mark_of(found))


def judge(inner: FakeStorage, folder: str) -> str:
    """What is left after a death: no savepoint with holes, ever."""
    inside = FakeStorage()
    prefix = f"{folder}/"
    inside.shared.objects = {
        name.removeprefix(prefix): data for name, data in inner.shared.objects.items() if name.startswith(prefix)
    }
    inside.location = folder
    if not inside.shared.objects:
        return "nothing"
    try:
        savepoint: Savepoint = read_savepoint(inside)
    except SavepointRefused:
        assert remove_savepoint(inside, unfinished=True) > 0
        assert inside.list("") == []
        return "garbage"
    check_whole(savepoint, inside)
    assert examine_savepoint(inside).problems == ()
    return "whole"


@pytest.mark.parametrize("behind", [False, True])
def test_C30_a_death_at_any_call_of_writing_leaves_a_whole_savepoint_or_garbage(behind: bool) -> None:
    whole = MortalStorage(FakeStorage())
    write(whole)
    left = []
    for number in range(1, whole.calls + 1):
        inner = FakeStorage()
        with pytest.raises(Death):
            write(MortalStorage(inner, number, behind=behind))
        left.append(judge(inner, savepoint_folder("shop", checkpoint_in(inner).id, f"{7:08d}")))
    assert left == (["garbage", "garbage", "whole"] if behind else ["nothing", "garbage", "garbage"])


class Inside(FakeStorage):
    """A folder as a storage of its own, so that deaths are counted in it."""

    def __init__(self) -> None:
        super().__init__()
        outer = FakeStorage()
        folder = write(outer)
        self.location = folder
        self.shared.objects = {name.removeprefix(f"{folder}/"): data for name, data in outer.shared.objects.items()}


@pytest.mark.parametrize("behind", [False, True])
def test_C30_a_death_at_any_call_of_deleting_leaves_a_whole_savepoint_or_garbage(behind: bool) -> None:
    whole = MortalStorage(Inside())
    remove_savepoint(whole)
    left = []
    for number in range(1, whole.calls + 1):
        inner = Inside()
        with pytest.raises(Death):
            remove_savepoint(MortalStorage(inner, number, behind=behind))
        outer = FakeStorage()
        outer.shared.objects = {f"{inner.location}/{name}": data for name, data in inner.shared.objects.items()}
        left.append(judge(outer, inner.location))
    assert left == (["whole", "garbage", "garbage", "nothing"] if behind else ["whole", "whole", "garbage", "garbage"])
