"""Recognizes texts that cannot be host names; looking these up fails with something other than a network error."""

from __future__ import annotations

from typing import Final

REMEDY: Final = "each part of a host between dots has 1 to 63 characters: is there a double dot?"


def can_be_host(text: str) -> bool:
    """Tells whether a host name can be looked up: `a..b` and `a b` cannot."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return text.isprintable() and " " not in text
