"""Authority is a value: only the journal makes it."""

from __future__ import annotations

import ast
from pathlib import Path

import tidegate

ROOT = Path(tidegate.__file__).parent


def test_only_the_journal_issues_permits() -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if "issue_permit" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "issue_permit" for alias in node.names)
    }
    assert users == {"journal/journal.py"}
