"""What the shape with calls asks: a function as a user would write one, on the virtual loop of its slot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from tidegate.simulation.loop import VirtualLoop

ANSWER_FACTOR: Final = 3
REFUSED_OF: Final = 11
"""About one record of so many nobody ever answers; about as many are answered when they are asked for again."""
ANSWER_S: Final = 0.08


class Lookup:
    """One per subtask."""

    def __init__(self) -> None:
        self._asked: set[int] = set()

    async def __call__(self, row: Mapping[str, Any]) -> dict[str, int]:
        """The answer, after a time that the seed draws."""
        number = row["id"]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(loop.random.uniform(0.0, ANSWER_S))
        if is_refused(number) or (number % REFUSED_OF == 1 and number not in self._asked):
            self._asked.add(number)
            raise ConnectionError("nobody answers")
        return {"answer": number * ANSWER_FACTOR}


def is_refused(number: int) -> bool:
    """Whether nobody ever answers about a record."""
    return number % REFUSED_OF == 0
