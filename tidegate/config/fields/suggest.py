"""Suggestions for misspelled names: the nearest known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MAX_LISTED = 12


def derive_suggestion(
    word: str,
    known: Iterable[str],
    what: str = "one of",
    *,
    otherwise: str = "no known name is similar: check the spelling",
) -> str:
    """Returns a remedy for an unknown name: the nearest known one, a short list of all names, or else `otherwise`."""
    names = sorted(set(known))
    folded = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower()[:100], list(folded), n=1, cutoff=0.6)
    if near:
        return f"did you mean `{folded[near[0]]}`?"
    if not names:
        return f"there is no {what.removesuffix(' of')} to choose" if what != "one of" else otherwise
    if len(names) <= MAX_LISTED:
        return f"use {what} " + ", ".join(f"`{name}`" for name in names)
    return otherwise
