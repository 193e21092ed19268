"""A user's type checker and editor know what `tidegate` and `tidegate.python` have."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate
from tests.tidy.tree import PACKAGE
from tidegate import python

USER = Path(__file__).with_name("typed_user.py")
PATIENCE_S = 300


@pytest.mark.deep
def test_the_file_of_a_user_is_strictly_typed(tmp_path: Path) -> None:
    """Its mistakes are marked: a mark without a mistake is reported, too."""
    (tmp_path / USER.name).write_text(USER.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), USER.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == "Success: no issues found in 1 source file\n", done.stdout + done.stderr


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize("module", [tidegate, python])
def test_what_is_public_is_listed_and_described(module: object) -> None:
    names = vars(module)["__all__"]
    assert names == sorted(names)
    assert set(names) <= set(dir(module))
    for name in names:
        found = getattr(module, name)
        assert inspect.getdoc(found), name
        for member, value in vars(found).items() if isinstance(found, type) else ():
            if inspect.isfunction(value) and not value.__name__.startswith("_"):
                assert inspect.getdoc(getattr(found, member)), f"{name}.{member}"
