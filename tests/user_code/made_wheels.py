"""Wheels and other files of `code:` for tests."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path


def make_wheel(directory: Path, files: Mapping[str, str | bytes], name: str = "scoring-1.2-py3-none-any.whl") -> Path:
    """Writes a wheel with these files and its metadata; its bytes depend on nothing else."""
    package, version = name.split("-")[:2]
    metadata = {f"{package}-{version}.dist-info/METADATA": f"Name: {package}\nVersion: {version}\n"}
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for member, content in {**files, **metadata}.items():
            wheel.writestr(zipfile.ZipInfo(member), content)
    return path


def make_code_files(directory: Path, paths: Iterable[str]) -> None:
    """Writes an empty file, or a wheel with an empty module, to each of these paths."""
    for path in paths:
        if path.endswith(".whl"):
            make_wheel((directory / path).parent, {f"{Path(path).name.split('-')[0]}.py": ""}, Path(path).name)
        else:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).touch()
