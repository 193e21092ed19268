"""Temporarily lowers a limit of the process, for instance so that no descriptors are left."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

STANDARD: Final = 3
"""Standard input, output and error are always open.

Whatever other threads close, no other descriptor fits the limit.
"""


@contextmanager
def lowered(limit: int, to: int) -> Iterator[None]:
    """Lowers this limit of the process (`resource.RLIMIT_...`) within the block."""
    soft, hard = resource.getrlimit(limit)
    resource.setrlimit(limit, (to, hard))
    try:
        yield
    finally:
        resource.setrlimit(limit, (soft, hard))


def no_descriptors_left() -> AbstractContextManager[None]:
    """Makes every open of this process fail with EMFILE within the block."""
    return lowered(resource.RLIMIT_NOFILE, STANDARD)
