"""How many files and connections a process may have open at a time."""

from __future__ import annotations

import resource
from typing import Final

DESCRIPTORS_MAX: Final = 65_536
"""Enough for anything here, and few enough for programs that look at every possible descriptor before they start."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one, up to DESCRIPTORS_MAX; returns what holds now.

    The usual soft limit of 1,024 is there for programs that call select(2). py4j does, for connections that are opened
    early, before there can be so many. Children inherit the limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
