"""Wheels of `code:`: which are accepted, and how their modules are imported."""

from __future__ import annotations

import importlib
import stat
import sys
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.user_code.made_wheels import make_wheel
from tidegate.user_code.files import (
    check_wheel,
    distribution_of,
    install_wheels,
    is_unpacked,
    isolate_wheels,
    unpack_wheel,
)
from tidegate.user_code.modules import UserCodeProblem

PURE = {"shop_scores/__init__.py": "FACTOR = 3\n", "shop_scores/data.txt": "seven"}


@pytest.fixture(autouse=True)
def _no_wheels() -> Iterator[None]:
    yield
    install_wheels(())


def unpacked(wheel: Path) -> Path:
    directory = wheel.with_suffix("")
    unpack_wheel(wheel, directory)
    return directory


def test_a_pure_wheel_is_accepted_and_unpacked(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {**PURE, "scoring-1.2.data/purelib/shop_extra.py": "MORE = 1\n"})
    check_wheel(wheel)
    directory = unpacked(wheel)
    assert is_unpacked(wheel, directory)
    install_wheels([directory])
    assert importlib.import_module("shop_scores").FACTOR == 3
    assert importlib.import_module("shop_extra").MORE == 1
    assert (
        Path(str(importlib.import_module("shop_scores").__file__)).with_name("data.txt").read_text("utf-8") == "seven"
    )
    assert metadata.version("scoring") == "1.2"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("scoring-1.2-cp312-cp312-manylinux_2_17_x86_64.whl", "is not pure Python"),
        ("scoring-1.2-cp312-none-win_amd64.whl", "is not pure Python"),
        ("scoring-1.2-py3-abi3-any.whl", "is not pure Python"),
        ("scoring.whl", "is not the name of a wheel"),
    ],
)
def test_a_wheel_is_judged_by_its_tags(name: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with zipfile.ZipFile(path, "w"):
        pass
    with pytest.raises(UserCodeProblem, match=said):
        check_wheel(path)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"shop/fast.cpython-312-x86_64-linux-gnu.so": b"\x7fELF"}, "has a compiled part: shop/fast"),
        ({"queue.py": ""}, "would replace Python's own `queue`"),
        ({"polars/__init__.py": ""}, "would replace the `polars` that Tidegate itself uses"),
        ({"tidegate/more.py": ""}, "would replace the `tidegate`"),
        ({"../escape.py": ""}, "unsafe entry"),
        ({"/escape.py": ""}, "unsafe entry"),
        ({"a\\..\\escape.py": ""}, "unsafe entry"),
    ],
)
def test_a_wheel_is_judged_by_its_content(files: dict[str, str | bytes], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserCodeProblem, match=said):
        check_wheel(make_wheel(tmp_path, files))


def test_a_link_in_a_wheel_is_refused(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, PURE)
    link = zipfile.ZipInfo("shop_scores/link.py")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as wheel:
        wheel.writestr(link, "/etc/passwd")
    with pytest.raises(UserCodeProblem, match="unsafe entry"):
        check_wheel(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"text"])
def test_a_file_that_is_no_wheel_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "scoring-1.2-py3-none-any.whl"
    path.write_bytes(content)
    with pytest.raises(UserCodeProblem, match="cannot be read as a wheel"):
        check_wheel(path)


def test_a_wheel_with_damaged_content_is_not_unpacked(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"shop_scores.py": "X" * 5000})
    data = bytearray(wheel.read_bytes())
    data[60] ^= 0xFF
    wheel.write_bytes(data)
    with pytest.raises(UserCodeProblem, match=r"is damaged: shop_scores\.py does not match|cannot be read as a wheel"):
        check_wheel(wheel)
    with pytest.raises(OSError, match="cannot be unpacked"):
        unpacked(wheel)


@pytest.mark.parametrize("change", ["cut", "gone", "other"])
def test_a_directory_that_differs_from_its_wheel_is_found(change: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, PURE)
    directory = unpacked(wheel)
    module = directory / "shop_scores" / "__init__.py"
    (directory / "shop_scores" / "__pycache__").mkdir()  # Python writes there
    assert is_unpacked(wheel, directory)
    if change == "gone":
        module.unlink()
    else:
        module.write_text("" if change == "cut" else "FACTOR = 4\n", "utf-8")
    assert not is_unpacked(wheel, directory)


def test_the_next_deployment_has_its_own_wheels(tmp_path: Path) -> None:
    first = unpacked(make_wheel(tmp_path / "a", PURE))
    second = unpacked(make_wheel(tmp_path / "b", {"shop_scores/__init__.py": "FACTOR = 4\n"}))
    install_wheels([first])
    install_wheels([first])
    assert importlib.import_module("shop_scores").FACTOR == 3
    install_wheels([second])
    assert importlib.import_module("shop_scores").FACTOR == 4
    install_wheels(())
    assert str(second) not in sys.path
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("shop_scores")


def test_a_run_in_a_test_leaves_the_modules_of_before(tmp_path: Path) -> None:
    first = unpacked(make_wheel(tmp_path / "a", PURE))
    sys.path.insert(0, str(first))
    try:
        before = importlib.import_module("shop_scores")
        second = unpacked(make_wheel(tmp_path / "b", {"shop_scores/__init__.py": "FACTOR = 4\n"}))
        seen = []
        for _ in range(2):
            with isolate_wheels([second]):
                install_wheels([second])
                seen.append(importlib.import_module("shop_scores"))
        assert [one.FACTOR for one in seen] == [4, 4]
        assert seen[0] is not seen[1]
        assert importlib.import_module("shop_scores") is before
    finally:
        sys.path.remove(str(first))
        sys.modules.pop("shop_scores", None)


def test_a_wheel_hides_an_installed_module(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"iniconfig/__init__.py": "OURS = True\n"}, "iniconfig-9.9-py3-none-any.whl")
    former = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "iniconfig"}
    check_wheel(wheel)
    install_wheels([unpacked(wheel)])
    try:
        assert importlib.import_module("iniconfig").OURS
    finally:
        install_wheels(())
        sys.modules.update(former)


def test_a_namespace_that_others_share_keeps_their_modules(tmp_path: Path) -> None:
    protobuf = importlib.import_module("google.protobuf")
    wheel = make_wheel(tmp_path, {"google/shop_scores.py": "FACTOR = 5\n"}, "google_shop-1-py3-none-any.whl")
    check_wheel(wheel)
    install_wheels([unpacked(wheel)])
    assert importlib.import_module("google.shop_scores").FACTOR == 5
    install_wheels(())
    assert importlib.import_module("google.protobuf") is protobuf


@pytest.mark.parametrize("name", ["My_Scoring.x-1.2-py3-none-any.whl", "my-1-py3-none-any.whl"])
def test_packages_are_compared_by_their_normalized_names(name: str) -> None:
    assert distribution_of(name) in {"my-scoring-x", "my"}
