"""The kinds of operators: found by looking, told apart by their tags, and enough for everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.config.models import StepSettings
from tidegate.operators.registry import choose_step_kind, kind_modules, operator_union, step_kinds

ROOT = Path(__file__).resolve().parents[2]


def test_every_kind_is_found_and_has_a_tag_of_its_own() -> None:
    tags = [spec.__struct_config__.tag for spec in operator_union().__args__]
    own = [
        "aggregate",
        "aggregate-changes",
        "async",
        "dedup",
        "explode",
        "filter",
        "http",
        "last",
        "ranking",
        "route",
        "select",
        "union",
        "upsert",
        "window",
    ]
    assert sorted(tags) == sorted([*own, "keyed-input", "sink", "source", "read-back", "dead-letters"])
    assert len(kind_modules()) < len(tags), "`keep` has two"


def test_a_step_has_the_keys_of_all_kinds_and_is_of_the_kind_whose_word_it_has() -> None:
    step = StepSettings.model_validate({"name": "s", "from": "orders", "select": {"a": "1"}})
    assert choose_step_kind(step).word == "select"
    assert choose_step_kind(StepSettings.model_validate({"name": "s", "from": ["a", "b"]})).word == ""
    words = {"where", "select", "aggregate", "window", "async", "http", "dedup", "explode", "keep", "route", ""}
    assert {kind.word for kind in step_kinds()} == words
    assert {key for kind in step_kinds() for key in kind.settings.model_fields} < set(StepSettings.model_fields)


@pytest.mark.slow
def test_a_new_kind_is_one_module() -> None:
    """`kinds/sample.py` is put beside the others, and nothing else is changed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.operators.sampling"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr
