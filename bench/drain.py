"""A pipeline works off records that become visible at once: the measurement of comparisons such as `joins.py`.

A daemon with two slots first works off a warm-up block and idles. Then the records of one open transaction become
visible. The run ends with the last output that is committed. CPU is that of the daemon's whole process tree.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.support import clients
from tests.support.campaign import Record, deliver, produce
from tests.support.daemon_process import DaemonProcess
from tidegate.dev.broker.server import create_topics
from tidegate.spark.processes import find_descendants

if TYPE_CHECKING:
    import confluent_kafka as ck

PARTITIONS: Final = 4
OUTPUT: Final = "result"
"""The topic of the results."""
TIMEOUT_S: Final = 600.0
POLL_S: Final = 0.03
CALM_S: Final = 3.0
"""No more output for so long: the run is over."""
TICK: Final = os.sysconf("SC_CLK_TCK")


class Part(NamedTuple):
    """Records, and how many rows they give. Their topics have no prefix yet."""

    records: Sequence[Record]
    rows: int


class Outcome(NamedTuple):
    """One run."""

    cpu_s: float
    """Per million records."""
    rate: float
    """Records a second."""
    others: float
    """Cores that were used by something else meanwhile, the broker among it."""


class Drain(NamedTuple):
    """A run of one pipeline file. Topics are called `{name}-{topic}`; the file gets the name as `${BENCH_NAME}`."""

    bootstrap: str
    directory: Path
    name: str
    pipeline: Path
    topics: Sequence[str]

    def run(self, before: Iterable[Record], warm: Part, main: Part, check: Callable[[str], None]) -> Outcome:
        """Measures the main block. `before` is written first. `check` gets the name of the output topic at the end."""
        topics = [self._topic(topic) for topic in self.topics]
        create_topics(self.bootstrap, dict.fromkeys(topics, PARTITIONS))
        deliver(self.bootstrap, map(self._rename, [*before, *warm.records]))
        daemon = DaemonProcess(self.pipeline, self.directory / f"{self.name}.log", self._environ())
        try:
            daemon.start().wait_running()
            ends = Ends(self.bootstrap, self._topic(OUTPUT))
            ends.wait(warm.rows)
            producer = hold(self.bootstrap, self.name, map(self._rename, main.records))
            outcome = measure(daemon.pid, ends, producer, len(main.records), main.rows)
            if daemon.terminate() != 0:
                raise SystemExit(f"{self.name} did not end cleanly:\n{daemon.text()[-3000:]}")
        finally:
            daemon.destroy()
        check(self._topic(OUTPUT))
        clients.delete_topics(self.bootstrap, topics)
        print(f"{self.name:>20}: {outcome.cpu_s:.2f} CPU s per million, {outcome.rate:,.0f} records/s, "
              f"other cores {outcome.others:.2f}", flush=True)  # fmt: skip
        return outcome

    def _topic(self, topic: str) -> str:
        return f"{self.name}-{topic}"

    def _rename(self, record: Record) -> Record:
        return record._replace(topic=self._topic(record.topic))

    def _environ(self) -> Mapping[str, str]:
        return {
            "KAFKA_BOOTSTRAP": self.bootstrap,
            "BENCH_NAME": self.name,
            "BENCH_STATE": str(self.directory / self.name),
        }


def hold(bootstrap: str, transactional_id: str, records: Iterable[Record]) -> ck.Producer:
    """Writes records in a transaction that stays open: nobody sees them yet."""
    producer = clients.producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 20})
    producer.init_transactions(60)
    producer.begin_transaction()
    produce(producer, records)
    assert producer.flush(300) == 0, "the input was not delivered"
    return producer


def measure(root: int, ends: Ends, producer: ck.Producer, records: int, rows: int) -> Outcome:
    """Makes the held records visible and waits for their rows. `root` is the process whose tree is measured."""
    cpu, busy, began = _cpu_s(root), _busy_s(), time.monotonic()
    base = ends.last
    producer.commit_transaction(60)
    samples: list[tuple[float, float, float]] = []
    ends.wait(base + rows, lambda: samples.append((time.monotonic(), _cpu_s(root), _busy_s())))
    ended, used, machine = next((one for one in samples if one[0] >= ends.changed_at), samples[-1])
    elapsed = ended - began
    return Outcome(
        (used - cpu) / records * 1e6, records / (ends.changed_at - began), (machine - busy - used + cpu) / elapsed
    )


class Ends:
    """The visible end of a topic, summed over its partitions; it counts transaction markers as well."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not in their __all__

        self._admin = clients.admin({"bootstrap.servers": bootstrap})
        self._wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
        self._level = IsolationLevel.READ_COMMITTED
        self.last = 0
        self.changed_at = time.monotonic()

    def wait(self, least: int, each: Callable[[], object] = lambda: None) -> None:
        """Waits until the end is at least here and does not move any more."""
        deadline = time.monotonic() + TIMEOUT_S
        while self.last < least or time.monotonic() - self.changed_at < CALM_S:
            if time.monotonic() > deadline:
                raise SystemExit(f"only {self.last} of {least} records are visible")
            futures = self._admin.list_offsets(self._wanted, isolation_level=self._level, request_timeout=30)
            found = sum(future.result(30).offset for future in futures.values())
            each()
            if found != self.last:
                self.last, self.changed_at = found, time.monotonic()
            time.sleep(POLL_S)


def _cpu_s(root: int) -> float:
    """User and system time of a process tree."""
    total = 0
    for pid in (root, *(process.pid for process in find_descendants(root))):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICK


def _busy_s() -> float:
    """CPU time of the whole machine that was not idle."""
    with Path("/proc/stat").open(encoding="ascii") as lines:
        fields = [int(field) for field in lines.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICK
