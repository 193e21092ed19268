"""Keyed state in RocksDB: files, directory, memory. What both backends do alike is in `test_backends.py`."""

from __future__ import annotations

import gc
import hashlib
import resource
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from tests.state.driving import ALL, GROUPS, Files, content, declare, encoded, groups_of, make_memory, put
from tests.support.descriptors import lowered
from tidegate.ids import CheckpointId, StateName
from tidegate.state import rocks
from tidegate.state.declaration import StateDeclaration
from tidegate.state.errors import LocalStateFailed
from tidegate.state.rocks import RocksLimits, RocksState
from tidegate.state.snapshot import encode_snapshot, read_entries, read_header, write_file


def make_rocks(directory: Path, limits: RocksLimits | None = None) -> RocksState[str]:
    return RocksState("step", declare(), groups_of, parent=directory, limits=limits)


def test_a_full_snapshot_comes_in_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks, "FILE_BYTES", 1000)
    state, restored = make_rocks(tmp_path), make_rocks(tmp_path)
    put(state, {f"key-{i:04}": i for i in range(1000)})
    files = encoded(state)
    assert len(files) > 10
    assert max(map(len, files)) < 2500  # with its header
    restored.restore(reversed(files), ALL)
    assert content(restored) == content(state)
    assert len(restored) == 1000
    state.close()
    restored.close()


def long_name(number: int) -> str:
    """130 characters that cannot be compressed well."""
    return hashlib.sha512(b"%d" % number).hexdigest()


@pytest.mark.slow
def test_F17_state_that_is_much_larger_than_its_memory(tmp_path: Path) -> None:
    state = make_rocks(tmp_path, RocksLimits(cache_bytes=64 << 10, write_buffer_bytes=64 << 10))
    count, batch = 40_000, 2000
    for start in range(0, count, batch):
        put(state, {long_name(number): number for number in range(start, start + batch)})
    assert len(state) == count
    some = range(0, count, 97)
    assert state.get_many([long_name(number) for number in some]) == [(number,) for number in some]
    entries = 0
    capture = state.capture(CheckpointId(1))
    assert capture.encode is not None
    for data in capture.encode():
        header, _ = read_header(data)
        entries += sum(part.entries for part in header.groups)
    assert entries == count
    in_memory = sum(
        state._db.property_int_value(f"rocksdb.{name}") or 0
        for name in ("cur-size-all-mem-tables", "block-cache-usage", "estimate-table-readers-mem")
    )
    on_disk = state._db.property_int_value("rocksdb.total-sst-files-size") or 0  # files go while they are listed
    print(f"{in_memory} bytes in memory, {on_disk} on disk")
    assert on_disk > 5 * in_memory
    state.close()


def test_the_local_directory_goes_with_the_state_and_an_encoding_under_way_still_ends(tmp_path: Path) -> None:
    state = make_rocks(tmp_path)
    put(state, {"a": 1})
    assert list(tmp_path.iterdir())
    encode = state.capture(CheckpointId(1)).encode
    assert encode is not None
    state.close()
    assert list(tmp_path.iterdir()) == []
    assert len(list(encode())) == 1


def test_a_local_disk_that_fails_is_told_with_its_place_and_the_next_attempt_may_help(tmp_path: Path) -> None:
    state = make_rocks(tmp_path)
    put(state, {"a": 1})
    state._db.close()
    for use in (lambda: put(state, {"b": 1}), lambda: state.get_many(["a"])):
        with pytest.raises(
            LocalStateFailed, match=r"state totals of step in .*tidegate-state-.*closed; check .*TMPDIR"
        ) as told:
            use()
        assert told.value.retriable
    with pytest.raises(LocalStateFailed, match="No such file or directory"):
        make_rocks(tmp_path / "absent")
    state._directory.close()


def full_disk(file_bytes: int) -> AbstractContextManager[None]:
    """No file grows beyond this."""
    return lowered(resource.RLIMIT_FSIZE, file_bytes)


