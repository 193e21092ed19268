"""Steps with named inputs, by a kind with two ports that is no part of the product."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.tidy.tree import ROOT


@pytest.mark.slow
def test_a_kind_with_two_inputs_is_one_module() -> None:
    """`tests/operators/kinds/cogroup.py` is put next to the kinds of the product: from the file to its pairs."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.plan.named_inputs"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr
