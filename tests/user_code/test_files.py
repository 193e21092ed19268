"""Files that a pipeline file lists under `code:`: which are accepted, and what identifies them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.user_code.made_wheels import make_wheel
from tidegate.user_code.files import BYTES_MAX, read_code_file, read_code_files
from tidegate.user_code.modules import UserCodeProblem


def test_a_file_is_identified_by_name_and_content(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "model.bin").write_bytes(b"seven")
    found, problems = read_code_files(tmp_path, ["libs/model.bin"])
    assert not problems
    (one,) = found
    assert (one.file.name, one.file.size_bytes, one.path) == ("model.bin", 5, tmp_path / "libs" / "model.bin")
    assert one.file.sha256 == hashlib.sha256(b"seven").hexdigest()
    assert not one.file.is_wheel
    assert str(one.file) == f"model.bin {one.file.sha256[:12]}"


def test_a_link_is_read_where_it_leads_and_has_its_own_name(tmp_path: Path) -> None:
    """A volume of Kubernetes consists of links."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "v7").write_bytes(b"seven")
    (tmp_path / "model.bin").symlink_to("..data/v7")
    assert read_code_file(tmp_path / "model.bin").file.name == "model.bin"


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        (["gone.bin"], r"gone\.bin cannot be read: No such file or directory"),
        (["libs"], "libs is a directory"),
        (["pipe"], "pipe is not a regular file"),
        (["large"], "large is larger than 1 GiB"),
        (["model.bin", "libs/model.bin"], r"`model\.bin` has the same name, `model\.bin`"),
        (
            ["a/Shop_Scores-1-py3-none-any.whl", "b/shop.scores-2-py3-none-any.whl"],
            "is also a wheel of `shop-scores`",
        ),
        (["libs/shop-1-cp312-cp312-linux_x86_64.whl"], "is not pure Python"),
    ],
)
def test_what_cannot_be_listed_is_refused_at_its_place(paths: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    for name in ("model.bin", "libs/model.bin", "libs/shop-1-cp312-cp312-linux_x86_64.whl"):
        (tmp_path / name).touch()
    make_wheel(tmp_path / "a", {"one.py": ""}, "Shop_Scores-1-py3-none-any.whl")
    make_wheel(tmp_path / "b", {"two.py": ""}, "shop.scores-2-py3-none-any.whl")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(BYTES_MAX + 1)
    found, problems = read_code_files(tmp_path, paths)
    assert len(found) == len(paths) - 1
    (place,) = problems
    assert place == len(paths) - 1
    with pytest.raises(UserCodeProblem, match=said):
        raise problems[place]
