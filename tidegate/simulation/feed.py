"""The records that arrive in the input topics while a schedule is played.

They are a backlog, then a trickle of bursts, and sometimes a wave. A wave brings as many records as are needed for a
number of them to wait. Records are drawn as they come, because how long a schedule lives is known only when it has
ended. If there are windows, records have event times, and at the end records far ahead close all windows before them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.ids import TopicPartition, TransactionalId
from tidegate.simulation.kernel import generator
from tidegate.simulation.model_broker.codes import COORDINATOR_RETRY, RequestRefused
from tidegate.simulation.model_broker.log import Record, Stamp
from tidegate.simulation.timing import STEADY_S, EventTimeModel
from tidegate.simulation.workload import SLOW_PACE, InputRecord

if TYPE_CHECKING:
    from tidegate.simulation.world import World

WAVES: Final = 0.15
SLOW_WAVES: Final = 0.5
"""The fraction of bursts that are waves, if the workload has any. With slow slots, rows should wait nearly always."""
NOISE: Final = 0.3
NOISE_S: Final = (0.01, 0.6)
NOISE_TIMEOUT_MS: Final = 60_000
GROWTH: Final = 0.05
"""The fraction of bursts at which a topic gets one more partition, if topics grow."""
GROWN_MAX: Final = 2
"""Maximum number of partitions that a topic gains while it is read."""
NEW_TOPICS_MAX: Final = 2
WAITING_MAX: Final = 120
"""Nothing more arrives while this many records wait. The simulation needs no flood."""
RECORDS_MAX: Final = 3000
"""Maximum number of records in total."""


class Feed:
    """The input of one world. A customer's records are in one partition per topic until the topic gets another one."""

    def __init__(self, world: World) -> None:
        self.records: list[InputRecord] = []
        """Records in the order of their arrival."""
        self._world = world
        self._workload = world.schedule.workload
        self._topics = self._workload.shape.inputs
        self._partitions = dict.fromkeys(self._topics, self._workload.partitions)
        self._draw = generator(world.schedule.seed, "records")
        self._noise = generator(world.schedule.seed, "noise")
        self._growth = generator(world.schedule.seed, "growth")
        timing = self._workload.windows
        self._times = None if timing is None else EventTimeModel(world.schedule.seed, timing)
        self.places: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        """Partition -> offsets and numbers of its records."""
        self.highest: dict[TopicPartition, int] = {}
        """Partition -> its highest event time."""
        self._flowing = False
        self._waves = SLOW_WAVES if self._workload.slot_pace >= SLOW_PACE else WAVES

    @property
    def first_places(self) -> list[TopicPartition]:
        """The partitions that exist from the beginning."""
        return [place for topic in self._topics for place in _places_of(topic, self._workload.partitions)]

    @property
    def _everywhere(self) -> list[TopicPartition]:
        return [place for topic, count in self._partitions.items() for place in _places_of(topic, count)]

    def numbers_in(self, place: TopicPartition, from_offset: int, to_offset: int) -> set[int]:
        """Returns the records whose offsets are in the range; `to_offset` is exclusive."""
        return {number for offset, number in self.places[place] if from_offset <= offset < to_offset}

    def start(self, backlog: int) -> None:
        """Writes a backlog at once, and from then on bursts of records."""
        self.append(backlog)
        self._flowing = True
        self._plan_burst()
        if self._times is not None:
            self._keep_steady(self._times)

    def stop(self) -> None:
        """Stops the input, except for the records that close the windows.

        The end of a bounded read closes windows by itself.
        """
        self._flowing = False
        timing = self._workload.windows
        if self._times is not None and timing is not None and not self._workload.bounded and not timing.by_clock:
            self._close_windows(self._times)

    def append(self, count: int) -> None:
        """Writes this many new records at once."""
        if not count or len(self.records) + count > RECORDS_MAX:
            return
        new = [self._make(number) for number in range(len(self.records), len(self.records) + count)]
        if self._workload.noisy and self._noise.random() < NOISE:
            self._make_noise(new[0])
        self._write(new)

    def _write(self, new: list[InputRecord]) -> None:
        now_ms = self._world.kernel.clock.now_ms()
        by_place: dict[TopicPartition, list[Record]] = defaultdict(list)
        for record in new:
            by_place[record.place].append(self._workload.shape.dress(record, now_ms))
        for place, batch in by_place.items():
            broker, there = self._world.clusters.at(place)
            base = broker.produce(now_ms, there, batch)
            numbers = [record.id for record in new if record.place == place]
            self.places[place] += enumerate(numbers, base)
        self.records += new
        for record in new:
            if record.at is not None:
                self.highest[record.place] = max(self.highest.get(record.place, record.at), record.at)

    def _close_windows(self, times: EventTimeModel) -> None:
        """Writes a record far ahead to every partition that watermarks wait for."""
        at = times.jump(self._world.kernel.clock.now_ms())
        places = times.choose_closing(self._everywhere)
        made = [self._make(len(self.records) + index, place) for index, place in enumerate(places)]
        self._write([msgspec.structs.replace(record, at=at) for record in made])

    def _plan_burst(self) -> None:
        gap_s = self._workload.gap_s
        self._world.kernel.at(self._draw.uniform(0.5 * gap_s, 1.5 * gap_s), self._burst)

    def _burst(self) -> None:
        if not self._flowing:
            return
        wave = self._workload.wave if self._draw.random() < self._waves else 0
        waiting = self._count_appended() - self._world.account.processed_count
        if self._workload.growing and self._growth.random() < GROWTH:
            topic = self._growth.choice(self._topics)
            if self._workload.shape.new_topics:
                self._add_topic(topic)
            else:
                self._grow(topic)
        if waiting < WAITING_MAX:
            self.append(max(wave - waiting, self._draw.randint(1, self._workload.burst)))
        lull_s = 0.0 if self._times is None else self._times.draw_lull_s()
        if self._times is not None and lull_s:
            self._world.kernel.at(lull_s, partial(self._load, self._times))
        else:
            self._plan_burst()

    def _load(self, times: EventTimeModel) -> None:
        """Ends a lull with records for all partitions at once."""
        if not self._flowing:
            return
        load = times.draw_load(self._everywhere)
        if len(self.records) + len(load) <= RECORDS_MAX:
            self._write([self._make(len(self.records) + index, place) for index, place in enumerate(load)])
            self._world.reach.note("loads after a lull")
            self._let_one_lag(times)
        self._plan_burst()

    def _let_one_lag(self, times: EventTimeModel) -> None:
        """Delays one slot's reading of a load behind the others."""
        slots = [process for process in self._world.kernel.processes if process.alive and process.kind == "slot"]
        if len(slots) < 2:
            return
        late_row, seconds, frozen = times.draw_late_row(len(slots))
        if frozen:
            slots[late_row].freeze(seconds)
        else:
            for outages in self._world.clusters.outages.values():
                outages.late_fetches[slots[late_row].name] = self._world.kernel.now + seconds

    def _keep_steady(self, times: EventTimeModel) -> None:
        """Writes a record to each partition that has had none for a while, and repeats."""
        if not self._flowing:
            return
        waiting = self._count_appended() - self._world.account.processed_count
        quiet = times.find_quiet(self._everywhere, self._world.kernel.now) if waiting < WAITING_MAX else ()
        new = [self._make(len(self.records) + index, place) for index, place in enumerate(quiet)]
        if len(self.records) + len(new) <= RECORDS_MAX:
            self._write(new)
        self._world.kernel.at(STEADY_S, lambda: self._keep_steady(times))

    def _grow(self, topic: str) -> None:
        """Adds a partition, which receives records from now on."""
        if self._partitions[topic] < self._workload.partitions + GROWN_MAX:
            self._partitions[topic] += 1
            broker, there = self._world.clusters.at(TopicPartition(topic, 0))
            broker.add_topic_partitions(there.topic, self._partitions[topic])
            self._world.reach.note("topics grown")
            self._world.trace.tell(f"{topic} has {self._partitions[topic]} partitions")

    def _add_topic(self, like: str) -> None:
        """Adds a topic that the pattern matches."""
        if len(self._topics) <= NEW_TOPICS_MAX:
            topic = f"{like}-{len(self._topics)}"
            self._world.clusters.create_topic(topic, self._workload.partitions)
            self._topics = (*self._topics, topic)
            self._partitions[topic] = self._workload.partitions
            self._world.reach.note("topics that a pattern finds made while it runs")
            self._world.trace.tell(f"{topic} is there")

    def _count_appended(self) -> int:
        """Counts records and everything else that has an offset."""
        return sum(
            self._world.clusters.end_offset(TopicPartition(topic, number))
            for topic, partitions in self._partitions.items()
            for number in range(partitions)
        )

    def _make(self, number: int, wanted: TopicPartition | None = None) -> InputRecord:
        """Draws a record. `wanted`: its partition, if it is not drawn."""
        draw, workload = self._draw, self._workload
        customer = draw.randrange(workload.customers)
        kernel, timing = self._world.kernel, workload.windows
        topic = draw.choice(workload.shape.choose_inputs(self._topics, kernel.now, timing))
        place, at = TopicPartition(topic, customer % self._partitions[topic]), None
        if self._times is not None:
            place = wanted or self._times.choose(_places_of(topic, self._partitions[topic]), kernel.now)
            at = self._times.next_ms(place, kernel.clock.now_ms())
            at += 0 if timing is None or place.topic == self._topics[0] else timing.lead_ms
        else:
            at = workload.shape.time_of(number, kernel.clock.now_ms())
        record = InputRecord(
            place=place,
            id=number,
            customer=f"c{customer}",
            sku=f"s{draw.randrange(workload.skus)}",
            quantity=draw.randint(1, 5),
            price_cents=draw.randint(1, 999),
            status=draw.choice(("paid", "paid", "open")),
            at=at,
            arrived_s=kernel.now,
        )
        bad = workload.shape.bad.get(number % 7, "")
        much = {"quantity": 4, "price_cents": 1 << 62} if bad == "step" else {}
        return msgspec.structs.replace(record, bad=bad, **much) if bad else record

    def _make_noise(self, record: InputRecord) -> None:
        """Writes a transaction next to the records and aborts it later. None of its records may ever be processed."""
        (broker, place), clock = self._world.clusters.at(record.place), self._world.kernel.clock
        now_ms = clock.now_ms()
        name = TransactionalId(f"noise-{record.id}")
        value = msgspec.structs.replace(record, id=-1 - record.id).value
        try:
            owner = broker.init_producer(now_ms, name, NOISE_TIMEOUT_MS)
            broker.add_partitions(now_ms, name, *owner, [place])
            noise = [Record(record.customer.encode(), value, now_ms)]
            broker.produce(now_ms, place, noise, Stamp(*owner, 0, transactional=True), name)
        except RequestRefused:
            return  # the coordinator is unavailable: no noise this time

        def abort() -> None:
            try:
                broker.end_transaction(clock.now_ms(), name, *owner, commit=False)
            except RequestRefused as refused:
                if refused.code in COORDINATOR_RETRY:  # otherwise it has timed out, and the broker has aborted it
                    self._world.kernel.at(0.2, abort)

        self._world.kernel.at(self._noise.uniform(*NOISE_S), abort)


def _places_of(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(partitions)]
