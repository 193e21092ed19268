"""Which kind of storage an address means."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tidegate.storage import kinds
from tidegate.storage import open as opening
from tidegate.storage.base import Storage, StorageOptions, StoreKind
from tidegate.storage.open import STORES, discover_stores, open_storage, scheme_of


class MemoryStore(StoreKind):
    schemes = ("memory",)
    example = "memory://a"

    def open(self, address: str, *, create: bool, stays: bool, options: StorageOptions) -> Storage:
        assert (address, create, stays) == ("memory://a", False, False)
        return FakeStorage()


@pytest.mark.parametrize(
    ("address", "scheme"),
    [
        ("/a/b", "file"),
        ("a", "file"),
        ("file:///a", "file"),
        ("file:/a", "file"),
        ("S3://bucket/a", "s3"),
        ("/a://b", "file"),
        ("http://[", "http"),
    ],
)
def test_the_scheme_is_what_stands_in_front_and_else_file(address: str, scheme: str) -> None:
    assert scheme_of(address) == scheme


def test_the_kinds_are_found_by_their_schemes() -> None:
    assert list(STORES) == ["az", "file", "gs", "s3"]


def test_a_kind_opens_the_addresses_of_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "STORES", {**STORES, "memory": MemoryStore()})
    assert isinstance(open_storage("memory://a", create=False), FakeStorage)


@pytest.mark.parametrize("text", ["", "from tidegate.storage.kinds.directory import STORE"])
def test_a_module_without_a_store_or_with_a_scheme_twice_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "second.py").write_text(text, "utf-8")
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, f"{kinds.__name__}.second", raising=False)
    with pytest.raises(TypeError, match="kinds/second"):
        discover_stores()
