"""Renders counts, measured times and sizes for people. `units.py` renders settings as the pipeline file has them."""

from __future__ import annotations

from typing import Final

MILLISECONDS_BELOW_S: Final = 10.0
KIB: Final = 1024


def render_count(number: int, noun: str, plural: str = "") -> str:
    """Renders `1 restart`, `2 restarts`; with the plural, `1 copy`, `2 copies`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def render_seconds(seconds: float) -> str:
    """Renders a measured time, in milliseconds below ten seconds."""
    return f"{seconds * 1000:.0f} ms" if seconds < MILLISECONDS_BELOW_S else f"{seconds:.1f} s"


def render_size(size_bytes: int) -> str:
    """Renders a size in binary units."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < KIB:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= KIB
    return f"{value:.1f} TiB"
