"""State files that are read in parts: only what is wanted is transferred, and no damage goes unnoticed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.state.driving import GROUPS, declare, make_memory, put
from tidegate.coordinator.types import StateHandle, StateKind
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId, OperatorName, SlotIndex
from tidegate.journal.state_files import derive_head, find_cut, find_damage, read_head, read_parts
from tidegate.state import parts
from tidegate.state.base import Share
from tidegate.state.errors import StateUnreadable
from tidegate.state.snapshot import (
    encode_snapshot,
    read_entries,
    read_header,
)
from tidegate.storage.base import ObjectCorrupt, ObjectMissing
from tidegate.storage.checksum import seal, unseal

NAMES = {f"key-{i:03}": i for i in range(300)}


class Ranges(FakeStorage):
    """Counts what is transferred."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = 0
        self.ranged: list[int] = []

    def get(self, name: str) -> bytes:
        self.whole += 1
        return super().get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        data = self.shared.objects[name][start : start + length]
        self.ranged.append(len(data))
        return data


def stored(storage: FakeStorage, body: bytes, kind: StateKind = StateKind.OPERATOR) -> StateHandle:
    data = seal(body)
    storage.put("state/1/f", data)
    sha256 = hashlib.sha256(data).hexdigest()
    return StateHandle(OperatorName("step"), SlotIndex(0), "state/1/f", len(data), sha256, *derive_head(data), kind)


def snapshot(names: dict[str, int] = NAMES) -> bytes:
    state = make_memory()
    put(state, names)
    encode = state.capture(CheckpointId(1)).encode
    assert encode is not None
    (data,) = encode()
    return data


def read(storage: FakeStorage, handle: StateHandle, key_groups: range) -> dict[str, int]:
    state = make_memory()
    state.restore(read_parts(storage, handle, key_groups), Share(key_groups))
    return dict(zip(names := list(state.keys()), (value[0] for value in state.get_many(names) if value), strict=True))


def expected(key_groups: range) -> dict[str, int]:
    return {name: value for name, value in NAMES.items() if sum(name.encode()) % GROUPS in key_groups}


@pytest.mark.parametrize("key_groups", [range(GROUPS), range(4), range(3, 9), range(GROUPS - 1, GROUPS), range(0)])
def test_some_key_groups_are_what_the_whole_file_has_of_them(key_groups: range) -> None:
    storage = Ranges()
    assert read(storage, stored(storage, snapshot()), key_groups) == expected(key_groups)


