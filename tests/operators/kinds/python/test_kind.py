"""Python steps that are called for each row, from the file to the plan: what is refused, and what state depends on."""

from __future__ import annotations

import pytest

from tests.support.user_code import describe_here
from tidegate.config.load import parse_pipeline
from tidegate.ids import OperatorName
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.spec import Requirement, Rest
from tidegate.plan.build import CheckedPipeline, check_pipeline
from tidegate.plan.state_fingerprints import FingerprintChanges, compare_fingerprints, derive_fingerprints

FILE = """\
version: 1
name: visited
kafka: {{bootstrap.servers: localhost:9092}}
checkpoints: {{directory: file:///tmp/visited}}
sources:
  clicks: {{topic: clicks, {source}}}
steps:
  - {{name: before, from: clicks, select: {{user: user, n: {n}, at: at}}}}
  - {{name: visits, from: before, {step}}}
sinks:
  out: {{from: {reads}, topic: out, key: user}}
"""
SCHEMA = "schema: {user: string, n: bigint, at: timestamp, more: bigint}"
CODE = """
from tidegate.python import List, Map, Step, Timer, Value

class Plain(Step):
    def process(self, row, out): pass

class Kept(Step):
    clicks = Value("bigint")
    def process(self, row, out): pass

class Timed(Kept):
    quiet = Timer("event-time")
    def on_timer(self, name, at, out): pass

class Clocked(Kept):
    quiet = Timer("clock")
    def on_timer(self, name, at, out): pass

class Lasting(Step):
    pages = Map("string", "bigint", ttl="1h")
    def process(self, row, out): pass

class Batch(Step):
    def process_batch(self, frame, out): pass

class Other:
    async def __call__(self, row): pass

def function(row): pass
"""
OUTPUT = "output: {user: string}"


def check(step: str, reads: str = "visits", source: str = SCHEMA, n: str = "n", code: str = CODE) -> CheckedPipeline:
    text = FILE.format(step=step, reads=reads, source=source, n=n)
    return check_pipeline(describe_here(parse_pipeline(text, "p.yaml", {}), {"visits.py": code}))


def operator_of(checked: CheckedPipeline) -> PythonOperator:
    assert checked.plan is not None, checked.problems
    (found,) = checked.plan.operators(PythonOperator)
    return found


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("python: visits:Kept", "`Kept` declares `clicks`, and the step has no key"),
        ("python: visits:Timed", "`Timed` declares `clicks`, and the step has no key"),
        ("python: visits:Kept, key: user, pure: true", "a step with `key` depends on more than its row"),
        ("python: visits:Plain, rows: same", "is for `per: batch`: a row may emit any number of rows"),
        ("python: visits:Plain, rows: left", "`left` is for `join`"),
        ("python: visits:Batch", "the class `Batch` has no `process`"),
        ("python: visits:Other", "`Other` is async"),
        ("python: visits:Plain, outputs: {late: {user: string}}", "the name `late` is reserved"),
    ],
)
def test_what_does_not_go_together_is_refused(step: str, message: str) -> None:
    (problem,) = check(f"{step}, {OUTPUT}").problems
    assert problem.message == message
    assert problem.remedy


def test_settings_are_plain_values() -> None:
    opening = CODE.replace("class Plain(Step):", "class Plain(Step):\n    def open(self, settings): pass")
    step = f"python: visits:Plain, with: {{a: 0.50, b: [1.5, {{c: true}}]}}, {OUTPUT}"
    settings = operator_of(check(step, code=opening)).settings
    assert settings == {"a": 0.5, "b": [1.5, {"c": True}]}
    assert type(settings["a"]) is float
    (problem,) = check(step.replace("0.50", ".nan"), code=opening).problems
    assert problem.message.endswith("is not finite")


def test_an_output_is_read_next_to_the_main_one_and_named_if_it_is_not() -> None:
    step = f"python: visits:Plain, {OUTPUT}, outputs: {{ended: {{user: string}}, more: {{user: string}}}}"
    checked = check(step, reads="[visits, visits.ended]")
    assert [one.message[:22] for one in checked.warnings] == ["is not read: its recor"]
    spec = operator_of(checked)
    assert [[*dict(spec.pruned_columns(name))] for name in ("", "ended", "more")] == [["user"], ["user"], []]
    (problem,) = check(step, reads="visits.endet").problems
    assert problem.message == "`visits` has no output `endet`"


