"""How the C compiler is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.native.build import compile_library, find_compiler


def command(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def test_the_compiler_may_be_named_with_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `CC="ccache gcc"`: it was taken for one name, and nothing was compiled."""
    script = f'echo "$@" > {tmp_path}/asked; while [ "$1" != -o ]; do shift; done; touch "$2"'
    command(tmp_path / "wrapper", script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("CC", "wrapper gcc -m64")
    assert find_compiler() == [str(tmp_path / "wrapper"), "gcc", "-m64"]
    assert compile_library(tmp_path / "edge.so") == ""
    assert (tmp_path / "asked").read_text().startswith("gcc -m64 -O2")
    assert (tmp_path / "edge.so").exists()


@pytest.mark.parametrize("named", ["no-such-compiler gcc", "gcc 'unbalanced", " "])
def test_what_cc_names_and_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv("CC", named)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler() is None
    expected = f"there is no C compiler `{named}`, which CC names" if named.strip() else "there is no C compiler"
    assert compile_library(tmp_path / "edge.so") == expected