def test_a_full_disk_keeps_nothing_from_being_removed(tmp_path: Path) -> None:
    state = make_rocks(tmp_path)
    with full_disk(20_000):
        put(state, {long_name(number): number for number in range(1000)})
        state.close()  # RocksDB would write what is in memory
    assert list(tmp_path.iterdir()) == []
    with full_disk(10), pytest.raises(LocalStateFailed, match="File too large"):
        make_rocks(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_scan_that_meets_damage_fails_instead_of_ending_early(tmp_path: Path) -> None:
    state = make_rocks(tmp_path, RocksLimits(cache_bytes=64 << 10, write_buffer_bytes=64 << 10))
    put(state, {long_name(number): number for number in range(4000)})
    state._db.flush()
    assert sum(len(list(state.scan(group))) for group in range(GROUPS)) == 4000
    for table in tmp_path.rglob("*.sst"):
        data = table.read_bytes()
        table.write_bytes(data[:1000] + b"\x00" * (len(data) // 2) + data[1000 + len(data) // 2 :])
    with pytest.raises(LocalStateFailed, match=r"state totals of step in .*check .*TMPDIR"):
        for group in range(GROUPS):
            list(state.scan(group))
    with pytest.raises(LocalStateFailed, match=r"state totals of step in .*check .*TMPDIR"):
        for group in range(GROUPS):
            list(state.scan(group, backwards=True))
    state.close()


def test_a_snapshot_that_misses_entries_fails(tmp_path: Path) -> None:
    state = make_rocks(tmp_path)
    put(state, {"a": 1, "b": 2})
    state._count += 1
    with pytest.raises(LocalStateFailed, match="2 keys were read where 3 were written"):
        encoded(state)
    state.close()


def test_a_snapshot_that_nobody_encodes_holds_nothing_back(tmp_path: Path) -> None:
    state = make_rocks(tmp_path)
    files = Files()
    put(state, {f"key-{i}": i for i in range(20)})
    files.complete(state, 1)
    put(state, {"key-1": 2})
    capture = state.capture(CheckpointId(2))
    assert capture.increment
    assert state._db.property_value("rocksdb.num-snapshots") == "1"
    del capture
    gc.collect()
    assert state._db.property_value("rocksdb.num-snapshots") == "0"
    state.close()


def test_a_full_snapshot_is_restored_without_a_look_for_what_cannot_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, restored, files = make_rocks(tmp_path), make_rocks(tmp_path), Files()
    put(state, {f"key-{i:04}": i for i in range(1000)})
    files.complete(state, 1)
    put(state, {"key-0001": -1, "new": 7})
    state.delete("key-0002")
    files.complete(state, 2)
    looked: list[int] = []
    get = restored._get

    def count(places: list[bytes]) -> list[bytes | None]:
        looked.append(len(places))
        return get(places)

    monkeypatch.setattr(restored, "_get", count)
    restored.restore(files.of(2), ALL)
    assert sum(looked) == 2, "`new` is beyond all keys that are there"
    assert content(restored) == content(state)
    assert len(restored) == len(state) == 1000
    state.close()
    restored.close()


@pytest.mark.parametrize("before", ["rocksdb", "memory"])
def test_large_files_are_taken_over_as_they_are_in_whatever_order_their_keys_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    state = make_rocks(tmp_path) if before == "rocksdb" else make_memory()
    restored, files = make_rocks(tmp_path), Files()
    monkeypatch.setattr(rocks, "FILE_BYTES", 10_000)  # a key group continues in the next file
    monkeypatch.setattr(rocks, "BATCH", 100)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()  # nothing is written where the process happens to run
    put(state, {f"key-{i * 7919 % 2000:04}": i for i in range(2000)})
    files.complete(state, 1)
    put(state, {f"key-{i:04}": -i for i in range(0, 2000, 20)})
    state.delete_many([f"key-{i:04}" for i in range(1, 2000, 20)])
    files.complete(state, 2)
    assert len(files.listed[2]) > len(files.listed[1]) > (1 if before == "rocksdb" else 0), "an increment after all"
    looked, written = count_calls(monkeypatch, restored, "_get"), count_calls(monkeypatch, restored, "_write")
    restored.restore(files.of(1), ALL)
    assert looked == written == [], "neither looked up nor written by RocksDB itself"
    restored.close()
    restored = make_rocks(tmp_path)
    restored.restore(files.of(2), ALL)
    assert content(restored) == content(state)
    assert len(restored) == len(state) == 1900
    again = Files()  # what was taken over can be changed and written again
    put(restored, {"key-0000": 5, "key-0001": 6})
    again.complete(restored, 1)
    assert again.read(1) == content(restored)
    assert not list(tmp_path.rglob("restored.sst"))
    state.close()
    restored.close()


def test_a_file_with_key_groups_in_another_order_is_restored_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks, "BATCH", 100)
    state, restored = make_rocks(tmp_path), make_rocks(tmp_path)
    put(state, {f"key-{i:04}": i for i in range(1000)})
    (data,) = encoded(state)
    header, start = read_header(data)
    assert len(header.groups) > 1
    turned = msgspec.structs.replace(header, groups=header.groups[::-1])
    restored.restore([write_file(turned, [data[start:]])], ALL)
    assert content(restored) == content(state)
    assert len(restored) == 1000
    state.close()
    restored.close()


def test_a_file_that_lists_a_key_group_without_entries_is_restored_as_well(tmp_path: Path) -> None:
    restored = make_rocks(tmp_path)
    restored.restore([encode_snapshot("step", declare(), {0: [], 1: [(("a",), (7,))]})], ALL)
    assert content(restored) == {"a": 7}
    restored.close()


def count_calls(monkeypatch: pytest.MonkeyPatch, state: RocksState[str], name: str) -> list[str]:
    """The name, once for each call."""
    calls: list[str] = []
    method = getattr(state, name)

    def counted(*values: object) -> object:
        calls.append(name)
        return method(*values)

    monkeypatch.setattr(state, name, counted)
    return calls


def test_F23_a_full_snapshot_of_many_ranges_is_of_one_moment_and_passes_over_deleted_keys(tmp_path: Path) -> None:
    shape = msgspec.structs.replace(declare().shape, max_parallelism=1000)

    def spread(rows: Sequence[tuple[str | None, ...]]) -> list[int]:
        return [int(row[0] or 0) % 1000 for row in rows]

    state = RocksState[str]("step", StateDeclaration(StateName("totals"), shape), spread, parent=tmp_path)
    put(state, {str(number): number for number in range(5000)})
    state.delete_many([str(number) for number in range(5000) if number % 1000 < 700])
    encode = state.capture(CheckpointId(1)).encode
    put(state, {str(number): -1 for number in range(5000)})
    assert encode is not None
    found = [
        value[0]
        for data in encode()
        for part in read_entries(data, range(1000), "step", state.declaration)
        for _, value in part
        if value is not None
    ]
    assert sorted(found) == [number for number in range(5000) if number % 1000 >= 700]
    state.close()
