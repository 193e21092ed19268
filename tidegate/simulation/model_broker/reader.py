"""The model's stand-in for `sources.reader.Reader`: fetches in the background, gathers messages within bounds.

It has no thread: each answer leads to the next request. The meaning of offsets is the real `sources.positions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tidegate.coordinator.types import SourcePositions
from tidegate.ids import TopicPartition
from tidegate.plan.graph import SourceOperator
from tidegate.simulation.model_broker.broker import ModelBroker, Offsets
from tidegate.simulation.model_broker.codes import LEADER_RETRY, Code, RequestRefused
from tidegate.simulation.model_broker.log import Fetched
from tidegate.simulation.model_broker.messages import make_message
from tidegate.simulation.port import BrokerPort
from tidegate.sources.errors import SourceFailed, SourceUnavailable
from tidegate.sources.positions import Positions, derive_restored, describe_out_of_range
from tidegate.task.elements import BYTES_MAX

if TYPE_CHECKING:
    import confluent_kafka as ck

    from tidegate.sources.reader import Pending

FETCH_RECORDS: Final = 32
PENDING_RECORDS_MAX: Final = 128
TAKEN_RECORDS_MAX: Final = 6
"""Few, so that a small input makes many batches, some of which a barrier finds in flight."""
IDLE_S: Final = 0.05
RETRY_S: Final = 0.1

T = TypeVar("T")
_Answer = dict[TopicPartition, Fetched | Code]


class ModelReader:
    """Started once; `initial`, `take`, `pause` and `close` as in Reader. `until` may be never or latest.

    Raises SourceFailed, SourceUnavailable where Reader does.
    """

    def __init__(
        self,
        broker: ModelBroker,
        link: BrokerPort,
        operator: SourceOperator,
        partitions: Sequence[TopicPartition],
        restored: SourcePositions,
        wake: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._link = link
        self._connection = link.connect()
        self._operator = operator
        self._partitions = list(partitions)
        self._restored = restored
        self._wake = wake
        self._initial: Positions | None = None
        self._places: dict[TopicPartition, int] = {}
        self._added: list[TopicPartition] = []
        """Until the first positions are known."""
        self._messages: list[ck.Message] = []
        self._ends: dict[TopicPartition, int] = {}
        self._told_ends: dict[TopicPartition, int] = {}
        self._failure: SourceFailed | SourceUnavailable | None = None
        self._fetching = False
        self._fetch_planned = False
        self._closed = False

    def start(self) -> None:
        """Ask where to begin, then read."""
        self._connection.post("offsets", self._read_offsets, self._begin, lambda: self._later(RETRY_S, self.start))

    def initial(self) -> Positions | None:
        """The positions to begin with, once they are known."""
        self._raise_failure()
        return self._initial

    def wait_initial(self, seconds: float) -> Positions:
        """As `initial`, but waits."""
        deadline_s = self._link.clock.monotonic() + seconds
        while True:
            found = self.initial()
            if found is not None:
                return found
            if self._link.clock.monotonic() > deadline_s:
                raise SourceUnavailable(f"source {self._operator.name}: no answer in {seconds:g} s")
            self._link.clock.sleep(IDLE_S)

    def take(self, rows_max: int, bytes_max: int = BYTES_MAX) -> Pending | None:  # noqa: ARG002 - records are small
        """The next records, with the ends of partitions behind the last of them; None when nothing is pending."""
        from tidegate.sources.reader import Pending

        if not self._messages and not self._ends:
            self._raise_failure()
            return None
        count = min(rows_max, TAKEN_RECORDS_MAX)
        messages, self._messages = self._messages[:count], self._messages[count:]
        ends: dict[TopicPartition, int] = {}
        if not self._messages:
            ends, self._ends = self._ends, ends
        taken = Pending(messages, ends, sum(map(len, messages)))
        if not self._closed:
            self._fetch()
        return taken

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop reading these."""
        for partition in partitions:
            self._places.pop(partition, None)

    def add(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these, too, from their first offset."""
        if self._initial is None:
            self._added += partitions
            return
        self._places.update(dict.fromkeys(partitions, 0))
        self._fetch()

    def close(self, _seconds: float) -> None:
        """Stop reading; what is pending is dropped."""
        self._closed = True

    # -- positions -----------------------------------------------------------------------------------------------------

    def _read_offsets(self) -> dict[TopicPartition, Offsets | Code]:
        """At the broker."""
        return {part: _answer(partial(self._offsets, part)) for part in self._partitions}

    def _offsets(self, partition: TopicPartition) -> Offsets:
        return self._broker.offsets(self._link.clock.now_ms(), partition)

    def _begin(self, answers: dict[TopicPartition, Offsets | Code]) -> None:
        if self._closed:
            return
        known: dict[TopicPartition, Offsets] = {}
        for part, answer in answers.items():
            if isinstance(answer, Code):
                self._later(RETRY_S, self.start)
                return
            known[part] = answer
        self._initial = self._decide_positions(known)
        self._places = dict(self._initial.next_offsets)
        self._places.update(dict.fromkeys(self._added, 0))
        self._wake()
        self._fetch()

    def _decide_positions(self, known: dict[TopicPartition, Offsets]) -> Positions:
        """As in Reader: what was restored; only where unknown partitions begin is asked for."""
        nexts, ends, unknown = derive_restored(self._partitions, self._restored)
        nexts.update({part: known[part].start for part in unknown})
        if self._operator.until == "never":
            return Positions(self._operator.name, nexts)
        return Positions(self._operator.name, nexts, {**ends, **{part: nexts[part] for part in unknown}})

    # -- reading -------------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        if self._fetching or self._closed or not self._places or len(self._messages) >= PENDING_RECORDS_MAX:
            return
        self._fetching = True
        places = dict(self._places)
        self._connection.post("fetch", lambda: self._read(places), self._on_fetched, self._on_lost)

    def _read(self, places: dict[TopicPartition, int]) -> _Answer:
        """At the broker: one request for all partitions."""
        fetch = partial(self._broker.fetch, self._link.clock.now_ms(), committed=True, limit=FETCH_RECORDS)
        return {part: _answer(partial(fetch, part, place)) for part, place in places.items()}

    def _on_fetched(self, answers: _Answer) -> None:
        self._fetching = False
        if self._closed:
            return
        was_empty = not self._messages and not self._ends
        moved = retry = False
        for part, answer in answers.items():
            if part not in self._places:
                continue  # paused meanwhile
            if isinstance(answer, Code):
                retry = True
                self._check(part, answer)
            elif answer.records:
                moved = True
                self._messages += [make_message(part, at, record) for at, record in answer.records]
                self._places[part] = answer.next_offset
            else:
                self._places[part] = answer.next_offset
                if self._told_ends.get(part) != answer.next_offset:
                    self._told_ends[part] = self._ends[part] = answer.next_offset
        if was_empty and (self._messages or self._ends or self._failure is not None):
            self._wake()
        if self._failure is None:
            self._next(moved, retry)

    def _next(self, moved: bool, retry: bool) -> None:
        if moved and not retry:
            self._fetch()
        else:
            self._fetch_later(RETRY_S if retry else IDLE_S)

    def _on_lost(self) -> None:
        self._fetching = False
        self._fetch_later(RETRY_S)

    def _fetch_later(self, seconds: float) -> None:
        """At most one such timer is set: `take` fetches at once, too."""
        if not self._fetch_planned:
            self._fetch_planned = True
            self._later(seconds, self._fetch_planned_one)

    def _fetch_planned_one(self) -> None:
        self._fetch_planned = False
        self._fetch()

    def _check(self, part: TopicPartition, code: Code) -> None:
        """What waiting does not cure ends the source."""
        if code in LEADER_RETRY:
            return
        bounds = _answer(partial(self._offsets, part))
        low, high = (0, 0) if isinstance(bounds, Code) else (bounds.start, bounds.stable)
        place = self._places[part]
        self._failure = SourceFailed(
            f"source {self._operator.name}: {describe_out_of_range(part, place, low, high)}",
            partition=str(part),
            offset=place,
        )

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        if not self._closed:
            self._link.after(seconds, action)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _answer(request: Callable[[], T]) -> T | Code:
    try:
        return request()
    except RequestRefused as refused:
        return refused.code
