"""The subtasks of one operator with keys: rows dealt out by key group, snapshots, restores at another parallelism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

from tests.operators.driven import Collected
from tidegate.ids import CheckpointId, SlotIndex
from tidegate.operators.calls.caller import OpenCaller
from tidegate.operators.runtime import OperatorRuntime
from tidegate.operators.spec import Slot, StepOperator
from tidegate.plan.assignment import key_group_range
from tidegate.state.backends import OpenState, choose_backend
from tidegate.state.base import Share
from tidegate.state.keygroups import key_group_of

GROUPS = 16
_TURNS_MAX = 100_000


class Subtasks:
    """Rows go to the subtask of their key's group, without keys to the first one; what all of them emit is collected in
    one place.
    """

    def __init__(
        self,
        spec: StepOperator,
        keys: Sequence[str] | Mapping[int, Sequence[str]],
        backend: str = "memory",
        now_ms: Callable[[], int] = lambda: 0,
        open_caller: OpenCaller | None = None,
    ) -> None:
        self.out = Collected()
        self.runtimes: list[Any] = []
        self.spec = spec
        """What a restart opens."""
        self._keys = keys if isinstance(keys, Mapping) else defaultdict(lambda: keys)
        """By port."""
        self._now_ms = now_ms
        self._open_caller = open_caller
        self._open: OpenState = choose_backend(backend, 1)
        self.restart(1)

    def groups(self, index: int) -> range:
        """The key groups of a subtask."""
        return key_group_range(SlotIndex(index), len(self.runtimes), GROUPS)

    def process(self, frame: pl.DataFrame, port: int = 0) -> None:
        """A batch of one input, in its order."""
        keys = self._keys[port]
        if not keys:
            self.runtimes[0].process(port, frame, self.out)
            return
        groups = key_group_of(frame, list(keys), GROUPS)
        for index, runtime in enumerate(self.runtimes):
            own = self.groups(index)
            part = frame.filter((groups >= own.start) & (groups < own.stop))
            if part.height:
                runtime.process(port, part, self.out)

    def watermark(self, watermark_ms: int) -> None:
        """To all of them, with everything that follows from it."""
        for runtime in self.runtimes:
            runtime.on_watermark(watermark_ms, self.out)
            turns = 0
            while runtime.poll(1000, self.out):
                turns += 1
                assert turns < _TURNS_MAX, "poll() returns True again and again: return False if nothing was emitted"

    def rows(self) -> list[dict[str, Any]]:
        """What has been emitted since the last call."""
        taken = [row for batch in self.out.batches for row in batch.to_dicts()]
        self.out.batches.clear()
        return taken

    def restart(self, parallelism: int) -> None:
        """A checkpoint, and a new attempt from it."""
        files: dict[str, list[bytes]] = {}
        for runtime in self.runtimes:
            runtime.before_snapshot()
            for name, state in runtime.states.items():
                encode = state.capture(CheckpointId(1), full=True).encode
                files.setdefault(name, []).extend([] if encode is None else encode())
        self.close()
        self.runtimes = [None] * parallelism
        for index in range(parallelism):
            own = self.groups(index)
            opened: OperatorRuntime = self.spec.open(
                Slot(
                    GROUPS,
                    self._open,
                    own,
                    index,
                    parallelism,
                    now_ms=self._now_ms,
                    open_caller=self._open_caller,
                )
            )
            for name, state in opened.states.items():
                state.restore(files.get(name, ()), Share(own, index, parallelism))
            self.runtimes[index] = opened

    def close(self) -> None:
        """Free what they hold."""
        for runtime in self.runtimes:
            for state in runtime.states.values():
                state.close()
            runtime.close()
