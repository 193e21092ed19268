"""The table of docs/compatibility.md from the kept results: `python -m tests.compatibility.page` prints it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec

from tests.compatibility.__main__ import Line

RESULTS: Final = Path(__file__).parent / "results.jsonl"


def read_results() -> list[Line]:
    """The newest result of each cell."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    found = [msgspec.json.decode(line, type=Line) for line in lines]
    return list({line.cell: line for line in found}.values())


def render_table(lines: list[Line]) -> str:
    """One line for each cell, ordered by versions, without a newline at the end."""
    rows = ["| Spark | Kafka | Python | Java | result | records compared |", "| --- | --- | --- | --- | --- | --- |"]
    for line in sorted(lines, key=_order):
        cell = line.cell
        feature = f" (transaction version {cell.transaction_version})" if cell.transaction_version else ""
        result = "exact" if line.passed else "**not exact**"
        rows.append(
            f"| {cell.spark} | {cell.kafka_version}{feature} | {line.ran['python']} | {line.ran['java']} | {result} "
            f"| {line.seen:,} |"
        )
    return "\n".join(rows)


def _order(line: Line) -> list[list[int]]:
    cell = line.cell
    versions = (cell.spark, cell.kafka_version, cell.python, cell.java)
    return [[int(part) for part in version.split(".")] for version in versions] + [[cell.transaction_version or 0]]


if __name__ == "__main__":
    sys.stdout.write(render_table(read_results()) + "\n")
