"""Questions from downstream, whether a subtask is still idle, from their arrival to the answers (ADR 52)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tidegate.task.elements import StillIdle
from tidegate.task.outputs import EdgeOutput

Place = tuple[int, int]
"""An edge, and the position of a channel in it."""


class Questions:
    """Those of all channels that lead out of a subtask."""

    def __init__(self, outputs: Mapping[int, EdgeOutput]) -> None:
        self._outputs = outputs
        self._open: dict[Place, int] = {}
        self._confirmed: dict[Place, int] = {}
        self._new = False
        for edge, output in outputs.items():
            for position, channel in enumerate(output.channels):
                channel.listen(partial(self._on_question, (edge, position)))

    def __bool__(self) -> bool:
        return bool(self._open or self._confirmed)

    def take_new(self) -> bool:
        """Whether somebody has asked since the last call: what the subtask reads from is to be asked (again)."""
        new, self._new = self._new, False
        return new

    def confirm(self) -> None:
        """Nothing has come to the subtask since the last of them was asked."""
        self._confirmed.update(self._open)
        self._open.clear()

    def answer(self, is_idle: Callable[[int], bool]) -> bool:
        """Answer on the edges that are idle: on another one rows are still on their way out of the subtask."""
        ready = [place for place in self._confirmed if is_idle(place[0])]
        for edge, position in ready:
            self._outputs[edge].channels[position].emit(StillIdle(self._confirmed.pop((edge, position))))
        return bool(ready)

    def _on_question(self, place: Place, question: int) -> None:
        self._open[place] = question
        self._new = True
