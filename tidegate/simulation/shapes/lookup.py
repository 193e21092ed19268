"""The function called by the shape with calls, as a user would write it. It runs on the virtual loop of its slot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from tidegate.simulation.loop import VirtualLoop

ANSWER_FACTOR: Final = 3
REFUSED_OF: Final = 11
"""About one record in this many is never answered, and about as many are answered at the second call."""
ANSWER_S: Final = 0.08


class Lookup:
    """The function's object; each subtask has one."""

    def __init__(self) -> None:
        self._asked: set[int] = set()

    async def __call__(self, row: Mapping[str, Any]) -> dict[str, int]:
        """Returns the answer after a random time drawn from the seed."""
        number = row["id"]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(loop.random.uniform(0.0, ANSWER_S))
        if is_refused(number) or (number % REFUSED_OF == 1 and number not in self._asked):
            self._asked.add(number)
            raise ConnectionError("nobody answers")
        return {"answer": number * ANSWER_FACTOR}


def is_refused(number: int) -> bool:
    """Returns whether a record is never answered."""
    return number % REFUSED_OF == 0
