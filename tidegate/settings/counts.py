"""How many of something, in words."""

from __future__ import annotations


def render_count(number: int, noun: str) -> str:
    """`1 restart`, `2 restarts`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
