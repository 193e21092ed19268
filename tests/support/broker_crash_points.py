"""Kills a daemon at the calls of one life, lets the next daemon recover, and compares what a read-committed reader
sees.

`python -m tests.support.broker_crash_points LIFE BOOTSTRAP DIRECTORY SEED READS [BUG]`: LIFE is a key of `WHOLE`. The
daemon is killed before and after every call that changes something, and before a seeded sample of READS other calls
(-1: all). BUG plants a bug to show that it is detected.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import confluent_kafka as ck
import kafka.protocol.admin.transactions
import kafka.protocol.consumer.fetch
import kafka.protocol.producer.transaction  # noqa: F401  generates code: once here, not in each child
import msgspec

from tests.support import clients
from tests.support.broker_life import (
    EFFECTS,
    LONG_MS,
    PARTITIONS,
    SINKS,
    WHOLE,
    Case,
    Daemon,
    build,
    by_partition,
    run_checkpoint,
    run_recovery,
)
from tests.support.crash_tracer import Child, Traced, run_free
from tests.support.storage_life import journal_of
from tests.waiting import wait_until
from tidegate.coordinator.permit import issue_permit
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.dev.broker.server import create_topics
from tidegate.ids import TopicPartition
from tidegate.journal.journal import Journal
from tidegate.kafka.facts import CoordinatorState
from tidegate.kafka.transactions import TransactionClient
from tidegate.storage.local import LocalStorage

Strike = tuple[str, int]
BATCH = 45
"""Number of cases whose producers are alive at the same time."""
AT_A_TIME = 4
READ_LIMIT_S = 300.0


def run_life(life: str, case: Case, strike: Strike | None) -> Traced:
    """Runs a life in a process of its own."""
    serve = run_checkpoint if life == "checkpoint" else run_recovery
    return run_free(lambda child: serve(child, case, strike))


def points_of(told: str) -> list[Strike]:
    """Returns the points that a life has passed, in order."""
    lines = [line.removeprefix("point ") for line in told.splitlines() if line.startswith("point ")]
    return [(name, int(number)) for name, number in (line.rsplit("#", 1) for line in lines)]


def choose(points: Sequence[Strike], reads: int, seed: int) -> list[Strike]:
    """Returns all points at effects and a sample of the others, in order."""
    effects = [point for point in points if point[0].split()[1] in EFFECTS]
    others = [point for point in points if point not in effects]
    sample = others if reads < 0 else random.Random(seed).sample(others, min(reads, len(others)))
    return [point for point in points if point in {*effects, *sample}]


def prepare(life: str, cases: Sequence[Case]) -> None:
    """Creates the topics and, unless the life does so itself, the transactions. The process is killed at the end."""

    def work(child: Child) -> None:
        bootstrap = cases[0].bootstrap
        create_topics(bootstrap, {name: count for case in cases for name, count in case.topics.items()})
        if life != "checkpoint":
            with ThreadPoolExecutor(AT_A_TIME) as threads:
                list(threads.map(lambda case: asyncio.run(build(case, life)), cases))
        if life == "salvage":
            _wait_timed_out(bootstrap, cases)
        child.tell("ready")

    found = run_free(work)
    assert found.told == "ready\n", found.told


def _wait_timed_out(bootstrap: str, cases: Sequence[Case]) -> None:
    client = TransactionClient({"bootstrap.servers": bootstrap})
    for case in cases:
        wait_until(
            lambda prefix=f"{case.pipeline}.": (  # type: ignore[misc]  # mypy cannot infer a lambda with a default
                sum(one.state is CoordinatorState.COMPLETE_ABORT for one in client.list_transactions(prefix)) == 3
            ),
            "the broker has timed three transactions out",
            LONG_MS / 1000 + 60,  # the builder may have needed as much time for its transactions
        )


def is_decided(case: Case) -> bool:
    """Returns whether the journal contains the checkpoint of the life."""
    newest = journal_of(LocalStorage(str(case.directory)), "reader").read().newest_checkpoint
    return newest is not None and bool(newest.committables)  # otherwise it is the start checkpoint


def judge(life: str, wanted: Sequence[tuple[Case, bool]]) -> Traced:
    """Reports violations: everything decided must be visible once and in order, nothing else, and no transaction stays
    open.
    """

    def work(child: Child) -> None:
        names = [(case, sink) for case, _ in wanted for sink in SINKS]
        parts = [TopicPartition(case.topic(sink), index) for case, sink in names for index in range(PARTITIONS)]
        found = _read(wanted[0][0].bootstrap, parts)
        for case, decided in wanted:
            for sink in SINKS:
                right = by_partition(WHOLE[life][sink] if decided else [])
                seen = {index: found[TopicPartition(case.topic(sink), index)] for index in range(PARTITIONS)}
                if seen != right:
                    child.tell(f"WRONG {case.pipeline} sink {sink}: {seen}, expected {right}")

    return run_free(work)


def _read(bootstrap: str, parts: Sequence[TopicPartition]) -> dict[TopicPartition, list[int]]:
    """Reads all committed records in the order of each partition."""
    client = TransactionClient({"bootstrap.servers": bootstrap})
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "judge",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 20,
    }
    plain = clients.consumer({**settings, "isolation.level": "read_uncommitted"})
    places = [ck.TopicPartition(part.topic, part.partition, 0) for part in parts]
    ends = {part: plain.get_watermark_offsets(place, timeout=60)[1] for part, place in zip(parts, places, strict=True)}
    plain.close()
    wait_until(lambda: client.stable_offsets(parts) == ends, "nothing is open")
    found: dict[TopicPartition, list[int]] = {part: [] for part in parts}
    committed = clients.consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        committed.assign(places)
        left, deadline = set(parts), time.monotonic() + READ_LIMIT_S
        while left:
            assert time.monotonic() < deadline, f"{left} were not read to their ends"
            for message in committed.consume(1, 0.1) + committed.consume(1000, 0):
                part = TopicPartition(message.topic() or "", message.partition() or 0)
                if message.error() is not None:
                    left.discard(part)
                else:
                    found[part].append(int(message.value() or b""))
        return found
    finally:
        committed.close()


async def _commit_first(daemon: Daemon, checkpoint: CompletedCheckpoint) -> None:
    await daemon.kafka.commit(issue_permit(checkpoint.id, checkpoint.committables))
    await asyncio.to_thread(daemon.journal.append_checkpoint, checkpoint)


def _plant(bug: str) -> None:
    match bug:
        case "commit-first":
            Daemon.take = _commit_first  # type: ignore[method-assign, assignment]  # a planted bug
        case "no-recommit":
            Journal.recovery_permit = lambda *_: None  # type: ignore[method-assign]  # a planted bug
        case _:
            raise ValueError(bug)


class Struck(msgspec.Struct):
    """The result of one case."""

    good: bool
    decided: bool
    """True if the life's checkpoint was decided."""
    story: str


