"""User code that changes between two attempts: what is noted, what needs a directive, and what state goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testing.changed_pipeline import Life
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.upgrade import UpgradeOutcome
from tidegate.user_code.modules import install_modules

TEXT = """\
parallelism: 2
sources:
  clicks: {topic: clicks, schema: {user: string}}
steps:
  - {name: visits, from: clicks, key: user, python: "visits:Visits", output: {user: string, n: bigint}STATE}
sinks:
  out: {from: visits, topic: out, key: user}
"""
CODE = """\
from tidegate.python import Step, Value

class Visits(Step):
    clicks = Value("int", default=0)

    def process(self, row, out):
        self.clicks.set(self.clicks.get() + 1)
        out.emit(user=row["user"], n=self.clicks.get())
"""
CLICKS = [{"user": f"u{i % 3}"} for i in range(9)]


TIMED = """\
parallelism: 2
sources:
  clicks: {topic: clicks, schema: {user: string, at: timestamp}, event_time: at, watermark: {delay: 0s}}
steps:
  - {name: visits, from: clicks, key: user, python: "visits:Visits", output: {user: string, timer: string}STATE}
sinks:
  out: {from: visits, topic: out, key: user}
"""
TIMERS = """\
from datetime import timedelta
from tidegate.python import Step, Timer, Value

class Visits(Step):
    seen = Value("timestamp")
    soon = Timer("event-time")
    late = Timer("event-time")

    def process(self, row, out):
        self.seen.set(row.time)
        self.soon.set(row.time + timedelta(minutes=1))
        self.late.set(row.time + timedelta(minutes=2))

    def on_timer(self, name, at, out):
        out.emit(user=self.key[0], timer=name)
