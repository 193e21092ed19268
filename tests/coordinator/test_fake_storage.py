"""The fake of the property tests answers like the real directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.coordinator.fake_storage import FakeStorage, Fault
from tidegate.storage.base import ObjectMissing, Storage, StorageError
from tidegate.storage.local import LocalStorage


@pytest.fixture(params=["fake", "directory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return FakeStorage() if request.param == "fake" else LocalStorage(str(tmp_path))


def test_the_same_calls_have_the_same_answers(storage: Storage) -> None:
    assert storage.list("") == []
    assert storage.put_if_absent("journal/1", b"one")
    assert not storage.put_if_absent("journal/1", b"two")
    assert storage.get("journal/1") == b"one"
    assert [storage.exists(name) for name in ("journal/1", "journal/2", "journal/1/a")] == [True, False, False]
    storage.put("journal/1", b"three")
    storage.put("state/1/a", b"x")
    assert storage.get("journal/1") == b"three"
    ranges = [(0, 2), (2, 99), (4, 1), (5, 1), (9, 3), (1, 0)]
    assert [storage.get_range("journal/1", *one) for one in ranges] == [b"th", b"ree", b"e", b"", b"", b""]
    assert storage.list("journal/") == ["journal/1"]
    storage.delete("journal/1")
    storage.delete("journal/1")
    assert storage.list("") == ["state/1/a"]
    with pytest.raises(ObjectMissing):
        storage.get("journal/1")
    with pytest.raises(ObjectMissing):
        storage.get_range("journal/1", 0, 1)


def test_only_what_was_created_makes_the_next_listing_fail() -> None:
    storage = FakeStorage()
    storage.faults = [Fault.BLIND, Fault.BLIND]
    assert storage.put_if_absent("x", b"1")
    with pytest.raises(StorageError):
        storage.list("")
    assert not storage.put_if_absent("x", b"2")
    assert storage.list("") == ["x"]


@pytest.mark.parametrize(
    ("fault", "there"), [(Fault.REFUSED, False), (Fault.UNKNOWN, True), (Fault.LATE, False)], ids=str
)
def test_faults_are_what_they_say(fault: Fault, there: bool) -> None:
    storage = FakeStorage()
    storage.faults = [fault]
    with pytest.raises(StorageError):
        storage.put_if_absent("x", b"1")
    assert ("x" in storage.shared.objects) is there
    storage.shared.land()
    assert ("x" in storage.shared.objects) is (there or fault is Fault.LATE)
