"""Raises the limit on open files and connections of a process."""

from __future__ import annotations

import resource
from typing import Final

DESCRIPTORS_MAX: Final = 65_536
"""Enough for every process here, and low enough for programs that iterate over all possible descriptors."""


def raise_descriptor_limit() -> int:
    """Raises the soft limit of open files to the hard one, up to DESCRIPTORS_MAX; returns the limit in effect.

    The usual soft limit of 1,024 exists for programs that call select(2). py4j does, but only for connections that are
    opened early, before there can be that many. Children inherit the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