"""
ONE_TIMER = TIMERS.replace('    late = Timer("event-time")\n', "").replace(
    "        self.late.set(row.time + timedelta(minutes=2))\n", ""
)


@pytest.fixture(scope="module", autouse=True)
def _nothing_installed() -> Iterator[None]:
    yield
    install_modules({})


@pytest.fixture(scope="module")
def begun() -> Life:
    """A checkpoint after three clicks of each user."""
    life = Life(text(), modules={"visits.py": CODE})
    life.produce("clicks", *CLICKS)
    return life.checkpoint()


def text(state: str = "") -> str:
    return TEXT.replace("STATE", f", {state}" if state else "")


def went_on(life: Life) -> object:
    """What the step counts for one more click of u0."""
    life.produce("clicks", {"user": "u0"})
    return life.checkpoint().output("out")[-1]["n"]


def changed(old: str, new: str) -> dict[str, str]:
    assert old in CODE, old
    return {"visits.py": CODE.replace(old, new)}


def test_changed_code_is_noted_and_goes_on_with_its_state(begun: Life) -> None:
    modules = changed("n=self.clicks.get()", "n=self.clicks.get() * 100")
    report = begun.check(text(), modules=modules)
    assert report.fits
    (change,) = report.upgrade.code
    assert str(change).startswith("the code of visits has changed since checkpoint 1: it was visits:Visits ")
    life = Life(text(), begun, modules=modules)
    assert life.restore.upgrade.code == (change,)
    assert went_on(life) == 400
    assert Life(text(), life, modules=modules).restore.upgrade.code == (), "it is noted once"


def test_comments_and_layout_are_no_change(begun: Life) -> None:
    assert begun.check(text(), modules=changed("    def process", "    # count\n\n    def process")).upgrade.code == ()


def test_an_added_value_begins_with_its_default_for_keys_that_are_there(begun: Life) -> None:
    more = changed("default=0)\n", 'default=0)\n    bonus = Value("bigint", default=40)\n')
    more["visits.py"] = more["visits.py"].replace("n=self.clicks.get()", "n=self.clicks.get() + self.bonus.get()")
    report = begun.check(text(), modules=more)
    assert report.fits, report.refusals
    (step,) = [one for one in report.upgrade.steps if one.name == "visits"]
    assert step.remarks == ("bonus begins at checkpoint 1",)
    life = Life(text(), begun, modules=more)
    assert went_on(life) == 44
    assert went_on(Life(text(), life, modules=more)) == 45


def test_a_wider_type_needs_no_directive(begun: Life) -> None:
    wider = changed('Value("int"', 'Value("bigint"')
    report = begun.check(text(), modules=wider)
    assert report.fits
    assert [state.reason for step in report.upgrade.steps for state in step.states] == ["value was int and is bigint"]
    assert went_on(Life(text(), begun, modules=wider)) == 4


def test_a_value_that_is_gone_is_given_up_by_name(begun: Life) -> None:
    two = changed("default=0)\n", 'default=0)\n    bonus = Value("bigint", default=40)\n')
    life = Life(text(), begun, modules=two)
    assert went_on(life) == 4
    with pytest.raises(RestoreRefused, match=r"no longer has `bonus`.*`state: \{drop: \[bonus\]\}`"):
        Life(text(), life, modules={"visits.py": CODE})
    after = Life(text("state: {drop: [bonus]}"), life, modules={"visits.py": CODE})
    assert went_on(after) == 5
    assert {one.state for one in after.state.retained[-1].checkpoint.states} == {"clicks"}


@pytest.mark.parametrize(("state", "n"), [("state: keep", 4), ("state: reset", 1)])
def test_a_raised_version_asks_what_becomes_of_the_state(begun: Life, state: str, n: int) -> None:
    raised = changed("    clicks =", "    version = 2\n    clicks =")
    report = begun.check(text(), modules=raised)
    (refusal,) = report.refusals
    assert "made by another definition; what has changed: the version of the step" in refusal.message
    assert sorted(refusal.choices) == ["keep", "reset"]
    with pytest.raises(RestoreRefused, match="the version of the step"):
        Life(text(), begun, modules=raised)
    assert went_on(Life(text(state), begun, modules=raised)) == n


def test_a_renamed_step_keeps_the_state_and_the_record_of_its_code(begun: Life) -> None:
    renamed = text("was: visits").replace("name: visits", "name: counted").replace("from: visits", "from: counted")
    life = Life(renamed, begun, modules=changed("+ 1", "+ 2"))
    assert {str(one.name): one.outcome for one in life.restore.upgrade.steps}["counted"] is UpgradeOutcome.RENAMED
    assert [str(one.name) for one in life.restore.upgrade.code] == ["counted"]
    assert went_on(life) == 5


def click(user: str, time: str) -> dict[str, str]:
    return {"user": user, "at": f"2026-11-01T{time}Z"}


def test_a_timer_that_is_gone_is_given_up_by_name_and_never_fires() -> None:
    life = Life(TIMED.replace("STATE", ""), modules={"visits.py": TIMERS})
    life.produce("clicks", click("a", "10:00:00"))
    life.checkpoint()
    with pytest.raises(RestoreRefused, match=r"no longer has `late`.*`state: \{drop: \[late\]\}`"):
        Life(TIMED.replace("STATE", ""), life, modules={"visits.py": ONE_TIMER})
    after = Life(TIMED.replace("STATE", ", state: {drop: [late]}"), life, modules={"visits.py": ONE_TIMER})
    after.produce("clicks", click("b", "11:00:00"))
    assert after.checkpoint().output("out") == [{"user": "a", "timer": "soon"}]


def test_a_timer_that_is_added_fires_for_keys_that_are_there() -> None:
    life = Life(TIMED.replace("STATE", ""), modules={"visits.py": ONE_TIMER})
    life.produce("clicks", click("a", "10:00:00"))
    after = Life(TIMED.replace("STATE", ""), life.checkpoint(), modules={"visits.py": TIMERS})
    after.produce("clicks", click("a", "10:00:30"), click("b", "11:00:00"))
    assert after.checkpoint().output("out") == [{"user": "a", "timer": "soon"}, {"user": "a", "timer": "late"}]


def test_the_first_timer_may_be_added_and_the_last_one_needs_a_reset() -> None:
    none = ONE_TIMER.replace('    soon = Timer("event-time")\n', "")
    none = none.replace("        self.soon.set(row.time + timedelta(minutes=1))\n", "").split("    def on_timer")[0]
    life = Life(TIMED.replace("STATE", ""), modules={"visits.py": none})
    life.produce("clicks", click("a", "10:00:00"))
    after = Life(TIMED.replace("STATE", ""), life.checkpoint(), modules={"visits.py": ONE_TIMER})
    after.produce("clicks", click("a", "10:00:30"), click("b", "11:00:00"))
    assert after.checkpoint().output("out") == [{"user": "a", "timer": "soon"}]
    for state in ("", ", state: {drop: [soon]}", ", state: keep"):
        with pytest.raises(RestoreRefused, match="state: reset"):
            Life(TIMED.replace("STATE", state), after, modules={"visits.py": none})
    reset = Life(TIMED.replace("STATE", ", state: reset"), after, modules={"visits.py": none})
    assert not reset.restore.upgrade.refusals