def test_a_quarter_of_the_key_groups_transfers_a_quarter_of_the_entries_and_the_head() -> None:
    storage = Ranges()
    handle = stored(storage, snapshot())
    read(storage, handle, range(GROUPS // 4))
    assert storage.whole == 0
    head, entries = storage.ranged
    assert head == handle.head_bytes
    assert entries < 0.35 * (handle.size_bytes - handle.head_bytes)


def test_key_groups_that_follow_each_other_are_one_file() -> None:
    storage = Ranges()
    (part,) = read_parts(storage, stored(storage, snapshot()), range(4))
    assert {one.group for one in read_header(part)[0].groups} <= {*range(4)}


@pytest.mark.parametrize("body", [b"", b"TGKS\x00\x01", b"XXXX\x00\x01\x00\x00\x00\x02{}"])
def test_what_is_neither_state_nor_rows_in_flight_has_no_head(body: bytes) -> None:
    assert derive_head(seal(body)) == (0, "")


def test_a_line_feed_in_a_head_is_part_of_it() -> None:
    """Where the length of the header has one."""
    storage = Ranges()
    bodies = (encode_snapshot("s" * length, declare(), {0: []}) for length in range(256))
    body = next(one for one in bodies if b"\n" in one[:10])
    handle = stored(storage, body)
    assert read_head(storage, handle) == body[: read_header(body)[1]]


def test_the_head_alone_says_what_a_file_holds() -> None:
    storage = Ranges()
    handle = stored(storage, snapshot())
    assert read_header(read_head(storage, handle)) == read_header(unseal("f", storage.get("state/1/f")))
    assert storage.ranged == [handle.head_bytes]


def test_nothing_of_a_file_with_other_key_groups_is_transferred_but_its_head_and_its_shape_is_compared() -> None:
    storage = Ranges()
    handle = stored(storage, snapshot({"a": 1}))
    (part,) = read_parts(storage, handle, range(2, 9))
    assert (storage.whole, storage.ranged) == (0, [handle.head_bytes])
    header, start = read_header(part)
    assert (header.groups, start) == ((), len(part))
    assert list(read_entries(part, range(2, 9), "step", declare())) == []
    with pytest.raises(StateUnreadable):
        list(read_entries(part, range(2, 9), "step", declare(2)))


def test_what_is_read_at_once_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 500)
    storage = Ranges()
    handle = stored(storage, snapshot())
    assert read(storage, handle, range(GROUPS - 1)) == expected(range(GROUPS - 1))
    assert 4 < len(storage.ranged) < 9
    assert max(storage.ranged[1:]) < 1000


@pytest.mark.parametrize("kind", [StateKind.LIST, StateKind.INPUT])
def test_what_is_not_dealt_out_by_key_group_is_read_whole(kind: StateKind) -> None:
    storage = Ranges()
    body = snapshot()
    assert list(read_parts(storage, stored(storage, body, kind), range(0))) == [body]
    assert (storage.whole, storage.ranged) == (1, [])


def flips(size: int, step: int) -> Iterator[tuple[int, int]]:
    return ((at, 1 << at % 8) for at in range(0, size, step))


@pytest.mark.parametrize("key_groups", [range(GROUPS), range(4), range(0)])
def test_no_flipped_bit_of_what_is_read_goes_unnoticed(key_groups: range) -> None:
    storage = Ranges()
    handle = stored(storage, snapshot())
    whole = storage.shared.objects["state/1/f"]
    read(storage, handle, key_groups)
    reached = sum(storage.ranged) if not storage.whole else len(whole)
    header, _ = read_header(read_head(storage, handle))
    first = min((one.offset for one in header.groups if one.group in key_groups), default=0)
    for at, bit in flips(reached, 7):
        place = at if at < handle.head_bytes else at + first
        storage.shared.objects["state/1/f"] = whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
        with pytest.raises(ObjectCorrupt, match=r"memory/state/1/f is not the file that the checkpoint wrote"):
            read(storage, handle, key_groups)


def test_no_truncation_goes_unnoticed() -> None:
    storage = Ranges()
    handle = stored(storage, snapshot())
    whole = storage.shared.objects["state/1/f"]
    for size in range(0, len(whole), 37):
        storage.shared.objects["state/1/f"] = whole[:size]
        with pytest.raises(ObjectCorrupt):
            read(storage, handle, range(GROUPS - 1, GROUPS))


def test_another_whole_file_of_the_same_state_is_refused_by_its_head() -> None:
    storage = Ranges()
    handle = stored(storage, snapshot())
    stored(storage, snapshot(NAMES | {"key-000": 1}))
    with pytest.raises(ObjectCorrupt, match=r"its first .* bytes have sha256") as caught:
        read(storage, handle, range(4))
    assert caught.value.fields["name"] == handle.path


def test_a_file_that_is_gone_is_missing() -> None:
    storage = FakeStorage()
    handle = stored(storage, snapshot())
    storage.delete(handle.path)
    for key_groups in (range(4), range(GROUPS)):
        with pytest.raises(ObjectMissing):
            read(storage, handle, key_groups)


def test_damage_in_a_whole_file_names_the_key_group() -> None:
    body = snapshot()
    header, start = read_header(body)
    at = start + header.groups[1].offset + 9
    damaged = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    with pytest.raises(TidegateError, match=f"key group {header.groups[1].group} is damaged"):
        list(read_entries(damaged, range(GROUPS), "step", declare()))


def test_the_head_of_what_is_no_state_file_is_not_known() -> None:
    assert derive_head(seal(b"something else")) == (0, "")
    assert derive_head(seal(b"TGKS\x00\x02\x00\x00\xff\xff{}")) == (0, "")


def test_whole_files_are_verified_in_bounded_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.journal.state_files.PART_BYTES", 100)
    storage = Ranges()
    handle = stored(storage, snapshot())
    whole = storage.shared.objects[handle.path]
    assert find_damage(storage, [handle, handle]) == ""
    assert sum(storage.ranged) == 2 * len(whole)
    assert max(storage.ranged) <= 100
    assert storage.whole == 0
    for place in range(0, len(whole), 41):
        storage.shared.objects[handle.path] = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        assert f"{len(whole)} bytes with sha256" in find_damage(storage, [handle]), place
    for other in (whole[:-1], whole + b"x", whole * 9, b""):
        size = min(len(other), len(whole) + 1)
        storage.shared.objects[handle.path] = other
        assert f"{size} bytes with sha256" in find_damage(storage, [handle])
    del storage.shared.objects[handle.path]
    assert find_damage(FakeStorage(storage.shared), [handle]) == "memory: there is no state/1/f"


def test_a_byte_after_a_file_that_ends_with_a_range_does_not_go_unnoticed(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FakeStorage()
    handle = stored(storage, snapshot())
    monkeypatch.setattr("tidegate.journal.state_files.PART_BYTES", handle.size_bytes)
    assert find_damage(storage, [handle]) == ""
    storage.shared.objects[handle.path] += b"x"
    assert f"{handle.size_bytes + 1} bytes with sha256" in find_damage(storage, [handle])


@pytest.mark.parametrize(
    ("change", "told"), [(0, ""), (-1, "has less than"), (1, "has more than"), (9, "has more than")]
)
def test_a_file_of_another_length_is_found_by_two_bytes(change: int, told: str) -> None:
    storage = Ranges()
    handle = stored(storage, snapshot())
    listed = msgspec.structs.replace(handle, size_bytes=handle.size_bytes - change)
    found = find_cut(storage, [handle, listed])
    assert found == (f"memory/state/1/f {told} the {listed.size_bytes:,} bytes that were written" if told else "")
    assert (storage.whole, max(storage.ranged)) == (0, 2 if change > 0 else 1)


def test_a_file_that_is_gone_has_no_length() -> None:
    storage = FakeStorage()
    handle = stored(storage, snapshot())
    gone = msgspec.structs.replace(handle, path="state/1/g")
    assert find_cut(storage, [handle, gone]) == "memory: there is no state/1/g"
