"""docs/python.md: its test runs as it is printed, on its modules and its pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tidy.examples import find_examples, find_modules
from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_test_of_the_page_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    modules = dict(find_modules(PAGE))
    for name, text in modules.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (pipeline,) = (example.pipeline for example in find_examples(PAGE) if "tests" in example.values)
    (tmp_path / "visits.yaml").write_text(yaml.safe_dump(pipeline, sort_keys=False), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(modules["test_visits.py"], names)
    names["test_a_visit_ends"]()
