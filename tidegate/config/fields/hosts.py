"""Which texts can be names of hosts at all. Asking for others is no error of the network, and raises something else."""

from __future__ import annotations

from typing import Final

REMEDY: Final = "between its dots a host has 1 to 63 characters: is a dot there twice?"


def can_be_host(text: str) -> bool:
    """Whether it can be looked up: `a..b` and `a b` cannot."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return text.isprintable() and " " not in text
