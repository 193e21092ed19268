"""Work folders of mutmut under `build/mutants`, one for each place, and the results that it leaves there.

A place is a room (`coordinator`) or a module of one (`task/loop`). In its folder are links to the sources, the
tests and the docs, which mutmut copies, and the project's configuration with mutmut's at its end.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS: Final = ("coordinator", "task", "kafka", "sinks", "sources", "state")
LINKED: Final = ("tidegate", "tests", "docs")
TIMEOUT_S: Final = 3.0
"""Added to what the tests of a mutant take; twice that is given to it."""

SLOW_PLUGINS: Final = ("cacheprovider", "xdist", "unraisableexception", "threadexception")
"""Of pytest; two collect garbage twice in each run, which takes five times as long as the run of a quick test."""
READ_THE_SOURCES: Final = ("tests/coordinator/test_permit_is_made_once.py",)
"""Tests that look at the text of the sources, which mutmut rewrites."""
MYPY: Final = (
    "mypy", "--config-file=", "--strict", "--explicit-package-bases", "--ignore-missing-imports",
    "--follow-imports=silent", "--no-warn-unused-ignores", "--cache-dir=../../mypy", "--output=json",
    "--disable-error-code=no-redef", "--disable-error-code=has-type", "--disable-error-code=var-annotated",
)  # fmt: skip
"""As strict as `make lint`, but for what mutants of a function bring about by standing next to it, and for style."""

FATES: Final = {
    "killed": "killed",
    "caught by type check": "killed by mypy",
    "survived": "survived",
    "no tests": "not called",
    "not checked": "not tried",
}
NOT_CALLED: Final = "no quick test calls it"


class Mutant(msgspec.Struct, frozen=True):
    """What became of one. `module` is without the package: `task.loop`."""

    key: str
    """Its name in mutmut, good for one run."""
    module: str
    function: str
    status: str
    old: str = ""
    new: str = ""

    @property
    def fate(self) -> str:
        return FATES.get(self.status, "timed out")

    @property
    def survived(self) -> bool:
        """Also one that nobody tried to kill: after `--again`, those of functions that changed since the last run."""
        return self.status in {"survived", "no tests", "not checked"}

    @property
    def name(self) -> str:
        """Stays the same when lines move. All mutants of a function that no quick test calls have the same."""
        change = NOT_CALLED if self.status == "no tests" else f"{self.old}  =>  {self.new}"
        return f"{self.module} {self.function}: {change}".rstrip()


def prepare(place: str) -> Path:
    """An empty work folder."""
    folder = folder_of(place)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    project = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(f"{project}\n{_settings(place)}")
    return folder


def folder_of(place: str) -> Path:
    return ROOT / "build" / "mutants" / place.replace("/", "-")


def read_mutants(place: str) -> list[Mutant]:
    """Raises FileNotFoundError where nothing was run."""
    return msgspec.json.decode((folder_of(place) / "results.json").read_bytes(), type=list[Mutant])


def _settings(place: str) -> str:
    target = f"tidegate/{place}" if (ROOT / "tidegate" / place).is_dir() else f"tidegate/{place}.py"
    if not (ROOT / target).exists():
        raise SystemExit(f"{place}: no room and no module of one")
    settings = {
        "source_paths": ["tidegate"],
        "also_copy": ["docs"],  # as it does with tests
        "only_mutate": [target if target.endswith(".py") else f"{target}/*"],
        "pytest_add_cli_args": [part for plugin in SLOW_PLUGINS for part in ("-p", f"no:{plugin}")],
        "pytest_add_cli_args_test_selection": [
            "-m", "not slow", *(f"tests/{room}" for room in ROOMS),
            *(f"--deselect={test}" for test in READ_THE_SOURCES),
        ],
        "type_check_command": [sys.executable, "-m", *MYPY, target],
        "process_isolation": "forkserver",  # tests leave threads of native libraries in the process that ran them
        "timeout_constant": TIMEOUT_S,
        "timeout_multiplier": 2.0,
        "use_git_change_detection": False,
        "use_setproctitle": False,
    }  # fmt: skip
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    return "\n".join(["[tool.mutmut]", *lines, ""])
