"""What the plan has of Python steps: secrets of `with`, and event time behind batches."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.user_code import describe_here
from tidegate.config.load import parse_pipeline
from tidegate.operators.kinds.python import PythonOperator
from tidegate.plan.build import CheckedPipeline, check_pipeline
from tidegate.plan.explain import derive_explanation, render_explanation

FILE = """\
version: 1
name: scored
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/scored}
sources:
  orders: {topic: orders, schema: {id: bigint, at: timestamp}}
steps:
"""
CODE = """
from tidegate.python import Step

class Scored(Step):
    def open(self, settings):
        pass

    def process_batch(self, frame, out):
        pass

def score(frame):
    return frame
"""
WINDOW = "key: id, window: {tumbling: 1m}, aggregate: {n: count(*)}"


def _check(*steps: str, last: str = "last") -> CheckedPipeline:
    lines = "".join(f"  - {{{step}}}\n" for step in steps)
    loaded = parse_pipeline(f"{FILE}{lines}sinks: {{out: {{from: {last}, topic: out, key: id}}}}\n", "p.yaml", {})
    return check_pipeline(describe_here(loaded, {"model.py": CODE}))


def test_a_secret_reaches_the_code_and_is_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret-token\n")
    text = f"""{FILE}
  - name: last
    from: orders
    python: model:Scored
    per: batch
    with: {{token: "${{file:{tmp_path}/token}}", api_token: an-0ther-secret, url: http://here}}
    output: {{id: bigint}}
sinks: {{out: {{from: last, topic: out, key: id}}}}
"""
    loaded = describe_here(parse_pipeline(text, "p.yaml", {}), {"model.py": CODE})
    assert {"s3cret-token", "an-0ther-secret"} <= loaded.secrets.values, "what the log masks"
    plan = check_pipeline(loaded).plan
    assert plan is not None
    (operator,) = (node.operator for node in plan.nodes if isinstance(node.operator, PythonOperator))
    assert operator.settings == {"token": "s3cret-token", "api_token": "an-0ther-secret", "url": "http://here"}
    explained = derive_explanation(loaded, plan)
    shown = f"{explained} {render_explanation(explained)} {loaded.settings}"
    assert "token" in shown
    assert "s3cret-token" not in shown
    assert "an-0ther-secret" not in shown


@pytest.mark.parametrize(
    "steps",
    [
        ("name: a, from: orders, python: model:score, per: batch, rows: same, output: {id: bigint}",),
        (
            "name: b, from: orders, python: model:score, per: batch, output: {id: bigint, at: timestamp}",
            "name: a, from: b, event_time: at",
        ),
    ],
)
def test_a_window_behind_batches_has_the_event_time_of_their_rows_or_of_a_step(steps: tuple[str, ...]) -> None:
    checked = _check(*steps, f"name: last, from: a, {WINDOW}")
    assert not checked.problems
    assert checked.plan is not None


def test_a_window_behind_new_rows_of_a_batch_is_refused_however_far_behind() -> None:
    batch = "name: a, from: orders, python: model:score, per: batch, output: {id: bigint}"
    checked = _check(batch, "name: b, from: a, where: id > 0", f"name: last, from: b, {WINDOW}")
    (problem,) = checked.problems
    assert problem.message == "needs event time, and the results of `a` are new rows, which have none"
    assert _check(batch, "name: last, from: a, key: id, aggregate: {n: count(*)}").plan is not None


def test_settings_are_no_part_of_what_state_depends_on() -> None:
    one, other = (
        _check(f"name: last, from: orders, python: model:Scored, per: batch, with: {{n: {n}}}, output: {{id: bigint}}")
        for n in (1, 2)
    )
    assert one.plan is not None
    assert other.plan is not None
    assert msgspec.json.encode(one.plan) != msgspec.json.encode(other.plan)
