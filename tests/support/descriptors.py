"""A process that has no descriptors left, for a while."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

STANDARD: Final = 3
"""Input, output and errors, which are always open: whatever other threads close meanwhile, nothing can be opened."""


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Whatever this process opens meanwhile fails with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (STANDARD, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
