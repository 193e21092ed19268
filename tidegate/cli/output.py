"""Output that several commands share: values as JSON, tables and timestamps."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import click
import msgspec


def echo_json(value: object) -> None:
    """Prints a value for `--format json`. A path that is not UTF-8 is escaped, which `open_streams` arranges."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def render_table(titles: Sequence[str], cells: Iterable[Sequence[str]], right: Collection[str]) -> list[str]:
    """Renders rows with columns as wide as their content, because a truncated name is useless. `right`: titles of
    numeric columns.
    """
    rows = [tuple(titles), *map(tuple, cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if title in right else cell.ljust(width)
            for title, cell, width in zip(titles, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def printable(text: str, keep: str = "") -> str:
    """Escapes everything that a terminal would interpret, including line ends, except for characters in `keep`.

    Used for whatever comes from a record: its keys, values and names.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text
    )


def render_moment(at_ms: int | None) -> str:
    """Renders `at_ms` (since 1970) as UTC in seconds: `-` for None, the plain number beyond the calendar."""
    if at_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{at_ms} ms"
