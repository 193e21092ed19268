"""An asynchronous step in a real slot loop, life after life: killed anywhere, restored from the last checkpoint.

Sources read partitions from positions that the checkpoint has; sinks count only what a completed checkpoint commits.
Calls run on their threads, as in a slot.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import cast

from tests.task.fakes import Row
from tests.task.restarts import History, Start, committed_by, order_violations
from tests.task.rig import Rig
from tests.task.topologies import KEYED, MAX_PARALLELISM, edge, plan_of, sink_node, source_node, vertex
from tidegate.ids import OperatorName
from tidegate.operators.calls.runtime import CallRuntime
from tidegate.operators.calls.spec import CallOperator
from tidegate.operators.spec import Slot
from tidegate.plan.graph import Node, Plan
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share

PATIENCE_S = 60.0
WAIT_S = 0.02


def plan_with(spec: CallOperator, parallelism: int, *, exchanged: bool) -> Plan:
    """read -> look -> write, in one piece, or with an exchange by `k` in between."""
    look, write = Node(spec, children=(1,)), sink_node("write")
    if not exchanged:
        nodes = (source_node("read", children=(1,)), Node(spec, children=(2,)), write)
        return plan_of(parallelism, [vertex(*nodes)])
    vertices = [vertex(source_node("read", edges=(0,))), vertex(look, write)]
    return plan_of(parallelism, vertices, [edge(0, "read", "look", "k")])


class Lives:
    """See the module. `make` gives the step's spec for each life."""

    def __init__(self, make: Callable[[], CallOperator], history: History, *, exchanged: bool, seed: int) -> None:
        self.random = random.Random(seed)
        self.restored = 0
        """Pieces of rows in flight that lives began with."""
        self._make = make
        self._history = history
        self._exchanged = exchanged
        self._woken = threading.Event()
        self._checkpoint = 0
        self._committed: list[Row] = []
        """Checkpoint by checkpoint, in each slot by slot."""
        self._start: Start | None = None

    def live(self, parallelism: int, checkpoints: int, *, turns: int) -> None:
        """A life of some checkpoints, each after at most so many turns, that is killed a few turns after the last."""
        rig = self._open(parallelism)
        try:
            for _ in range(checkpoints):
                self._turn(rig, self.random.randint(0, turns))
                self._complete(rig)
            self._turn(rig, self.random.randint(0, turns))
        finally:
            self._kill(rig)

    def finish(self, parallelism: int) -> None:
        """A last life that reads to the end; its final checkpoint waits for all that is in flight."""
        rig = self._open(parallelism)
        wanted = sum(map(len, self._history.values()))
        try:
            deadline = time.monotonic() + PATIENCE_S
            while self._read(rig) < wanted:
                assert time.monotonic() < deadline, "not everything is read"
                self._step(rig)
            self._complete(rig, final=True)
        finally:
            self._kill(rig)

    def committed(self) -> Counter[Row]:
        return Counter(self._committed)

    def order_violations(self) -> list[tuple[Row, Row]]:
        """Rows of one key and one source partition that were written in the wrong order.

        Those of several slots count, too: rows that belong together are the same slot's, life after life.
        """
        return order_violations([self._committed], self._history)

    def _open(self, parallelism: int) -> Rig:
        plan = plan_with(self._make(), parallelism, exchanged=self._exchanged)
        start = Start(plan, self._history) if self._start is None else self._start.after(*self._last, plan)
        slots = iter(range(parallelism))

        def open_look() -> CallRuntime:
            subtask = next(slots)
            slot = Slot(
                MAX_PARALLELISM,
                choose_backend("memory", 1),
                subtask=subtask,
                parallelism=parallelism,
                wake=self._woken.set,
            )
            runtime = cast("CallRuntime", self._make().open(slot))
            (state,) = runtime.states.values()
            self.restored += len(start.lists("look", subtask))
            state.restore(start.lists("look", subtask), Share(range(0), subtask, parallelism))
            return runtime

        rig = Rig(plan, operators={"look": open_look}, restored=start)
        self._start = start
        return rig

    def _complete(self, rig: Rig, *, final: bool = False) -> None:
        self._checkpoint += 1
        rig.trigger(self._checkpoint, final=final)
        deadline = time.monotonic() + PATIENCE_S
        while not rig.is_complete(self._checkpoint):
            assert time.monotonic() < deadline, "the checkpoint is not complete"
            self._step(rig)
        self._committed += [row for rows in committed_by(rig, self._checkpoint) for row in rows]
        rig.complete(self._checkpoint)
        self._last = (rig, self._checkpoint)

    def _turn(self, rig: Rig, turns: int) -> None:
        for _ in range(turns):
            self._step(rig)

    def _step(self, rig: Rig) -> None:
        """A turn of everybody; when nothing moves, wait for an answer."""
        moved = [slot.loop.turn() for slot in rig.slots]
        moved += [connection.send() for connection in rig.connections]
        moved += [connection.receive(1 << 20) for connection in rig.connections]
        moved += [rig.upload(slot) for slot in rig.slots]
        if not any(moved):
            self._woken.wait(WAIT_S)
            self._woken.clear()

    def _read(self, rig: Rig) -> int:
        positions = [source.positions() for slot in rig.slots for source in slot.sources.values()]
        return sum(offset for one in positions for _, offset in one.next_offsets)

    def _kill(self, rig: Rig) -> None:
        """Nothing more is processed; threads end so that the test may."""
        for slot in rig.slots:
            runtime = cast("CallRuntime", slot.operators["look"])
            runtime.close()


def history_of(partitions: int, count: int) -> History:
    """Rows of every partition; every number occurs once."""
    return {("read", p): [(n % 7, 100_000 * p + n) for n in range(count)] for p in range(partitions)}


NAME = OperatorName("look")
COLUMNS = KEYED
