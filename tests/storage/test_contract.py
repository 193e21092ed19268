"""What every storage promises (storage/base.py): on a directory, on a small server, on all that `make stores` runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.storage.stores import NAMES, Open, provided
from tidegate.clock import SYSTEM_CLOCK
from tidegate.ids import Attempt, SlotIndex
from tidegate.storage.base import ObjectMissing, Storage
from tidegate.storage.shared import Proof, StorageNotShared

LARGE = 9 << 20
"""More than two ranges."""


@pytest.fixture(params=NAMES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    with provided(request.param, tmp_path) as opening:
        yield opening


@pytest.fixture
def storage(opened: Open) -> Iterator[Storage]:
    """Its connections end with it. pytest keeps what a fixture returns beyond the check for leaks, and a server that
    goes on may keep a connection without a request for more than a minute.
    """
    made = opened()
    yield made
    vars(made).clear()


def test_what_was_put_is_read_back_and_replaced(storage: Storage) -> None:
    storage.put("state/7/totals", b"one")
    assert storage.get("state/7/totals") == b"one"
    storage.put("state/7/totals", b"")
    assert storage.get("state/7/totals") == b""


def test_bytes_of_every_value_and_size_come_back(storage: Storage) -> None:
    data = bytes(range(256)) * (LARGE // 256) + b"end"
    storage.put("state/7/large", data)
    assert storage.get("state/7/large") == data
    assert storage.put_if_absent("state/8/large", data)
    assert not storage.put_if_absent("state/8/large", data)


def test_parts_of_an_object(storage: Storage) -> None:
    data = bytes(range(256)) * (LARGE // 256) + b"end"
    storage.put("state/7/large", data)
    for start, length in ((0, 10), (300, 1000), (len(data) - 3, 3), (len(data) - 3, 99), (1000, LARGE), (0, LARGE * 2)):
        assert storage.get_range("state/7/large", start, length) == data[start : start + length]
    for start, length in ((len(data), 1), (len(data) + 5, 5), (7, 0)):
        assert storage.get_range("state/7/large", start, length) == b""
    storage.put("state/7/empty", b"")
    assert storage.get_range("state/7/empty", 0, 10) == b""
    for length in (0, 10):
        with pytest.raises(ObjectMissing, match="there is no state/7/none"):
            storage.get_range("state/7/none", 0, length)


def test_put_if_absent_never_replaces(storage: Storage) -> None:
    assert storage.put_if_absent("journal/0", b"one")
    assert not storage.put_if_absent("journal/0", b"two")
    assert not storage.put_if_absent("journal/0", b"one"), "another call with the same content is another caller"
    assert storage.get("journal/0") == b"one"


def test_what_is_missing_is_reported_by_name(storage: Storage) -> None:
    with pytest.raises(ObjectMissing, match="there is no journal/9"):
        storage.get("journal/9")
    assert not storage.exists("journal/9")
    storage.put("journal/9", b"")
    assert storage.exists("journal/9")
    assert not storage.exists("journal")


def test_list_is_sorted_and_by_prefix(storage: Storage) -> None:
    for name in ("state/2/b", "state/1/a", "journal/1", "state/10/c"):
        storage.put(name, b"")
    assert storage.list("state/") == ["state/1/a", "state/10/c", "state/2/b"]
    assert storage.list("state/1") == ["state/1/a", "state/10/c"]
    assert storage.list("") == ["journal/1", "state/1/a", "state/10/c", "state/2/b"]
    assert storage.list("nothing/") == []


def test_delete_is_idempotent(storage: Storage) -> None:
    storage.put("state/7/totals", b"one")
    storage.put("state/7/more", b"one")
    storage.delete("state/7/totals")
    storage.delete("state/7/totals")
    assert storage.list("") == ["state/7/more"]


def test_many_are_deleted_whether_they_are_there_or_not(storage: Storage) -> None:
    names = [f"state/7/{number}" for number in range(5)]
    for name in names[:3]:
        storage.put(name, b"one")
    storage.put("state/8/kept", b"one")
    storage.delete_all(names)
    storage.delete_all([])
    assert storage.list("") == ["state/8/kept"]


@pytest.mark.parametrize("name", ["", "/x", "x/", "a//b", "../x", "a/../b", ".unfinished/x", "a/.b", "a\0b"])
def test_bad_names_are_refused(storage: Storage, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: storage.put(name, b""),
        lambda: storage.put_if_absent(name, b""),
        lambda: storage.get(name),
        lambda: storage.exists(name),
        lambda: storage.delete(name),
        lambda: storage.delete_all([name]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="not an object name"):
            call()


def test_probe_leaves_nothing(storage: Storage) -> None:
    storage.probe()
    assert storage.list("") == []


def test_a_place_that_is_only_read_is_empty_before_it_is_written(opened: Open) -> None:
    reader = opened(create=False)
    assert reader.list("") == []
    opened().put("x", b"one")
    assert reader.list("") == ["x"]


def test_several_that_are_open_see_what_the_others_write(opened: Open) -> None:
    one, other = opened(stays=True), opened()
    one.put("x", b"one")
    assert other.get("x") == b"one"
    other.put("x", b"two")
    assert one.get("x") == b"two"
    other.delete("x")
    assert not one.exists("x")


def test_one_of_many_concurrent_creators_wins(opened: Open) -> None:
    start = threading.Barrier(8)
    won: list[int] = []

    def create() -> None:
        own = opened()
        start.wait(timeout=120)
        won.extend(n for n in range(20) if own.put_if_absent(f"journal/{n}", b"the same"))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert sorted(won) == list(range(20))


def test_readers_see_whole_contents_while_it_is_replaced(opened: Open) -> None:
    writer, reader = opened(), opened()
    contents = [bytes([number]) * 200_000 for number in range(10)]
    writer.put("x", contents[0])
    over = threading.Event()
    torn: list[int] = []

    def read() -> None:
        while not over.is_set():
            data = reader.get("x")
            if data not in contents:
                torn.append(len(data))

    thread = threading.Thread(target=read)
    thread.start()
    for content in contents:
        writer.put("x", content)
    over.set()
    thread.join(timeout=120)
    assert torn == []


def test_daemon_and_slots_prove_that_they_see_one_place(opened: Open) -> None:
    proof = Proof(opened(), Attempt(3), "secret", SYSTEM_CLOCK)
    proof.write_daemons()
    Proof(opened(stays=True), Attempt(3), "secret", SYSTEM_CLOCK).answer(SlotIndex(1), "host")
    proof.check(SlotIndex(1), "host")
    with pytest.raises(StorageNotShared, match="the daemon cannot read the object that slot 2"):
        proof.check(SlotIndex(2), "host")
    proof.remove()
    assert opened().list("") == []
