"""What arrives in the input topics while a schedule is played: a backlog, then bursts at a trickle, at times a wave.

A wave brings as many records as are needed for a number of them to wait. All is drawn as it comes: how long a schedule
lives is known only when it has ended.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.ids import TopicPartition, TransactionalId
from tidegate.simulation.chance import generator
from tidegate.simulation.model_broker.codes import COORDINATOR_RETRY, RequestRefused
from tidegate.simulation.model_broker.log import Record, Stamp
from tidegate.simulation.workload import INPUTS, SLOW_PACE, InputRecord

if TYPE_CHECKING:
    from tidegate.simulation.world import World

WAVES: Final = 0.15
SLOW_WAVES: Final = 0.5
"""How many bursts are waves, where the workload has any; before slow slots rows shall wait nearly all the time."""
NOISE: Final = 0.3
NOISE_S: Final = (0.01, 0.6)
NOISE_TIMEOUT_MS: Final = 60_000
GROWTH: Final = 0.05
"""With so many bursts a topic gets one more partition, where topics grow."""
GROWN_MAX: Final = 2
"""Partitions that a topic may get while it is read."""
WAITING_MAX: Final = 120
"""Nothing more arrives while so many wait: what is to be shown needs no flood."""
RECORDS_MAX: Final = 3000
"""Beyond these nothing more arrives."""


class Feed:
    """Of one world. A customer's records are all in one partition of each topic, until the topic gets another one."""

    def __init__(self, world: World) -> None:
        self.records: list[InputRecord] = []
        """In the order of their arrival."""
        self._world = world
        self._workload = world.schedule.workload
        self._topics = INPUTS[self._workload.topology]
        self._partitions = dict.fromkeys(self._topics, self._workload.partitions)
        self._draw = generator(world.schedule.seed, "records")
        self._noise = generator(world.schedule.seed, "noise")
        self._growth = generator(world.schedule.seed, "growth")
        self._flowing = False
        self._waves = SLOW_WAVES if self._workload.slot_pace >= SLOW_PACE else WAVES

    def start(self, backlog: int) -> None:
        """Write as many records at once, and from now on more and more."""
        self.append(backlog)
        self._flowing = True
        self._plan_burst()

    def stop(self) -> None:
        """Nothing arrives any more."""
        self._flowing = False

    def append(self, count: int) -> None:
        """Write as many new records, at once."""
        if not count or len(self.records) + count > RECORDS_MAX:
            return
        now_ms = self._world.kernel.clock.now_ms()
        new = [self._make(number) for number in range(len(self.records), len(self.records) + count)]
        if self._workload.noisy and self._noise.random() < NOISE:
            self._make_noise(new[0])
        by_place: dict[TopicPartition, list[Record]] = defaultdict(list)
        for record in new:
            by_place[record.place].append(Record(record.customer.encode(), record.value, now_ms))
        for place, batch in by_place.items():
            self._world.broker.produce(now_ms, place, batch)
        self.records += new

    def _plan_burst(self) -> None:
        gap_s = self._workload.gap_s
        self._world.kernel.at(self._draw.uniform(0.5 * gap_s, 1.5 * gap_s), self._burst)

    def _burst(self) -> None:
        if not self._flowing:
            return
        wave = self._workload.wave if self._draw.random() < self._waves else 0
        waiting = self._count_appended() - self._world.processed_count
        if self._workload.growing and self._growth.random() < GROWTH:
            self._grow(self._growth.choice(self._topics))
        if waiting < WAITING_MAX:
            self.append(max(wave - waiting, self._draw.randint(1, self._workload.burst)))
        self._plan_burst()

    def _grow(self, topic: str) -> None:
        """One more partition, which takes records from now on."""
        if self._partitions[topic] < self._workload.partitions + GROWN_MAX:
            self._partitions[topic] += 1
            self._world.broker.add_topic_partitions(topic, self._partitions[topic])
            self._world.reach.note("topics grown")
            self._world.trace.tell(f"{topic} has {self._partitions[topic]} partitions")

    def _count_appended(self) -> int:
        """Records, and what else has an offset."""
        return sum(
            self._world.broker.end_offset(TopicPartition(topic, number))
            for topic, partitions in self._partitions.items()
            for number in range(partitions)
        )

    def _make(self, number: int) -> InputRecord:
        draw, workload = self._draw, self._workload
        customer, topic = draw.randrange(workload.customers), draw.choice(self._topics)
        return InputRecord(
            place=TopicPartition(topic, customer % self._partitions[topic]),
            id=number,
            customer=f"c{customer}",
            sku=f"s{draw.randrange(workload.skus)}",
            quantity=draw.randint(1, 5),
            price_cents=draw.randint(1, 999),
            status=draw.choice(("paid", "paid", "open")),
        )

    def _make_noise(self, record: InputRecord) -> None:
        """A transaction beside the records, which is aborted later: nothing of it may ever be processed."""
        broker, clock = self._world.broker, self._world.kernel.clock
        now_ms = clock.now_ms()
        name = TransactionalId(f"noise-{record.id}")
        value = msgspec.structs.replace(record, id=-1 - record.id).value
        try:
            owner = broker.init_producer(now_ms, name, NOISE_TIMEOUT_MS)
            broker.add_partitions(now_ms, name, *owner, [record.place])
            noise = [Record(record.customer.encode(), value, now_ms)]
            broker.produce(now_ms, record.place, noise, Stamp(*owner, 0, transactional=True), name)
        except RequestRefused:
            return  # the coordinator is away: no noise this time

        def abort() -> None:
            try:
                broker.end_transaction(clock.now_ms(), name, *owner, commit=False)
            except RequestRefused as refused:
                if refused.code in COORDINATOR_RETRY:  # else its time was over, and the broker has aborted it
                    self._world.kernel.at(0.2, abort)

        self._world.kernel.at(self._noise.uniform(*NOISE_S), abort)
