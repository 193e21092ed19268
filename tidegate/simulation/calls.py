"""Calls of asynchronous steps: the real caller with its attempts, on a virtual loop instead of a thread."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from tidegate.operators.calls.attempts import CallPolicy
from tidegate.operators.calls.caller import Asked, CallTarget, ThreadCaller
from tidegate.simulation.loop import VirtualLoop


class SimCaller(ThreadCaller):
    """A caller on a virtual loop. Calls in progress never end if their process dies."""

    def __init__(
        self, name: str, target: CallTarget, policy: CallPolicy, wake: Callable[[], None], loop: VirtualLoop
    ) -> None:
        super().__init__(name, target, policy, wake)
        self._virtual = loop

    @override
    def submit(self, asked: Asked) -> None:
        if self._loop is None:
            self._loop = self._virtual
            self._virtual.create_task(self._serve())
        self._virtual.call_soon(self._begin, asked)

    @override
    def close(self) -> None:
        if self._loop is not None:
            self._virtual.call_soon(self._request_stop)
