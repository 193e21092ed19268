"""The limit of open files, in processes of their own: it cannot be lowered and raised again here."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from tidegate.process.limits import DESCRIPTORS_MAX, exclude_present_objects

LOOK = """
import resource, sys
from tidegate.process.limits import raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard", "after"), [(128, 4096, 4096), (4096, 4096, 4096)])
def test_X30_the_soft_limit_of_open_files_is_raised_to_the_hard_one(soft: int, hard: int, after: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(soft), str(hard)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == [str(after), str(after), str(hard)]


def test_X30_the_limit_is_raised_within_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some programs close every possible descriptor before they start another one."""
    from tidegate.process import limits

    chosen: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: chosen.append(limit))
    assert limits.raise_descriptor_limit() == DESCRIPTORS_MAX
    assert chosen == [(DESCRIPTORS_MAX, resource.RLIM_INFINITY)]


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
