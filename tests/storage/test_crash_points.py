"""Every durable system call of a checkpoint and of a recovery goes wrong once: a real directory, real processes.

Killed before and after it, half written, EIO, ENOSPC, and the power cut; a fresh process judges what is left
(`tests/support/storage_life.py` says what is allowed). Planted bugs show that the judge sees.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from functools import cache

import pytest

from tests.support import ptrace
from tests.support.crash_points import LIVES, POWER_CUT, WAYS

pytestmark = pytest.mark.slow

CASES_MIN = {"checkpoint": 22, "recovery": 10}
"""Durable calls that a life has at least; a tracer that misses calls must not look like a pass."""
ALIKE = {
    ("checkpoint", "eio-for-good"),
    ("checkpoint", "enospc"),
    ("recovery", "kill-half-written"),
    ("recovery", "eio"),
    ("recovery", "enospc-for-good"),
}
"""Each of these errors, and each life, has others."""


STRUCK = {life: [way for way in (*WAYS, POWER_CUT) if way != "kill-after"] for life in LIVES}
"""A kill after a call leaves what a kill before the next one leaves."""


@cache
def strike(life: str, ways: str, *bugs: str) -> dict[str, tuple[str, int, int]]:
    """Output, number of cases, and how many are not in an allowed state, for each way; one process plays all."""
    command = [sys.executable, "-m", "tests.support.crash_points", life, ways, *bugs]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    parts = re.findall(
        rf"(.*?)^{life} (\S+): (\d+) cases, (\d+) not in an allowed state\n", done.stdout, re.DOTALL | re.MULTILINE
    )
    assert [way for _, way, *_ in parts] == ways.split(","), done.stdout + done.stderr
    assert done.returncode == any(int(bad) for *_, bad in parts)
    return {way: (output, int(cases), int(bad)) for output, way, cases, bad in parts}


@pytest.mark.parametrize(
    ("life", "way"),
    [
        pytest.param(life, way, marks=[pytest.mark.deep] if (life, way) in ALIKE else [])
        for life, ways in STRUCK.items()
        for way in ways
    ],
)
def test_C30_whatever_goes_wrong_at_any_durable_call_leaves_an_allowed_state(life: str, way: str) -> None:
    alone = (life, way) in ALIKE
    together = ",".join(one for one in STRUCK[life] if (life, one) not in ALIKE)
    output, cases, bad = strike(life, way if alone else together)[way]
    print(output)
    assert bad == 0, "\n".join(
        line for line in output.splitlines() if not re.search(r"newest \d+, \d+ retained$", line)
    )
    assert cases > 0
    if way in ("kill-before", "eio", "eio-for-good"):
        assert cases >= CASES_MIN[life]


def test_a_machine_whose_calls_are_not_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ptrace.TracingUnavailable, match="riscv64 are not known here"):
        ptrace.registers()


@pytest.mark.parametrize(
    ("way", "bug"),
    [(POWER_CUT, "no-content-sync"), (POWER_CUT, "no-folder-sync"), ("kill-half-written", "in-place")],
)
def test_a_planted_bug_is_seen(way: str, bug: str) -> None:
    output, _, bad = strike("checkpoint", way, bug)[way]
    assert bad > 0
    assert "NOT ALLOWED" in output
