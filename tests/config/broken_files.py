"""The broken pipeline files and what is said of each. `python -m tests.config.broken_files` rewrites the answers."""

from __future__ import annotations

from pathlib import Path

from tests.support.user_code import describe_here
from tidegate.config.errors import ConfigErrors, Problem, render_problems
from tidegate.config.load import read_pipeline
from tidegate.plan.build import check_pipeline

FOLDER = Path(__file__).parent / "broken"


def broken_files() -> list[Path]:
    """All broken files; each has its answer next to it, with the ending `.txt`."""
    return sorted(FOLDER.glob("*.yaml"))


def problems(path: Path) -> tuple[Problem, ...]:
    """Everything that is said of a file when no variable is set."""
    try:
        checked = check_pipeline(describe_here(read_pipeline(path, {})))
    except ConfigErrors as error:
        return error.problems
    return (*checked.problems, *checked.warnings)


def answer(path: Path) -> str:
    """The problems as lines, with the file's name alone."""
    return render_problems(problems(path), "text").replace(f"{path.parent}/", "") + "\n"


if __name__ == "__main__":
    for each in broken_files():
        each.with_suffix(".txt").write_text(answer(each), encoding="utf-8")
