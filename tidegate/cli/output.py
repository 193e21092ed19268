"""What several commands print alike: values as JSON, tables, moments."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime

import click
import msgspec


def echo_json(value: object) -> None:
    """What `--format json` prints. A path that is not UTF-8 becomes escapes: `open_streams` sees to that."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def render_table(titles: Sequence[str], cells: Iterable[Sequence[str]], right: Collection[str]) -> list[str]:
    """Lines of columns that are as wide as what they say: a cut name says nothing. `right`: titles of numbers."""
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
    """With escapes in place of what a terminal would obey, line ends included, but for what is in `keep`.

    For whatever is of a record: its keys, values and names.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text
    )


def render_moment(at_ms: int | None) -> str:
    """UTC, in seconds; `-` where there is none, the number beyond the calendar. `at_ms`: since 1970."""
    if at_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{at_ms} ms"