def strike_case(life: str, case: Case, strike: Strike) -> Struck:
    """Kills a daemon at the point and lets the next one recover. Runs in a worker process with a single thread."""
    struck = run_life(life, case, strike)
    decided = life != "checkpoint" or is_decided(case)
    again = run_free(lambda child: run_recovery(child, case, None))
    good = struck.killed and again.exit_code == 0
    story = f"{life} killed {strike[0]} ({strike[1]}): {'decided' if decided else 'not decided'}"
    if not good:
        story += f"\nNOT ALLOWED: killed {struck.killed}\n{struck.told}\nthe next daemon:\n{again.told}"
    return Struck(good, decided, story)


class Run:
    """One life and its cases, in batches."""

    def __init__(self, life: str, bootstrap: str, folder: Path) -> None:
        self._life = life
        self._bootstrap = bootstrap
        self._folder = folder
        self.bad = 0

    def whole(self) -> list[Strike]:
        """Returns the points of a life without a fault."""
        case = self._make("whole")
        prepare(self._life, [case])
        found = run_life(self._life, case, None)
        assert found.exit_code == 0, found.told
        if self._life == "checkpoint":  # the next daemon ends the transactions that its slots left open
            run_life("recovery", case, None)
        self._judge([(case, True)])
        return points_of(found.told)

    def strike(self, strikes: Sequence[Strike]) -> None:
        """Runs a batch of cases. All are prepared first, so that timeouts elapse for all of them at once."""
        cases = [self._make(f"{name.replace(' ', '-')}-{number}") for name, number in strikes]
        prepare(self._life, cases)
        with ProcessPoolExecutor(AT_A_TIME, get_context("fork")) as workers:  # a case mostly waits for the broker
            struck = list(workers.map(strike_case, repeat(self._life), cases, strikes))
        for one in struck:
            print(one.story, flush=True)
            self.bad += not one.good
        self._judge([(case, one.decided) for case, one in zip(cases, struck, strict=True)])

    def _make(self, name: str) -> Case:
        return Case(f"{self._life}-{os.getpid()}-{name}", self._bootstrap, self._folder / self._life / name)

    def _judge(self, wanted: Sequence[tuple[Case, bool]]) -> None:
        judged = judge(self._life, wanted)
        print(judged.told, end="")
        self.bad += judged.told.count("WRONG") + (judged.exit_code != 0)


def main() -> int:
    """Runs the cases as described in the module; the last line is the result."""
    life, bootstrap, folder, seed, reads, *bugs = sys.argv[1:]
    logging.getLogger("tidegate").setLevel(logging.ERROR)  # each salvage logs warnings
    print(f"seed {seed}")
    lives = Run(life, bootstrap, Path(folder))
    points = lives.whole()
    for bug in bugs:
        _plant(bug)
    strikes = choose(points, int(reads), int(seed))
    for start in range(0, len(strikes), BATCH):
        lives.strike(strikes[start : start + BATCH])
    print(f"{life}: {len(strikes)} of {len(points)} points, {lives.bad} not in an allowed state", flush=True)
    return 1 if lives.bad or not strikes else 0


if __name__ == "__main__":
    sys.exit(main())
