"""The user's modules: read next to the pipeline file, imported from memory, refused with a remedy."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.user_code.modules import (
    BYTES_MAX,
    UserCodeProblem,
    install_modules,
    isolate_modules,
    load,
    read_modules,
    split_reference,
)


@pytest.fixture(autouse=True)
def _nothing_installed() -> Iterator[None]:
    yield
    install_modules({})


def write(directory: Path, **files: str) -> Path:
    """Files by their path with `__` for `/`, without `.py`."""
    for name, text in files.items():
        path = directory / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory


def test_a_module_is_read_with_all_that_it_imports_from_next_to_the_file(tmp_path: Path) -> None:
    directory = write(
        tmp_path,
        lookup__geo="import json\nfrom tables import COUNTRIES\nasync def resolve(row): return {}\n",
        lookup__other="import more.deep\n",
        tables="COUNTRIES = []\n",
        more__deep="",
        unused="",
    )
    found = read_modules(directory, ["lookup.geo:resolve"])
    assert list(found) == ["lookup/geo.py", "lookup/other.py", "more/deep.py", "tables.py"]


def test_a_byte_order_mark_is_passed_over_as_by_python(tmp_path: Path) -> None:
    modules = read_modules(write(tmp_path, marked="\ufeffasync def resolve(row): return {}\n"), ["marked:resolve"])
    install_modules(modules)
    assert callable(load("marked:resolve"))


def test_a_directory_of_data_does_not_stand_for_the_module_next_to_it(tmp_path: Path) -> None:
    """As Python finds them: a package, a module, a directory without `__init__.py`."""
    directory = write(
        tmp_path, geo="import settings\nasync def resolve(row): return {}\n", settings="X = 1\n", both="X = 1\n"
    )
    write(directory, geo__tool="import unused\n", unused="", both__deep="", tables__deep="")
    (directory / "both" / "__init__.py").touch()
    (directory / "settings").mkdir()
    (directory / "settings" / "prod.yaml").write_text("a: 1\n")
    found = read_modules(directory, ["geo:resolve", "both:f", "tables.deep:f"])
    assert list(found) == ["both/__init__.py", "both/deep.py", "geo.py", "settings.py", "tables/deep.py"]
    install_modules(found)
    assert callable(load("geo:resolve"))


def test_what_is_installed_is_not_read(tmp_path: Path) -> None:
    assert read_modules(tmp_path, ["asyncio:sleep"]) == {}


def test_too_much_next_to_the_file_is_refused(tmp_path: Path) -> None:
    directory = write(tmp_path, large="x = 1\n" * (BYTES_MAX // 6 + 1))
    with pytest.raises(UserCodeProblem, match="more than 4 MiB"):
        read_modules(directory, ["large:f"])


def test_modules_are_imported_from_memory_and_forgotten_with_their_deployment() -> None:
    first = {"lookup/geo.py": "from lookup.table import NAME\nasync def resolve(row): return {'c': NAME}\n"}
    first["lookup/table.py"] = "NAME = 'first'\n"
    install_modules(first)
    module = importlib.import_module("lookup.geo")
    assert module.NAME == "first"
    assert not hasattr(module, "__file__"), "nothing is on a disk"
    install_modules(first)
    assert importlib.import_module("lookup.geo") is module, "the same deployment again"
    install_modules({**first, "lookup/table.py": "NAME = 'second'\n"})
    assert importlib.import_module("lookup.geo").NAME == "second"
    install_modules({})
    assert "lookup.geo" not in sys.modules
    with pytest.raises(ImportError):
        importlib.import_module("lookup.geo")


def test_a_traceback_shows_the_line_of_the_user() -> None:
    install_modules({"lookup.py": "def f():\n    raise ValueError('mine')\n"})
    with pytest.raises(ValueError, match="mine") as caught:
        importlib.import_module("lookup").f()
    assert "lookup.py" in str(caught.traceback[-1].path)


def test_a_module_that_raises_is_refused_with_what_it_raised() -> None:
    install_modules({"bad.py": "import nowhere\n"})
    with pytest.raises(UserCodeProblem) as caught:
        load("bad:f")
    assert caught.value.message == (
        "the module `bad` cannot be imported: ModuleNotFoundError: No module named 'nowhere'"
    )


@pytest.mark.parametrize("reference", ["", "lookup", "lookup:", ":f", "a b:f", "lookup.geo:f()", "lookup/geo.py:f"])
def test_a_reference_is_module_and_name(reference: str) -> None:
    with pytest.raises(UserCodeProblem, match="is not `module:name`"):
        split_reference(reference)


def test_a_directory_of_data_comes_after_what_is_installed(tmp_path: Path) -> None:
    """As Python finds them: it has no `__init__.py`. A package next to the file comes first, as elsewhere."""
    geo = "import json\nimport msgspec\nimport yaml_of_mine\nasync def resolve(row): return {}\n"
    directory = write(tmp_path, geo=geo, msgspec__seed="", json__seed="", yaml_of_mine__seed="")
    assert list(read_modules(directory, ["geo:resolve"])) == ["geo.py", "yaml_of_mine/seed.py"]
    (tmp_path / "msgspec" / "__init__.py").touch()
    assert "msgspec/seed.py" in read_modules(directory, ["geo:resolve"])


@pytest.mark.parametrize("place", ["queue.py", "queue/__init__.py"])
def test_a_module_that_is_called_like_one_of_pythons_own_is_refused(tmp_path: Path, place: str) -> None:
    """In a slot it would stand for that one in all that is imported later."""
    directory = write(tmp_path, geo="import queue\nasync def resolve(row): return {}\n")
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).touch()
    with pytest.raises(UserCodeProblem, match="`queue` next to the pipeline file would replace") as caught:
        read_modules(directory, ["geo:resolve"])
    assert caught.value.remedy == "rename it"


def test_within_a_block_modules_are_imported_anew_and_after_it_those_of_before_are_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "counted_rows.py").write_text("seen = ['own']\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("counted_rows")
    monkeypatch.setitem(sys.modules, "counted_rows", own)
    for _ in range(2):
        with isolate_modules({"counted_rows.py": "seen = []\n"}):
            install_modules({"counted_rows.py": "seen = []\n"})
            found = importlib.import_module("counted_rows")
            assert found.seen == []
            found.seen.append("row")
        assert importlib.import_module("counted_rows") is own
    assert own.seen == ["own"]
