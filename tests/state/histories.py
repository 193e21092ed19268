"""Random lives of a state: checkpoints that overlap, complete or are given up, and notices that come late or never."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.state.driving import Files, content, put
from tidegate.ids import CheckpointId
from tidegate.state.base import KeyedState


def play_history(open_state: Callable[[int], KeyedState[str]], seed: int, retained: int, steps: int) -> None:
    """Files that no retained checkpoint lists are deleted at once. Whatever completes has all its files, and restores
    what was there at its barrier.
    """
    print(f"seed {seed}, retained {retained}")
    draw = random.Random(f"{seed}/{retained}")
    life = _Life(open_state, retained, draw)
    for step in range(1, steps):
        life.step(step)
    assert life.fulls
    assert life.increments or len(life.names) == 3


class _Life:
    def __init__(self, open_state: Callable[[int], KeyedState[str]], retained: int, draw: random.Random) -> None:
        self.names = [f"key-{i}" for i in range(draw.choice((3, 30)))]
        self.fulls = self.increments = 0
        self._open = open_state
        self._state = open_state(retained)
        self._retained = retained
        self._draw = draw
        self._files = Files()
        self._kept: list[int] = []
        self._flights: list[int] = []
        self._notices: list[tuple[Callable[[CheckpointId], None], int]] = []
        self._expected: dict[int, dict[str, int]] = {}

    def step(self, number: int) -> None:
        what = self._draw.choice(
            ("put", "put", "delete", "take", "complete", "complete", "abandon", "notice", "notice", "savepoint", "kill")
        )
        if what == "put":
            put(self._state, dict.fromkeys(self._draw.sample(self.names, self._draw.randint(1, 3)), number))
        elif what == "delete":
            self._state.delete_many(self._draw.sample(self.names, 1))
        elif what == "take" and len(self._flights) < 4:
            self._take(number)
        elif what == "savepoint":
            self._files.take(self._state, number, full=True)
            assert self._files.read(number) == content(self._state)
            self._files.drop(number)
        elif what == "complete" and self._flights:
            self._complete(self._draw.choice(self._flights))
        elif what == "abandon" and self._flights:
            self._give_up(self._draw.choice(self._flights))
        elif what == "kill" and self._kept and self._draw.random() < 0.2:
            self._kill(self._kept[-1])
        elif what == "notice" and self._notices:
            tell, checkpoint = self._notices.pop(0)
            if self._draw.random() < 0.9:
                tell(CheckpointId(checkpoint))

    def _kill(self, newest: int) -> None:
        """Another attempt restores the newest completed checkpoint; what was in flight is gone with its files."""
        for checkpoint in self._flights:
            self._files.drop(checkpoint)
        self._flights, self._notices = [], []
        self._state = self._open(self._retained)
        self._files.restore(self._state, newest)
        assert content(self._state) == self._expected[newest]

    def _take(self, number: int) -> None:
        listed = self._files.take(self._state, number)
        self._expected[number] = content(self._state)
        self._flights.append(number)
        self.fulls += len(listed) == 1
        self.increments += len(listed) > 1

    def _complete(self, done: int) -> None:
        assert self._files.read(done) == self._expected[done]
        for older in [older for older in self._flights if older < done]:
            self._give_up(older)
        self._flights.remove(done)
        self._notices.append((self._state.completed, done))
        self._kept = [*self._kept, done][-self._retained :]
        needed = {name for checkpoint in self._kept for name in self._files.listed[checkpoint]}
        own = {name for name in self._files.data if int(name.split(".")[0]) in self._flights}
        self._files.data = {name: data for name, data in self._files.data.items() if name in needed | own}
        for checkpoint in self._kept:
            assert self._files.read(checkpoint) == self._expected[checkpoint]

    def _give_up(self, checkpoint: int) -> None:
        self._files.drop(checkpoint)
        self._flights.remove(checkpoint)
        self._notices.append((self._state.abandoned, checkpoint))
