"""Asynchronous steps without threads: a test answers the calls, in whatever order it likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from tests.operators.driven import Collected
from tidegate.datatypes import BIGINT, STRING
from tidegate.expressions.bounds import BATCH_BYTES_MAX
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.ids import OperatorName
from tidegate.operators.async_queue import CallFailure, PendingCall
from tidegate.operators.calls.caller import Asked, CallPolicy, CallTarget
from tidegate.operators.calls.runtime import CallRuntime
from tidegate.operators.kinds.async_calls import AsyncOperator
from tidegate.operators.spec import Columns, Slot
from tidegate.state.backends import choose_backend
from tidegate.user_code.describe import CodeDescription

POLICY = CallPolicy(timeout_ms=1000, retries=0, backoff_ms=10, budget_ms=1000)
INPUT: Columns = (("k", BIGINT), ("n", BIGINT))


async def resolve(row: dict[str, Any]) -> dict[str, Any] | None:
    """What the steps of these tests call; a manual caller never does."""
    return {"text": f"of {row['n']}"}


class ManualCaller:
    """Keeps what is asked until the test answers."""

    def __init__(self, name: str, target: CallTarget, policy: CallPolicy, wake: Callable[[], None]) -> None:
        self.asked: dict[int, PendingCall] = {}
        """By the row's `n`, in the order in which they were asked."""
        self.order: list[int] = []
        self.closed = False
        self._done: list[PendingCall] = []
        self._wake = wake

    def submit(self, asked: Asked) -> None:
        for call, request in asked:
            assert isinstance(request, dict)
            number = request["n"]
            assert number not in self.asked, "a row is asked for once"
            self.asked[number] = call
            self.order.append(number)

    def take(self) -> list[PendingCall]:
        taken, self._done = self._done, []
        return taken

    def close(self) -> None:
        self.closed = True

    def answer(self, *numbers: int, answer: Callable[[int], object] = lambda number: {"text": f"of {number}"}) -> None:
        for number in numbers:
            call = self.asked.pop(number)
            call.answer = answer(number)
            self._done.append(call)
        self._wake()

    def fail(self, number: int, kind: FailureKind = FailureKind.CALL_FAILED) -> None:
        call = self.asked.pop(number)
        call.failure = CallFailure(kind, "it is down")
        self._done.append(call)


def spec_of(*, ordered: bool = True, capacity: int = 100, output: Columns | None = None) -> AsyncOperator:
    """Calls `resolve` with `k` and `n`."""
    answers: Columns = (("text", STRING),)
    return AsyncOperator(
        name=OperatorName("look"),
        answers=answers,
        output=(*INPUT, *answers) if output is None else output,
        ordered=ordered,
        capacity=capacity,
        policy=POLICY,
        bad_records=BadRecordPolicy.SKIP,
        code=CodeDescription(reference="tests.operators.calls.manual:resolve", digest=""),
        input=INPUT,
    )


class ManualStep:
    """One subtask of such a step, and all that came out of it."""

    def __init__(
        self,
        *,
        ordered: bool = True,
        capacity: int = 100,
        subtask: int = 0,
        parallelism: int = 1,
        bytes_max: int = BATCH_BYTES_MAX,
        **more: Any,
    ) -> None:
        state = choose_backend("memory", 1)
        slot = Slot(128, state, subtask=subtask, parallelism=parallelism, open_caller=self._open, bytes_max=bytes_max)
        self.out = Collected()
        runtime = spec_of(ordered=ordered, capacity=capacity, **more).open(slot)
        assert isinstance(runtime, CallRuntime)
        self.runtime = runtime

    def _open(self, name: str, target: CallTarget, policy: CallPolicy, wake: Callable[[], None]) -> ManualCaller:
        self.caller = ManualCaller(name, target, policy, wake)
        return self.caller

    def process(self, *numbers: int) -> None:
        """Rows of key 0 with these numbers; the offset is the number, too."""
        self.runtime.process(0, rows_of(numbers), self.out)

    def poll(self, rows_max: int = 1000) -> bool:
        return self.runtime.poll(rows_max, self.out)

    @property
    def left(self) -> list[object]:
        """Numbers of rows, and what came out between them."""
        found: list[object] = []
        for one in self.out.order:
            found += one["n"].to_list() if isinstance(one, pl.DataFrame) else [one]
        return found


def rows_of(numbers: Sequence[int]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "k": [0] * len(numbers),
            "n": list(numbers),
            "__tidegate_partition": [0] * len(numbers),
            "__tidegate_offset": list(numbers),
        },
        schema={"k": pl.Int64, "n": pl.Int64, "__tidegate_partition": pl.Int32, "__tidegate_offset": pl.Int64},
    )
