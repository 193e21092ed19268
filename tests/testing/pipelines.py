"""Pipelines with cases, loaded and run without a command."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.user_code import describe_here
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.testing.cases import CaseResult, CaseRunner

HEAD = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
"""
"""What every pipeline has."""

ORDERS = (
    HEAD
    + """\
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double, at: timestamp}, bad_records: skip}
  lines: {topics: [lines, more], format: raw}
steps:
  - {name: big, from: orders, where: amount >= 100}
  - {name: per_customer, from: big, key: customer, aggregate: {n: count(*), net: sum(amount), last: last(id)}}
sinks:
  out: {from: big, topic: big, key: customer, timestamp: at}
  totals: {from: per_customer, topic: totals, key: customer}
  copy: {from: lines, topic: copy, format: raw}
tests:
"""
)


def load(cases: str, pipeline: str = ORDERS) -> tuple[LoadedPipeline, Plan]:
    """A pipeline with these cases. Raises ConfigErrors."""
    loaded = parse_pipeline(pipeline + cases, "orders.yaml", {})
    if loaded.problems:
        raise ConfigErrors(loaded.problems)
    loaded = describe_here(loaded, {})
    return loaded, build_plan(loaded)


def run(cases: str, pipeline: str = ORDERS, parallelism: int | None = None) -> Mapping[str, CaseResult]:
    """Results by name."""
    loaded, plan = load(cases, pipeline)
    runner = CaseRunner(loaded, plan, parallelism)
    return {case.name: runner.run(case) for case in loaded.settings.tests}


def run_one(case: str, pipeline: str = ORDERS, parallelism: int | None = None) -> CaseResult:
    """The result of the only case; `case` are its keys besides the name, in braces."""
    return run(f"  - {{name: one, {case}}}\n", pipeline, parallelism)["one"]


def messages(result: CaseResult) -> list[str]:
    """What has failed, with the sink in front."""
    return [f"{one.sink}: {one.message}" if one.sink else one.message for one in result.failures]
