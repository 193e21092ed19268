"""What a scenario is: it gives a value, the same at the model and at Kafka; and what scenarios share.

Producer ids are left out of the values (they differ), epochs are in them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tests.simulation.broker.stages import Stage
from tidegate.committable import Committable
from tidegate.errors import TidegateError
from tidegate.kafka.errors import SinkFailed
from tidegate.kafka.facts import CoordinatorState, EndAnswer, LoggedRange, Marker

T = TypeVar("T")

Value = Any
SHORT_MS: Final = 1000
"""A transaction timeout that a scenario waits for: the first that `short` tries."""
SHORT_MS_MAX: Final = 64_000
LONG_MS: Final = 600_000
"""One that lasts over a restart of the broker."""

SCENARIOS: dict[str, tuple[Callable[[Stage], Value], Value]] = {}
ENDED, FENCED, INVALID, UNKNOWN = (
    EndAnswer.ENDED,
    EndAnswer.FENCED,
    EndAnswer.INVALID_STATE,
    EndAnswer.UNKNOWN_PRODUCER,
)
COMMITTED, ABORTED, EMPTY, ONGOING = (
    CoordinatorState.COMPLETE_COMMIT,
    CoordinatorState.COMPLETE_ABORT,
    CoordinatorState.EMPTY,
    CoordinatorState.ONGOING,
)


def scenario(expected: Value) -> Callable[[Callable[[Stage], Value]], Callable[[Stage], Value]]:
    """Register a scenario with the value that both brokers must give."""

    def register(run: Callable[[Stage], Value]) -> Callable[[Stage], Value]:
        SCENARIOS[run.__name__] = (run, expected)
        return run

    return register


def state(stage: Stage, name: str) -> tuple[CoordinatorState, int] | None:
    """State and epoch of an id, once it is no longer being ended."""
    final = (COMMITTED, ABORTED, EMPTY, ONGOING)

    def settled() -> bool:
        described = stage.client.describe(stage.tid(name))
        return described is None or described.state in final

    stage.until(settled, f"{name} settled")
    described = stage.client.describe(stage.tid(name))
    return None if described is None else (described.state, described.producer.epoch)


def markers(stage: Stage, committable: Committable) -> list[Marker]:
    """How it ended in each of its partitions."""
    owner = committable.producer
    return [stage.client.outcome(part, owner) for part in committable.written]


def ranges(stage: Stage, committable: Committable) -> list[list[LoggedRange]]:
    """Where its records lie in each of its partitions."""
    owner = committable.producer
    return [stage.client.data_ranges(part, owner) for part in committable.written]


def timed_out(stage: Stage, name: str) -> None:
    """Wait until the broker has aborted an open transaction."""
    stage.until(lambda: state(stage, name) != (ONGOING, 0), f"{name} timed out")


def short(stage: Stage, make: Callable[[Stage, str, str, int], T]) -> tuple[str, str, T]:
    """Id, topic, and what `make` made of them with a short transaction timeout.

    On a busy machine that may pass too soon, which `make` reports by SinkFailed: then new ones and twice the time.
    """
    timeout_ms = SHORT_MS
    while True:
        name, topic = f"a{timeout_ms}", stage.topic()
        with contextlib.suppress(SinkFailed):
            return name, topic, make(stage, name, topic, timeout_ms)
        timeout_ms *= 2
        assert timeout_ms <= SHORT_MS_MAX, f"{name} was over too soon"


def refused(call: Callable[[], object]) -> str:
    """The code of the error that a call raises."""
    try:
        call()
    except TidegateError as error:
        return error.code
    return "no error"
