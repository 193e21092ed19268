"""Run in a process of its own: the files of docs/add-a-step.md stand next to the product, and its commands are run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidegate.operators import kinds


def main(folder: Path) -> int:
    """`folder` has the files, by the names that the page gives them."""
    kinds.__path__.append(str(folder / "kinds"))
    from tidegate.cli.main import run_command

    exit_code = run_command(["test", str(folder / "sample.yaml")])
    tests = [str(Path(__file__).with_name("test_contract.py")), str(folder / "test_sample.py")]
    options = ["-q", "-v", "-p", "no:cacheprovider", "--import-mode=importlib", "-k", "sample"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # the plugin of pytest is imported already
    return exit_code or int(pytest.main([*tests, *options]))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
