"""A process that has a lower limit for a while: no descriptors left, for instance."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

STANDARD: Final = 3
"""Input, output and errors, which are always open: whatever other threads close meanwhile, nothing can be opened."""


@contextmanager
def lowered(limit: int, to: int) -> Iterator[None]:
    """This limit of the process (`resource.RLIMIT_...`) is so low meanwhile."""
    soft, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (to, hard))
    try:
        yield
    finally:
        resource.setrlimit(limit, (soft, hard))


def no_descriptors_left() -> AbstractContextManager[None]:
    """Whatever this process opens meanwhile fails with EMFILE."""
    return lowered(resource.RLIMIT_NOFILE, STANDARD)
