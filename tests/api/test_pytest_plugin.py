"""Cases of pipeline files as tests of pytest: what is collected, selected and reported."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.api.shop import SHOP
from tidegate.api import pytest_plugin

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120
PLUGIN = ("-p", "tidegate.api.pytest_plugin", "-p", "no:cacheprovider", "--import-mode=importlib")
ENVIRONMENT = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PY_COLORS": "0"}
ENVIRONMENT.pop("PYTEST_ADDOPTS", None)


Run = Callable[..., str]


def run_process(folder: Path, *arguments: str) -> str:
    """What a user's pytest prints, with the plugin and its settings in `folder`."""
    command = [sys.executable, "-m", "pytest", *PLUGIN, *arguments]
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return f"{done.stdout}{done.stderr}"


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs pytest in the user's project, in the process of the test."""
    monkeypatch.chdir(project)
    for name, value in (("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1"), ("PYTEST_ADDOPTS", ""), ("PY_COLORS", "0")):
        monkeypatch.setenv(name, value)

    def pytest_prints(*arguments: str) -> str:
        capsys.readouterr()
        pytest.main([*PLUGIN, *arguments])
        printed = capsys.readouterr()
        return f"{printed.out}{printed.err}"

    return pytest_prints


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project: a pipeline, a broken one, one without cases, and a test."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pipelines" / "shop.yaml").write_text(SHOP, encoding="utf-8")
    (tmp_path / "broken.yaml").write_text(SHOP.replace("amount >= 100", "amoun >= 100"), encoding="utf-8")
    (tmp_path / "empty.yaml").write_text(SHOP.partition("tests:")[0], encoding="utf-8")
    (tmp_path / "tests" / "test_own.py").write_text("def test_own():\n    pass\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n", encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_cases_are_items_and_a_failure_is_reported_as_tidegate_test_does(run: Run) -> None:
    printed = run("--tidegate", "pipelines/shop.yaml", "-v")
    assert "pipelines/shop.yaml::only large orders go out PASSED" in printed
    assert "pipelines/shop.yaml::a customer is expected FAILED" in printed
    assert "1 failed, 1 passed" in printed
    line = SHOP.splitlines().index("  - name: a customer is expected") + 1
    assert f"shop.yaml:{line}: sink big: 1 record came out, as many as expected, but with other contents" in printed
    assert "- {key: bo}" in printed
    assert "Traceback" not in printed
    assert "playing.py" not in printed
    assert "1 passed, 1 deselected" in run("--tidegate", "pipelines/shop.yaml", "-k", "large")


@pytest.mark.deep
def test_cases_run_on_workers(project: Path) -> None:
    printed = run_process(project, "--tidegate", "pipelines/shop.yaml", "-v", "-p", "xdist", "-n", "2")
    assert "PASSED pipelines/shop.yaml::only large orders go out" in printed
    assert "FAILED pipelines/shop.yaml::a customer is expected" in printed
    assert "1 failed, 1 passed" in printed


@pytest.mark.slow
def test_files_with_problems_or_without_cases_are_errors_of_the_collection(run: Run) -> None:
    files = ("pipelines/shop.yaml", "broken.yaml", "empty.yaml")
    printed = run("tests", *(f"--tidegate={file}" for file in files), "--collect-only", "-q")
    assert printed.splitlines()[:3] == [
        "tests/test_own.py::test_own",
        "pipelines/shop.yaml::only large orders go out",
        "pipelines/shop.yaml::a customer is expected",
    ]
    assert "broken.yaml:14:40: steps.large.where: there is no column `amoun`; did you mean `amount`?" in printed
    assert "empty.yaml has no `tests:`" in printed
    assert "3 tests collected, 2 errors" in printed
    assert "Traceback" not in printed


@pytest.mark.slow
def test_the_setting_adds_files_where_no_paths_are_given(project: Path, run: Run) -> None:
    with (project / "pytest.ini").open("a", encoding="utf-8") as settings:
        settings.write("tidegate_files =\n    pipelines/*.yaml\n")
    assert "3 tests collected" in run("--collect-only", "-q")
    assert run("tests", "-q").splitlines()[-1].startswith("1 passed")
    chosen = run("pipelines/shop.yaml::only large orders go out", "-q")
    assert chosen.splitlines()[-1].startswith("1 passed")


@pytest.mark.slow
def test_without_files_the_plugin_imports_nothing(project: Path) -> None:
    (project / "tests" / "test_own.py").write_text(
        "import sys\n\ndef test_own():\n    found = [one for one in sys.modules if one.startswith('tidegate.')]\n"
        "    assert sorted(found) == ['tidegate.api', 'tidegate.api.pytest_plugin']\n"
        "    assert 'polars' not in sys.modules and 'pydantic' not in sys.modules\n",
        encoding="utf-8",
    )
    assert "1 passed" in run_process(project, "-q")


def test_a_pattern_of_the_setting_without_files_is_an_error(project: Path, run: Run) -> None:
    with (project / "pytest.ini").open("a", encoding="utf-8") as settings:
        settings.write("tidegate_files = gone*.yaml\n")
    assert f"tidegate_files: there is no gone*.yaml in {project}" in run("tests")


def test_the_plugin_is_an_entry_point_of_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"tidegate": pytest_plugin.__name__}
