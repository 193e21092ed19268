"""External calls of a case, made immediately: the case waits for the answers, which come in the order of the rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from typing_extensions import override

from tidegate.operators.async_queue import CallFailure, PendingCall
from tidegate.operators.calls.attempts import CallPolicy, attempt_call
from tidegate.operators.calls.caller import Asked, Caller, CallTarget, close_target, open_target


class PromptCaller(Caller):
    """A caller that answers before `take` returns.

    Limits and timeouts are those of the step, in real time; pauses are minimal.
    """

    def __init__(self, name: str, target: CallTarget, policy: CallPolicy, wake: Callable[[], None]) -> None:  # noqa: ARG002  # same signature as ThreadCaller
        self._name = name
        self._target = target
        self._policy = policy
        self._asked: list[tuple[PendingCall, object]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @override
    def submit(self, asked: Asked) -> None:
        self._asked += asked

    @override
    def take(self) -> list[PendingCall]:
        """Answers all submitted calls and returns them. Raises CallsFailed."""
        asked, self._asked = self._asked, []
        if not asked:
            return []
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.run_until_complete(open_target(self._target))
        self._loop.run_until_complete(self._answer(asked))
        return [call for call, _ in asked]

    @override
    def close(self) -> None:
        if self._loop is not None:
            self._loop.run_until_complete(close_target(self._target, self._name))
            self._loop.close()
            self._loop = None

    async def _answer(self, asked: Asked) -> None:
        await asyncio.gather(*(self._call(call, request) for call, request in asked))

    async def _call(self, call: PendingCall, request: object) -> None:
        answer = await attempt_call(lambda: self._target.ask(request), self._policy, lambda: 0.0)
        if isinstance(answer, CallFailure):
            call.failure = answer
        else:
            call.answer = answer
