"""What exists when an attempt begins is not searched for garbage again, and garbage of the attempt before is."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tidegate.process.limits import exclude_present_objects


class Node:
    def __init__(self) -> None:
        self.itself: object = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_exists_is_excluded_and_garbage_of_before_is_collected() -> None:
    kept, first = Node(), Node()
    seen = weakref.ref(first)
    exclude_present_objects()
    assert not any(one is kept for one in gc.get_objects())
    del first  # a cycle, among the excluded
    gc.collect()
    assert seen() is not None
    exclude_present_objects()
    assert seen() is None
    assert gc.get_freeze_count() > 0
