"""Run in a process of its own: a pipeline with the kind of `kinds/sample.py`, from the file to its rows."""

from __future__ import annotations

import msgspec
import polars as pl

FILE = """\
version: 1
name: sampled
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/sampled}
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double}}
steps:
  - {name: few, from: orders, sample: 3}
  - {name: totals, from: few, key: customer, aggregate: {n: count(*)}}
sinks:
  out: {from: totals, topic: out, key: customer}
"""


def main() -> None:
    """Says `ok`, or raises."""
    import tests.operators.more_kinds  # noqa: F401  # before anything has looked which kinds there are
    from tests.operators.driven import drive
    from tidegate.config.json_schema import derive_json_schema
    from tidegate.config.load import parse_pipeline
    from tidegate.operators.spec import StepOperator
    from tidegate.plan.build import build_plan, check_pipeline
    from tidegate.plan.explain import derive_explanation, render_explanation
    from tidegate.plan.graph import Plan
    from tidegate.plan.growth import derive_batch_limits
    from tidegate.plan.meaning import derive_meanings

    loaded = parse_pipeline(FILE, "sampled.yaml", {})
    plan = build_plan(loaded)
    again = msgspec.json.decode(msgspec.json.encode(plan), type=Plan)
    assert again == plan
    [spec] = [node.operator for node in again.nodes if node.operator.kind == "sample"]
    assert isinstance(spec, StepOperator)
    assert "every 3th record" in render_explanation(derive_explanation(loaded, plan))
    assert derive_batch_limits(plan, plan.vertices[0]).rows > 1
    assert derive_meanings(plan)
    assert "sample" in str(derive_json_schema())
    driven = drive(spec)
    first, second = (driven.process(pl.DataFrame({"id": list(range(start, start + 5))})) for start in (0, 5))
    assert first is not None
    assert second is not None
    assert [*first["id"], *second["id"]] == [0, 3, 6, 9]
    refused = check_pipeline(parse_pipeline(FILE.replace("sample: 3", "sample: 3, where: id > 1"), "p.yaml", {}))
    assert "does one thing" in str(refused.problems)
    print("ok")


main()
