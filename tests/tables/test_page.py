"""docs/state.md: the program that reads a savepoint without Tidegate, run as it is printed; and what the page says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from tidegate.formats.columns import plain_values
from tidegate.tables.files import list_states, read_files
from tidegate.tables.source import open_snapshot
from tidegate.tables.table import StateTable, read_frames

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "state.md").read_text(encoding="utf-8")
SAVEPOINT = ROOT / "tests" / "golden" / "format-1" / "savepoints" / "savepoint-golden"
LINES_MAX = 30


def as_printed(value: object) -> object:
    """As it is in JSON."""
    if isinstance(value, tuple | list):
        return [as_printed(one) for one in value]
    return repr(value) if isinstance(value, bytes) else str(value) if isinstance(value, Decimal) else value


def program() -> str:
    (found,) = re.findall(r"```python\n(import hashlib.*?)```", PAGE, re.DOTALL)
    return str(found)


@pytest.mark.slow
def test_the_program_of_the_page_reads_what_tidegate_reads() -> None:
    done = subprocess.run([sys.executable, "-c", program(), SAVEPOINT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    snapshot = open_snapshot(str(SAVEPOINT), None, {})
    expected = []
    for state in list_states(snapshot):
        files = read_files(snapshot, state)
        keys = len(files.shape.keys)
        if not keys:
            continue  # lists, as the page says
        for frame in read_frames(snapshot, files, StateTable(files.shape, raw=True)):
            columns = [plain_values(frame[name]) for name in frame.columns[:-1]]
            if files.shape.expires:
                columns[-1] = [None if at is None else at // 1000 for at in columns[-1]]  # the file has ms
            rows = zip(*columns, strict=True)
            expected += [[state.operator, state.state, as_printed(row[:keys]), as_printed(row[keys:])] for row in rows]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(expected) > 10
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_the_program_of_the_page_is_short_and_needs_no_tidegate() -> None:
    assert len([line for line in program().splitlines() if line.strip()]) <= LINES_MAX
    assert "tidegate" not in program().lower()
