"""Every durable system call of a checkpoint and of a recovery goes wrong once: a real directory, real processes.

Killed before and after it, half written, EIO, ENOSPC, and the power cut; a fresh process judges what is left
(`tests/support/storage_life.py` says what is allowed). Planted bugs show that the judge sees.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys

import pytest

from tests.support import ptrace
from tests.support.crash_points import LIVES, POWER_CUT, WAYS

pytestmark = pytest.mark.slow

CASES_MIN = {"checkpoint": 25, "recovery": 10}
"""Durable calls that a life has at least; a tracer that misses calls must not look like a pass."""
ALIKE = {
    ("checkpoint", "eio-for-good"),
    ("checkpoint", "enospc"),
    ("recovery", "kill-half-written"),
    ("recovery", "eio"),
    ("recovery", "enospc-for-good"),
}
"""Each of these errors, and each life, has others."""


def strike(*arguments: str) -> tuple[int, str, int]:
    """Exit code, output, number of cases."""
    command = [sys.executable, "-m", "tests.support.crash_points", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    counted = re.search(r": (\d+) cases, (\d+) not in an allowed state\n$", done.stdout)
    assert counted is not None, done.stdout + done.stderr
    return done.returncode, done.stdout, int(counted[1])


@pytest.mark.parametrize(
    ("life", "way"),
    [
        pytest.param(life, way, marks=[pytest.mark.deep] if (life, way) in ALIKE else [])
        for life in LIVES
        for way in (*WAYS, POWER_CUT)
        if way != "kill-after"
    ],
)
def test_C30_whatever_goes_wrong_at_any_durable_call_leaves_an_allowed_state(life: str, way: str) -> None:
    """A kill after a call leaves what a kill before the next one leaves."""
    code, output, cases = strike(life, way)
    print(output)
    assert code == 0, "\n".join(
        line for line in output.splitlines() if not re.search(r"newest \d+, \d+ retained$", line)
    )
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
    code, output, _ = strike("checkpoint", way, bug)
    assert code == 1
    assert "NOT ALLOWED" in output
