"""What the benchmarks share: a broker, programs under measurement, CPU accounting, and the load of other programs.

CPU time is user and system time of all processes of a program, from /proc. A drain measures a program that is warm and
idle: the records of an open transaction become visible at once, and the run ends with the last result that is
committed.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from tests.support import clients
from tidegate.dev.broker import DevelopmentBroker, launch

if TYPE_CHECKING:
    import confluent_kafka as ck

T = TypeVar("T")

TICK: Final = os.sysconf("SC_CLK_TCK")
TIMEOUT_S: Final = 300.0
POLL_S: Final = 0.03
CALM_S: Final = 3.0
"""Without a new result for so long, a run is over."""
QUIET_S: Final = 60.0
"""How long a run waits for other programs to become quiet."""
STOP_S: Final = 30.0
LAUNCH: Final = Path(launch.__file__)
TAIL: Final = 3000
BROKER: Final = {"num.network.threads": "2", "log.segment.bytes": str(1 << 28), "log.retention.ms": "-1"}


class RunFailed(Exception):
    """A run has no figures: the program ended, its results did not come, or they are wrong."""


class MachineBusy(Exception):
    """Other programs use more of the machine than the limit allows."""


class Usage(NamedTuple):
    """CPU seconds until now, of a program, the broker, this process and the whole machine."""

    at: float
    program: float
    broker: float
    own: float
    machine: float
    resident: int
    """Bytes of the program; memory that its processes share counts once."""


class Used(NamedTuple):
    """What was used between two moments."""

    elapsed: float
    program: float
    broker: float
    others: float
    """Cores that neither the program, the broker nor this process used."""


class Meter(NamedTuple):
    """Reads the CPU time of a program and of a broker."""

    program: int
    broker: int

    def read(self) -> Usage:
        """Reads all of it now."""
        table = dict(_read_processes())
        family = _find_family(table, self.program)
        return Usage(
            time.monotonic(),
            sum(table[pid].cpu_s for pid in family),
            _cpu_s(table, self.broker),
            time.process_time(),
            _busy_s(),
            sum(map(_read_resident, family)),
        )


def subtract(after: Usage, before: Usage) -> Used:
    """Returns what was used in between."""
    elapsed = after.at - before.at
    program, broker, own = after.program - before.program, after.broker - before.broker, after.own - before.own
    others = max(0.0, after.machine - before.machine - program - broker - own) / elapsed
    return Used(elapsed, program, broker, others)


class _Process(NamedTuple):
    parent: int
    session: int
    cpu_s: float


def _read_processes() -> Iterator[tuple[int, _Process]]:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text = (place / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:  # it has ended
            continue
        fields = text.rpartition(")")[2].split()
        cpu_s = sum(map(int, fields[11:15])) / TICK
        yield int(place.name), _Process(int(fields[1]), int(fields[3]), cpu_s)


def _find_family(table: Mapping[int, _Process], root: int) -> set[int]:
    """Returns a process, its descendants, and others of its session."""
    found = {pid for pid, one in table.items() if pid == root or one.session == root}
    grown = True
    while grown:
        below = {pid for pid, one in table.items() if one.parent in found} - found
        grown = bool(below)
        found |= below
    return found


def _cpu_s(table: Mapping[int, _Process], root: int) -> float:
    return sum(table[pid].cpu_s for pid in _find_family(table, root))


def _read_resident(pid: int) -> int:
    """Returns the resident bytes of a process; memory that it shares with others counts in equal parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def _busy_s() -> float:
    with Path("/proc/stat").open(encoding="ascii") as lines:
        fields = [int(field) for field in lines.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICK


class Program:
    """A program under measurement, in a session of its own. Its output goes to `log`. It dies with this process."""

    def __init__(self, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.log = log
        self.started = time.monotonic()
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCH), str(os.getpid()), *command],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environ or {})},
                start_new_session=True,
            )
        self.pid = self._process.pid

    def check(self) -> None:
        """Raises RunFailed if the program has ended."""
        if self._process.poll() is not None:
            raise RunFailed(f"the program ended with {self._process.returncode}: {self.tail()}")

    def tail(self) -> str:
        """Returns the end of its output."""
        return self.log.read_text(errors="replace")[-TAIL:]

    def stop(self) -> None:
        """Ends the program, by force if SIGTERM does not end it, and whatever is left of its session."""
        if self._process.poll() is None:
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_S)
        for pid in [pid for pid, one in _read_processes() if one.session == self.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextmanager
def open_broker(heap_mib: int = 1024) -> Iterator[tuple[DevelopmentBroker, Path]]:
    """Runs a broker of its own. Yields it, and a temporary directory for the runs."""
    os.environ.pop("KAFKA_BOOTSTRAP", None)
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-", ignore_cleanup_errors=True) as name:
        broker = DevelopmentBroker(Path(name) / "broker", properties=BROKER, heap_mib=heap_mib).start()
        try:
            yield broker, Path(name)
        finally:
            broker.kill()


def order_of(names: Sequence[T], turn: int) -> list[T]:
    """Returns these in their order, and in the reverse order every other turn."""
    return list(names if turn % 2 == 0 else reversed(names))


def wait_quiet(limit: float) -> float:
    """Waits until programs that this one did not start use at most `limit` cores, and returns what they use.

    Raises MachineBusy if they do not become quiet.
    """
    deadline = time.monotonic() + QUIET_S
    while True:
        at, before = time.monotonic(), _busy_s() - _cpu_s(dict(_read_processes()), os.getpid())
        time.sleep(1.0)
        after = _busy_s() - _cpu_s(dict(_read_processes()), os.getpid())
        others = max(0.0, after - before) / (time.monotonic() - at)
        if others <= limit:
            return others
        if time.monotonic() > deadline:
            raise MachineBusy(f"other programs use {others:.2f} cores, the limit is {limit:g}")


class Ends:
    """The visible end of a topic, summed over its partitions. It counts the markers of transactions also."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # not in their __all__

        self._admin = clients.admin({"bootstrap.servers": bootstrap})
        self._wanted = {
            TopicPartition(topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]  # its stub has no types
            for partition in range(partitions)
        }
        self._level = IsolationLevel.READ_COMMITTED
        self.on_move: Callable[[], object] = lambda: None
        """Called each time that the end has moved."""
        self.last = 0
        self.changed_at = self.first_at = 0.0

    def poll(self) -> bool:
        """Asks the broker, and returns whether the end has moved since the last time."""
        futures = self._admin.list_offsets(self._wanted, isolation_level=self._level, request_timeout=30)
        found = sum(future.result(30).offset for future in futures.values())
        moved = bool(found != self.last)
        if moved:
            self.last, self.changed_at = found, time.monotonic()
            self.first_at = self.first_at or self.changed_at
            self.on_move()
        return moved

    def wait(
        self,
        least: int,
        check: Callable[[], object],
        calm_s: float = CALM_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Waits until the end is at `least` or more and has not moved for `calm_s`.

        `check` is called all the time.
        """
        deadline = time.monotonic() + timeout_s
        while self.last < least or time.monotonic() - self.changed_at < calm_s:
            if time.monotonic() > deadline:
                raise RunFailed(f"only {self.last} of {least} results are visible after {timeout_s:g} s")
            check()
            self.poll()
            time.sleep(POLL_S)


def hold(bootstrap: str, transactional_id: str, write: Callable[[ck.Producer], object]) -> ck.Producer:
    """Writes records in a transaction that stays open: they are not visible yet."""
    producer = clients.producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 900_000,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    write(producer)
    if producer.flush(TIMEOUT_S):
        raise RunFailed("the broker did not take the records in time")
    return producer


class Outcome(NamedTuple):
    """The figures of a drain. CPU seconds are per million records."""

    cpu_s: float
    rate: float
    """Records a second."""
    broker_cpu_s: float
    others: float
    resident_mib: float
    """The most that was seen when results became visible."""


def drain(
    meter: Meter,
    ends: Ends,
    producer: ck.Producer,
    records: int,
    results: int,
    check: Callable[[], object],
    calm_s: float = CALM_S,
    then: Callable[[int], object] = lambda _: None,
) -> Outcome:
    """Makes held records visible, waits for their results, and returns what the program used meanwhile.

    `then` is called as soon as they are visible, with the end that the results must reach.
    """
    base, before = ends.last, meter.read()
    readings = [before]
    ends.on_move = lambda: readings.append(meter.read())
    producer.commit_transaction(60)
    then(base + results)
    ends.wait(base + results, check, calm_s)
    used, whole = subtract(readings[-1], before), subtract(meter.read(), before)
    million = 1e6 / records
    return Outcome(
        used.program * million,
        records / used.elapsed,
        used.broker * million,
        whole.others,
        max(reading.resident for reading in readings) / 2**20,
    )


def summarise(name: str, outcomes: Sequence[Outcome], more: str = "") -> str:
    """Returns a line with the medians of some runs, and the lowest and highest CPU time."""
    cpu = [one.cpu_s for one in outcomes]
    rate, broker, others = (statistics.median(one[place] for one in outcomes) for place in (1, 2, 3))
    return (
        f"{name:>14}: {statistics.median(cpu):.2f} CPU s per million records ({min(cpu):.2f} to {max(cpu):.2f}){more}; "
        f"{rate:,.0f} records/s, broker {broker:.2f} CPU s, other cores {others:.2f}"
    )
