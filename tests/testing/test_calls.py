"""Cases with steps that call something outside: the case waits for the answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.testing.pipelines import messages, run_one

PIPELINE = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: bigint}, bad_records: skip}
steps:
  - {name: named, from: orders, async: "FUNCTION", output: {name: string}, retries: 1, backoff: 1ms}
sinks:
  out: {from: named, topic: out, key: id}
tests:
"""
LIFE: list[str] = []


async def name_of(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] < 0:
        raise ValueError("nobody has that one")
    return {"name": f"of {row['id']}"}


class Named:
    async def open(self) -> None:
        LIFE.append("open")

    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return await name_of(row)

    async def close(self) -> None:
        LIFE.append("close")


@pytest.mark.parametrize("name", ["name_of", "Named"])
def test_a_case_waits_for_answers_and_counts_what_has_none(name: str) -> None:
    LIFE.clear()
    result = run_one(
        "given: {orders: [{value: {id: 1}}, {value: {id: -1}}, {value: {id: 2}}]}, "
        "expect: {out: [{value: {id: 1, name: of 1}}, {value: {id: 2, name: of 2}}]}, bad_records: 1",
        PIPELINE.replace("FUNCTION", f"{__name__}:{name}"),
    )
    assert result.passed, messages(result)
    assert LIFE.count("open") == LIFE.count("close")
    assert bool(LIFE) == (name == "Named")
