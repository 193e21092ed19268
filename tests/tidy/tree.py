"""The files of the project, as input of the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tidegate"
TESTS = ROOT / "tests"
FOLDERS = (".ci", "bench", "docs", "examples", "helm", "packaging", "tests", "tidegate", "tools")
TEXT_SUFFIXES = frozenset(
    {"", ".cfg", ".css", ".html", ".in", ".js", ".json", ".lock", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
)


def python_files(*places: Path) -> list[Path]:
    """Returns all Python files under these folders, sorted; a place may also be a file."""
    found: set[Path] = set()
    for place in places:
        found.update([place] if place.is_file() else place.rglob("*.py"))
    return sorted(file for file in found if "__pycache__" not in file.parts)


def text_files() -> list[Path]:
    """Returns all text files of the project, in its folders and at the top level, without generated ones."""
    files = [file for file in ROOT.iterdir() if file.is_file() and file.name != ".git"]  # a linked work tree has one
    for folder in FOLDERS:
        files += [file for file in (ROOT / folder).rglob("*") if file.is_file()]
    made = {"__pycache__", "results"}
    return sorted(f for f in files if f.suffix in TEXT_SUFFIXES and not made & set(f.relative_to(ROOT).parts))


def complaints(files: Iterable[Path], rule: Callable[[str], list[str]]) -> list[str]:
    """Returns the rule's complaints about each file, prefixed with the file's name."""
    return [one for file in files for one in complaints_about(file, read(file), rule)]


def read(file: Path) -> str:
    """Returns the text of a file; what is not UTF-8 is replaced."""
    return file.read_text(encoding="utf-8", errors="replace")


def complaints_about(file: Path, text: str, rule: Callable[[str], list[str]]) -> list[str]:
    """Returns the rule's complaints about the text of a file, prefixed with the file's name."""
    try:
        said = rule(text)
    except SyntaxError as error:
        said = [f"line {error.lineno}: does not parse: {error.msg}"]
    return [f"{file.relative_to(ROOT)}: {complaint}" for complaint in said]


def report(found: list[str]) -> None:
    """Fails the test with one line for each complaint, if there are any."""
    assert not found, f"{len(found)} to mend:\n" + "\n".join(found)
