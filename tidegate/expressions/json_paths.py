"""A parser for paths of `get_json_object`: `$.order.lines[0]['unit price']`, without wildcards. Pure."""

from __future__ import annotations

import re

_STEP = re.compile(r"\.([^.\[]+)|\['([^'?]+)'\]|\[([0-9]{1,9})\]")
Path = tuple[str | int, ...]
"""Names of members, and array indices from 0."""


class PathRefused(Exception):
    """A path that cannot be followed. The text describes the problem."""


def derive_path(text: str) -> Path:
    """Returns the steps of a path.

    Raises PathRefused if the text is not a path, or contains a wildcard.
    """
    if not text.startswith("$"):
        raise PathRefused("does not begin with `$`")
    steps: list[str | int] = []
    at = 1
    while at < len(text):
        if re.match(r"\.\*|\[\*\]|\['\*'\]", text[at:]):
            raise PathRefused("has a wildcard")
        found = _STEP.match(text, at)
        name = (found[1] or found[2] or "x") if found else ""
        if found is None or name != name.strip() or name == "*":
            raise PathRefused(f"has `{text[at:]}` where `.name`, `['name']` or `[0]` is expected")
        steps.append(int(found[3]) if found[3] else name)
        at = found.end()
    return tuple(steps)