@pytest.mark.parametrize(
    ("source", "step", "timed"),
    [
        (SCHEMA, "python: visits:Plain", False),
        (f"{SCHEMA}, event_time: at", "python: visits:Plain", True),
        (f"{SCHEMA}, event_time: at", "python: visits:function", True),
        (SCHEMA, "python: visits:Clocked, key: user", False),
        (SCHEMA, "python: visits:Timed, key: user", True),
        (SCHEMA, "python: visits:Lasting, key: user", True),
    ],
)
def test_event_time_is_required_where_it_is_declared_or_used(source: str, step: str, timed: bool) -> None:
    spec = operator_of(check(f"{step}, {OUTPUT}", source=source))
    assert (spec.timed, Requirement.EVENT_TIME in spec.requires()) == (timed, timed)


def test_rows_keep_their_record_unless_timers_emit() -> None:
    plain, timed = (operator_of(check(f"python: visits:{name}, key: user, {OUTPUT}")) for name in ("Kept", "Timed"))
    assert (plain.preserves_record(), plain.REST) == (True, Rest.FILTERED)
    assert (timed.preserves_record(), timed.REST) == (False, Rest.FOLDED)


def test_changes_of_a_table_need_a_pure_step_without_key() -> None:
    source = f"format: debezium, {SCHEMA}"
    (problem,) = check(f"python: visits:Plain, {OUTPUT}", source=source).problems
    assert problem.message.endswith("needs `pure: true`: the result of a delete has to be that of its insert")
    (problem,) = check(f"python: visits:Kept, key: user, {OUTPUT}", source=source).problems
    assert "needs retraction" in problem.message
    assert operator_of(check(f"python: visits:Plain, pure: true, {OUTPUT}", source=source)).pure


def changes(step: str, n: str = "n", code: str = CODE) -> FingerprintChanges:
    """How what the state of `Timed` means differs after a change."""
    plans = [check(f"python: visits:Timed, key: user, {OUTPUT}").plan, check(f"{step}, {OUTPUT}", n=n, code=code).plan]
    old, new = (derive_fingerprints(plan)[OperatorName("visits")] for plan in plans if plan is not None)
    return compare_fingerprints(old, new)


def test_state_depends_on_the_version_the_rows_and_what_is_declared() -> None:
    step = "python: visits:Timed, key: user"
    assert changes(step) == FingerprintChanges()
    opening = CODE.replace("class Timed(Kept):", "class Timed(Kept):\n    def open(self, settings): pass")
    assert changes(f"{step}, with: {{a: 1}}", code=opening) == FingerprintChanges()
    assert changes(step, n="n * 2").other == ("what arrives as `n` of clicks",)
    assert changes(step, code=CODE.replace("class Timed(Kept):", "class Timed(Kept):\n    version = 2")).other == (
        "the version of the step of clicks",
    )
    assert changes(step, code=CODE.replace('Timer("event-time")', 'Timer("clock")')).other[:1] == ("`quiet` of clicks",)
    assert changes(step, code=CODE.replace("    quiet", "    slow = Value('bigint')\n    quiet")).added == ("slow",)
    assert changes("python: visits:Timed, key: n").other == ("which rows arrive of clicks",)


def test_a_step_that_declares_nothing_asks_for_nothing() -> None:
    for step in ("python: visits:Plain, key: user", "python: visits:function"):
        checked = check(f"{step}, {OUTPUT}", source=f"{SCHEMA}, event_time: at")
        assert checked.plan is not None
        assert derive_fingerprints(checked.plan) == {}


def test_a_column_that_is_new_or_gone_is_no_change() -> None:
    old, new = (
        derive_fingerprints(plan)[OperatorName("visits")]
        for columns in ("user, n", "user, n, more")
        if (plan := check_columns(columns).plan) is not None
    )
    assert compare_fingerprints(old, new) == compare_fingerprints(new, old) == FingerprintChanges()


def check_columns(columns: str) -> CheckedPipeline:
    """A pipeline in which these columns arrive at the step."""
    select = "{" + ", ".join(f"{name}: {name}" for name in columns.split(", ")) + "}"
    text = FILE.format(step=f"python: visits:Kept, key: user, {OUTPUT}", reads="visits", source=SCHEMA, n="n")
    text = text.replace("select: {user: user, n: n, at: at}", f"select: {select}")
    return check_pipeline(describe_here(parse_pipeline(text, "p.yaml", {}), {"visits.py": CODE}))
