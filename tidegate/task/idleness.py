"""Questions from downstream about whether a subtask is still idle, from arrival to answer (ADR 52)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tidegate.task.elements import StillIdle
from tidegate.task.outputs import EdgeOutput

Place = tuple[int, int]
"""An edge, and the position of a channel in it."""


class Questions:
    """The questions from all output channels of a subtask."""

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
        """Returns whether a question has arrived since the last call. If so, the inputs of the subtask must be asked
        (again).
        """
        new, self._new = self._new, False
        return new

    def confirm(self) -> None:
        """Records that nothing has arrived at the subtask since the last question."""
        self._confirmed.update(self._open)
        self._open.clear()

    def answer(self, is_idle: Callable[[int], bool]) -> bool:
        """Answers on the edges that are idle; on any other, rows are still leaving the subtask."""
        ready = [place for place in self._confirmed if is_idle(place[0])]
        for edge, position in ready:
            self._outputs[edge].channels[position].emit(StillIdle(self._confirmed.pop((edge, position))))
        return bool(ready)

    def _on_question(self, place: Place, question: int) -> None:
        self._open[place] = question
        self._new = True
