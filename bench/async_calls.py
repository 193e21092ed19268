"""CPU of an asynchronous step compared with a raw asyncio loop that makes the same calls.

    python bench/async_calls.py [ROWS]

Both ask the same HTTP server, in a process of its own, for the same rows, 100 at a time; then a function that answers
at once. The raw loop is what somebody would write by hand: a semaphore and a task a row, without timeouts, retries,
order or checkpoints. Prints the CPU time of the asking process for each row, and the ratio.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import polars as pl

from tests.operators.driven import Collected
from tests.support.lookup_server import LookupServer
from tidegate.datatypes import BIGINT, DOUBLE
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.calls.caller import CallPolicy
from tidegate.operators.kinds.async_calls import AsyncOperator
from tidegate.operators.kinds.http_calls import HttpOperator, parse_url
from tidegate.operators.spec import Slot, StepOperator
from tidegate.state.backends import choose_backend
from tidegate.user_code.describe import CodeDescription

CAPACITY = 100
INPUT = (("k", BIGINT), ("n", BIGINT))


async def at_once(row: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001  # what the step calls
    """A function without any waiting: all of the CPU is the machinery's."""
    return {"price": 1.0}


def common(*, ordered: bool) -> dict[str, Any]:
    """What both kinds of steps have."""
    return {
        "name": OperatorName("look"),
        "answers": (("price", DOUBLE),),
        "output": (*INPUT, ("price", DOUBLE)),
        "ordered": ordered,
        "capacity": CAPACITY,
        "policy": CallPolicy(5000, 3, 100, 20_000),
        "bad_records": BadRecordPolicy.FAIL,
        "input": INPUT,
    }


def run_step(spec: StepOperator, rows: int) -> float:
    """CPU seconds until every row has left; the loop waits as a slot's does."""
    woken = threading.Event()
    runtime = spec.open(Slot(128, choose_backend("memory", 1), wake=woken.set))
    frame = pl.DataFrame(
        {"k": [0] * rows, "n": list(range(rows)), "__tidegate_partition": [0] * rows, "__tidegate_offset": range(rows)}
    )
    out, left, taken = Collected(), 0, 0
    started = time.process_time()
    while left < rows:
        room = runtime.room
        if room and taken < rows:
            runtime.process(0, frame.slice(taken, room), out)
            taken = min(rows, taken + room)
        if runtime.poll(1000, out):
            left = sum(batch.height for batch in out.batches)
        else:
            woken.wait(0.1)
            woken.clear()
    spent = time.process_time() - started
    runtime.close()
    assert not out.failures
    return spent


def run_raw(ask: Callable[[aiohttp.ClientSession, int], Awaitable[object]], rows: int) -> float:
    """The same by hand."""

    async def serve() -> float:
        slots = asyncio.Semaphore(CAPACITY)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CAPACITY)) as session:

            async def one(row: int) -> object:
                async with slots:
                    return await ask(session, row)

            started = time.process_time()
            await asyncio.gather(*(one(row) for row in range(rows)))
            return time.process_time() - started

    return asyncio.run(serve())


def main() -> None:
    """See the module."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    server = LookupServer()
    url = f"{server.url}/price/"

    async def get(session: aiohttp.ClientSession, row: int) -> object:
        async with session.get(f"{url}{row}") as response:
            return (await response.json())["price"]

    async def nothing(_: aiohttp.ClientSession, row: int) -> object:
        return (await at_once({"k": 0, "n": row}))["price"]

    try:
        for ordered in (True, False):
            http = HttpOperator(
                url=parse_url(url + "{n}"), headers={}, cache_ms=0, missing_fails=False, **common(ordered=ordered)
            )
            own = AsyncOperator(
                code=CodeDescription(reference=f"{Path(__file__).stem}:at_once", digest=""), **common(ordered=ordered)
            )
            for name, spec, ask in (("http", http, get), ("at once", own, nothing)):
                step = min(run_step(spec, rows) for _ in range(3))
                raw = min(run_raw(ask, rows) for _ in range(3))
                order = "ordered" if ordered else "unordered"
                print(
                    f"{name:8} {order:10} step {1e6 * step / rows:6.1f} us/row  raw {1e6 * raw / rows:6.1f} us/row  "
                    f"ratio {step / raw:.2f}"
                )
    finally:
        server.kill()


if __name__ == "__main__":
    main()
