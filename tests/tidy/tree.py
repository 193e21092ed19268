"""The files of the project, as the rules see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tidegate"
TESTS = ROOT / "tests"
FOLDERS = (".ci", "bench", "docs", "examples", "helm", "packaging", "tests", "tidegate", "tools")
TEXT_SUFFIXES = frozenset({"", ".cfg", ".in", ".json", ".lock", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"})


def python_files(*places: Path) -> list[Path]:
    """All Python files under these folders (a file stands for itself), sorted."""
    found: set[Path] = set()
    for place in places:
        found.update([place] if place.is_file() else place.rglob("*.py"))
    return sorted(file for file in found if "__pycache__" not in file.parts)


def text_files() -> list[Path]:
    """All text files of the project: its folders and the files beside them, without what tools make."""
    files = [file for file in ROOT.iterdir() if file.is_file() and file.name != ".git"]  # a linked work tree has one
    for folder in FOLDERS:
        files += [file for file in (ROOT / folder).rglob("*") if file.is_file()]
    made = {"__pycache__", "results"}
    return sorted(f for f in files if f.suffix in TEXT_SUFFIXES and not made & set(f.relative_to(ROOT).parts))


def complaints(files: Iterable[Path], rule: Callable[[str], list[str]]) -> list[str]:
    """What the rule says about each file, with the file's name in front."""
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        try:
            said = rule(text)
        except SyntaxError as error:
            said = [f"line {error.lineno}: does not parse: {error.msg}"]
        found += [f"{file.relative_to(ROOT)}: {complaint}" for complaint in said]
    return found


def report(found: list[str]) -> None:
    """Fail the test with one line for each complaint, if there is any."""
    assert not found, f"{len(found)} to mend:\n" + "\n".join(found)
