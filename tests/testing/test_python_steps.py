"""Cases with steps in Python: a restart in the middle of a case takes what is not in declared state."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support.user_code import describe_here
from tests.testing.pipelines import HEAD, messages
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import parse_pipeline
from tidegate.plan.build import build_plan
from tidegate.testing.cases import CaseResult, CaseRunner

PIPELINE = (
    HEAD
    + """\
sources:
  clicks: {topic: clicks, schema: {user: string}, bad_records: skip}
steps:
  - {name: visits, from: clicks, key: user, python: visits:STEP, output: {user: string, clicks: bigint}}
sinks:
  out: {from: visits, topic: out, key: user}
tests:
  - name: one
    now: 2026-03-01T00:00:00Z
    parallelism: SLOTS
    given: {clicks: [{value: {user: ann}}, {value: {user: bo}}, {value: {user: ann}}, {value: {user: ann}}]}
    expect: {out: EXPECTED}
"""
)
VISITS = """\
from tidegate.python import Step, Value

SEEN = {}

class Declared(Step):
    clicks = Value("bigint", default=0)

    def process(self, row, out):
        self.clicks.set(self.clicks.get() + 1)
        out.emit(user=row["user"], clicks=self.clicks.get())

class InAttribute(Step):
    def open(self, settings):
        self.seen = {}

    def process(self, row, out):
        self.seen[row["user"]] = self.seen.get(row["user"], 0) + 1
        out.emit(user=row["user"], clicks=self.seen[row["user"]])

def in_module(row):
    SEEN[row["user"]] = SEEN.get(row["user"], 0) + 1
    return {"user": row["user"], "clicks": SEEN[row["user"]]}

class Clock(Step):
    def process(self, row, out):
        out.emit(user=row["user"], clicks=int(self.now().timestamp()))

class Failing(Step):
    def process(self, row, out):
        raise ValueError("nobody")
"""
COUNTED = "[{value: {user: ann, clicks: 1}}, {value: {user: bo, clicks: 1}}, {value: {user: ann, clicks: 2}}, "
COUNTED += "{value: {user: ann, clicks: 3}}]"


def run(step: str, expected: str = COUNTED, slots: int = 1) -> CaseResult:
    """The result of the case with this step."""
    text = PIPELINE.replace("STEP", step).replace("EXPECTED", expected).replace("SLOTS", str(slots))
    loaded = describe_here(parse_pipeline(text, "visits.yaml", {}), {"visits.py": VISITS})
    if loaded.problems:
        raise ConfigErrors(loaded.problems)
    return CaseRunner(loaded, build_plan(loaded)).run(loaded.settings.tests[0])


@pytest.mark.parametrize("slots", [1, 3])
def test_declared_state_survives_the_restart_of_a_case(slots: int) -> None:
    assert messages(run("Declared", slots=slots)) == []


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("step", ["InAttribute", "in_module"])
def test_state_outside_of_it_fails_the_case_and_the_message_names_the_step(step: str, slots: int) -> None:
    (message,) = messages(run(step, slots=slots))
    assert message == (
        "out: a restart in the middle of the case changes the result: - without the restart, + with it; the code of "
        "visits must keep its state in a Value, List, Map or Timer"
    )


def test_what_a_module_keeps_does_not_reach_the_next_case() -> None:
    for _ in range(2):
        assert [one["value"]["clicks"] for one in run("in_module").output["out"]] == [1, 1, 2, 3]


def test_the_clock_of_a_step_is_that_of_the_case() -> None:
    at_s = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp())
    assert messages(run("Clock", COUNTED.translate({ord(digit): str(at_s) for digit in "123"}))) == []


def test_a_row_that_raises_is_counted_with_the_last_line_of_user_code() -> None:
    (message,) = messages(run("Failing", "[]"))
    assert message.startswith(
        "bad records: 4 (PYTHON_FAILED: 4), expected 0\nstep visits: record of clicks, partition 0"
    )
    assert "PYTHON_FAILED: ValueError: nobody, at visits.py:30 in process" in message
