"""Durations and sizes in human-readable notation: `1m30s`, `64MiB`. A number without a unit is refused."""

from __future__ import annotations

import re
from typing import Final

MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
MAX_DURATION_MS = 366 * MILLISECONDS["d"]

_DURATION_PART = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"([0-9]{1,12})(B|KiB|MiB|GiB|TiB)", re.ASCII)


class DurationTooLong(ValueError):
    """Longer than any duration in a pipeline file may be."""


def derive_duration_ms(text: str) -> int:
    """Parses `1m30s` -> 90000. Units `d h m s ms`, each at most once, in descending order. Raises ValueError."""
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"`{text[:40]}` is not a duration")
    sizes = [MILLISECONDS[unit] for _, unit in parts]
    if sorted(set(sizes), reverse=True) != sizes:
        raise ValueError(f"`{text[:40]}` has its units in the wrong order")
    total = sum(int(number) * size for (number, _), size in zip(parts, sizes, strict=True))
    if total > MAX_DURATION_MS:
        raise DurationTooLong(f"`{text[:40]}` is more than a year")
    return total


def render_duration(milliseconds: int) -> str:
    """Renders 90000 -> `1m30s`; the inverse of `derive_duration_ms`."""
    if milliseconds == 0:
        return "0s"
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, milliseconds = divmod(milliseconds, MILLISECONDS[unit])
        text += f"{count}{unit}" if count else ""
    return text


def derive_size_bytes(text: str) -> int:
    """Parses `64MiB` -> 67108864. Units `B KiB MiB GiB TiB`. Raises ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"`{text[:40]}` is not a size")
    return int(found[1]) * BYTES[found[2]]


def render_size(size_bytes: int) -> str:
    """Renders 67108864 -> `64MiB`; the inverse of `derive_size_bytes`."""
    unit = max((one for one in BYTES if size_bytes % BYTES[one] == 0), key=BYTES.__getitem__) if size_bytes else "B"
    return f"{size_bytes // BYTES[unit]}{unit}"


# -- the wait after a failed attempt -----------------------------------------------------------------------------------
# It grows with consecutive failures. The first failure is followed by another attempt at once: most are a lost process,
# and readers wait for the next commit. `coordinator/restart.py` shortens each wait at random by up to a fifth.

DOUBLINGS_MAX: Final = 40
"""Doublings after which every limit on a wait is exceeded."""


def derive_wait_ms(initial_ms: int, max_ms: int, in_a_row: int) -> int:
    """Returns the wait after the given consecutive failure, counted from 1."""
    return min(initial_ms << min(in_a_row - 2, DOUBLINGS_MAX), max_ms) if in_a_row > 1 else 0


def derive_waits_ms(initial_ms: int, max_ms: int, failures: int) -> int:
    """Returns the sum of the waits between this number of consecutive failures, which is not bounded."""
    growing = min(failures - 1, DOUBLINGS_MAX + 1)
    grown_ms = sum(derive_wait_ms(initial_ms, max_ms, in_a_row) for in_a_row in range(1, growing + 1))
    return grown_ms + (failures - 1 - growing) * max_ms
