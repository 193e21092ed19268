"""What calls of a step's code have in common, by row or by batch: its life, its time, and entries that have ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final, cast

import polars as pl
from typing_extensions import override

from tidegate.config.fields.secrets import Redactor
from tidegate.ids import StateName
from tidegate.operators.event_time import WATERMARK, EventClock
from tidegate.operators.keyed.runtime import KeyedRuntime
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.kinds.python.running.states import RunningScope, row_of
from tidegate.operators.runtime import Out
from tidegate.operators.spec import Slot
from tidegate.operators.sweep import SWEPT_AT_ONCE, SWEPT_FOR_NEW, Sweep
from tidegate.python import Settings, Step
from tidegate.python.step import bind
from tidegate.state.base import GroupsOf, Key, KeyedState
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.user_code.failure import StepFailed, describe_failure
from tidegate.user_code.modules import UserCodeProblem, load
from tidegate.user_code.running import RUNNING

logger = logging.getLogger(__name__)

CLOSE_S: Final = 10.0
"""How long `close` of a step may take."""


class CodeRuntime(KeyedRuntime[PythonOperator]):
    """The base of runtimes that call a step's code. A subclass implements `process`, and calls `_open` when its handles
    for states are there.
    """

    def __init__(self, operator: PythonOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        kinds = dict(operator.columns)
        key_kinds = [kinds[key] for key in operator.keys]
        self._scope = RunningScope(operator.name, [] if operator.per_batch else key_kinds, slot)
        self._settings = Settings(operator.settings)
        self._redact = Redactor(operator.settings[name] for name in operator.secrets)
        self._slot = slot
        self._now_ms = slot.now_ms
        self._groups_of: GroupsOf = lambda rows: key_groups_of_keys(rows, key_kinds, slot.max_parallelism)
        self._event_clock = self._open_clock(slot)
        ttls = {one.name: one.ttl for one in operator.description.states if one.ttl is not None}
        self._sweeps = [Sweep(self._state_of(name), ttl, slot.now_ms) for name, ttl in ttls.items()]
        self._needs_clock = any(ttl.processing for ttl in ttls.values())
        self._code: Any = None

    def _state_of(self, name: str) -> KeyedState[Any]:
        """Returns the state of a declaration."""
        return cast("KeyedState[Any]", self.states[StateName(name)])

    def _open_clock(self, slot: Slot) -> EventClock | None:
        """Returns the watermark that survives restarts, if the step has one."""
        if WATERMARK.name not in self.states:
            return None
        clock = EventClock(self.operator.name, slot.own_groups)
        self.states[WATERMARK.name] = clock.state
        self._scope.watermark_of = self._watermark_of
        return clock

    def _watermark_of(self, key: Key) -> int:
        assert self._event_clock is not None
        if self._event_clock.uniform:
            return self._event_clock.watermark_ms
        return self._event_clock.watermark_of(self._groups_of([row_of(key)]))[0]

    def _open(self, handles: Mapping[str, object]) -> Any:
        """Returns the user's function, or a step that has been opened, whose declarations are `handles`.

        Raises StepFailed, and UserCodeProblem if it cannot be imported.
        """
        operator = self.operator
        with RUNNING.of(operator.name):
            try:
                self._code = load(operator.reference)
                if operator.description.is_class:
                    self._code = self._code()
                    bind(self._code, self._scope, handles)
                    self._code.open(self._settings)
            except (KeyboardInterrupt, UserCodeProblem):
                raise
            except BaseException as error:
                failure = self._describe(error)
                raise StepFailed(f"step {operator.name}: {operator.reference} cannot be opened: {failure}") from error
        return self._code

    def _describe(self, error: BaseException) -> str:
        """Returns the reason of a failure, for logs and dead letters, without secrets of the settings."""
        return self._redact(describe_failure(error))

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self._scope.watermark_ms = max(self._scope.watermark_ms, watermark_ms)
        if self._event_clock is not None:
            self._event_clock.advance(watermark_ms)
        super().on_watermark(watermark_ms, out)

    def _read_clock(self) -> None:
        """Takes the time by which a `ttl` in processing time is judged."""
        if self._needs_clock:
            self._scope.wall_ms = self._now_ms()

    def _remove_for(self, written: int) -> None:
        """Removes some of the entries that have ended, after entries were written."""
        if written:
            self._remove(SWEPT_FOR_NEW * written)

    def _remove(self, entries: int) -> None:
        for one in self._sweeps:
            one.go_on(entries, self._scope.watermark_ms)

    def _send(self, name: str, frame: pl.DataFrame, out: Out) -> None:
        """Emits results on an output, in pieces that the operators downstream take."""
        for part in self._slot.cut(frame):
            if name:
                out.side(name, part)
            else:
                out.emit(part)

    @override
    def before_snapshot(self) -> None:
        self._remove(SWEPT_AT_ONCE)
        if self._event_clock is not None:
            self._event_clock.before_snapshot()
        super().before_snapshot()

    @override
    def close(self) -> None:
        if isinstance(self._code, Step) and "close" in self.operator.description.methods:
            close_step(self.operator.name, self._code)
        super().close()


def close_step(name: str, step: Step) -> None:
    """Calls `close` of a step, and waits for it for a bounded time."""

    def run() -> None:
        try:
            step.close()
        except BaseException as error:  # noqa: BLE001  # of the user's code: the attempt ends anyway
            logger.warning("`close` of step %s failed: %s", name, describe_failure(error))

    thread = threading.Thread(target=run, name=f"close of {name}", daemon=True)
    thread.start()
    thread.join(CLOSE_S)
    if thread.is_alive():
        logger.warning("`close` of step %s has not ended after %g s, and is abandoned", name, CLOSE_S)
