"""Cases with steps that call something outside: the case waits for the answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.testing.pipelines import messages, run_one
from tidegate.operators.calls import caller

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


class Unmade(Named):
    def __init__(self) -> None:
        raise KeyError("REDIS_URL")


class Unopened(Named):
    async def open(self) -> None:
        raise ConnectionRefusedError("no redis")

    async def close(self) -> None:
        raise AttributeError("session")


class Hanging(Named):
    async def open(self) -> None:
        await asyncio.Event().wait()


class Unclosed(Named):
    async def close(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Unmade", f"{__name__}:Unmade cannot be instantiated: KeyError: 'REDIS_URL', at test_calls.py:49 in __init__"),
        ("Unopened", "`open` failed: ConnectionRefusedError: no redis, at test_calls.py:54 in open"),
        ("Hanging", "`open` has not ended within 0.01 s"),
    ],
)
def test_a_case_whose_class_cannot_be_made_or_opened_fails_for_that_reason(
    name: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ended with a traceback, of what `close` had raised, and the other cases did not run."""
    monkeypatch.setattr(caller, "OPEN_TIMEOUT_S", 0.01)
    result = run_one(
        "given: {orders: [{value: {id: 1}}]}, expect: {out: []}", PIPELINE.replace("FUNCTION", f"{__name__}:{name}")
    )
    assert messages(result) == [f"the pipeline fails: {reason}"]


def test_a_class_that_does_not_close_is_left_alone_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(caller, "CLOSE_TIMEOUT_S", 0.01)
    result = run_one(
        "given: {orders: [{value: {id: 1}}]}, expect: {out: [{value: {id: 1, name: of 1}}]}",
        PIPELINE.replace("FUNCTION", f"{__name__}:Unclosed"),
    )
    assert result.passed, messages(result)
    assert "`close` of named[0] has not ended within 0.01 s" in caplog.messages


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
