"""A pipeline between two clusters is exact on 200,000 records, whatever fails on either side.

Rows go from each cluster to the other one, within one, and into running totals over both; topics of both clusters have
the same names. Slots, daemons and either broker are killed, a broker is frozen, and either is away for longer than
transactions live: while the daemon waits for it, and while there is none although transactions are decided. The
parallelism is another one in each daemon.

With `--outage MINUTES`, either broker is away for that long while the daemon runs, and transactions have their default
timeout.
"""

from __future__ import annotations

import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import msgspec
from typing_extensions import override

from tests.night.parts import Campaign
from tests.night.story import Night, Result
from tests.support.campaign import Job, Record, deliver_parts, read_rows
from tests.support.daemon_process import DaemonProcess
from tests.support.rig import read_journal
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker
from tidegate.ids import MAIN_CLUSTER, ClusterName
from tidegate.kafka.facts import CoordinatorState
from tidegate.kafka.transactions import TransactionClient

ROWS: Final = 200_000
"""In a night of full length, half of them in each cluster."""
RATE: Final = 1_000
"""Rows a second in each cluster."""
KEYS: Final = 500
PARTITIONS: Final = 4
CHUNK: Final = 250
SLOTS: Final = (2, 4, 3, 2)
FAR: Final = ClusterName("far")
SIDES: Final = (MAIN_CLUSTER, FAR)
TIMEOUT_S: Final = 25
"""How long transactions live."""
BEYOND_S: Final = 15.0
"""How much longer a cluster is away, and more than the daemon needs to notice."""
EXPIRY: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
OUTPUTS: Final = {"to_far": (FAR, "out"), "to_near": (MAIN_CLUSTER, "out"), "within": (FAR, "same")}
TOTALS: Final = "totals"
AGAIN: Final = re.compile(r"records again")
OUTPUT_S: Final = 600.0
ENDED: Final = {CoordinatorState.COMPLETE_ABORT, CoordinatorState.COMPLETE_COMMIT, CoordinatorState.EMPTY}


class Row(msgspec.Struct, frozen=True):
    """A record; `side` is the cluster that it is written to."""

    id: int
    key: str
    side: str


def run(night: Night) -> Result:
    """See the module."""
    with ExitStack() as stack:
        brokers = {
            side: stack.enter_context(DevelopmentBroker(night.place / f"broker-{side}", properties=EXPIRY))
            for side in SIDES
        }
        campaign = stack.enter_context(_Campaign(night, brokers))
        campaign.play()
        campaign.compare()
    return night.close()


class _Campaign(Campaign[Row]):
    """The pipeline. Each phase writes its part of the rows of both sides."""

    def __init__(self, night: Night, brokers: dict[ClusterName, DevelopmentBroker]) -> None:
        self._phases = [self._kill_a_slot, self._kill_brokers, self._freeze_a_broker, self._kill_the_daemon]
        self._phases += [self._outlast_transactions] * 2
        if night.outage_s is None:
            self._phases += [self._lose_transactions] * 2
        rows = _make_rows(night.seed, max(20_000, round(ROWS * night.scale)))
        count = len(self._phases)
        super().__init__(
            night, [rows[len(rows) * at // count : len(rows) * (at + 1) // count] for at in range(count)], OUTPUT_S
        )
        self._brokers = brokers
        self._sides = night.dice.sample(SIDES, len(SIDES))
        """Which cluster is hit first."""
        self._number = 0
        bootstraps = {side: broker.bootstrap for side, broker in brokers.items()}
        self._job = Job("two-clusters", bootstraps[MAIN_CLUSTER], night.place / "job", _settings(bootstraps, night))
        (night.place / "job").mkdir()
        brokers[MAIN_CLUSTER].create_topics(dict.fromkeys(("orders", "out", TOTALS), PARTITIONS))
        brokers[FAR].create_topics(dict.fromkeys(("orders", "out", "same"), PARTITIONS))
        for what, least in {"slots killed": 1, "daemons killed": 1, "restores": 1, "brokers frozen": 1}.items():
            night.least(what, least)
        for side in SIDES:
            night.least(f"broker {side} killed")
            night.least(f"outage of {side} beyond the transaction timeout")
        if night.outage_s is None:
            night.least("daemons that died between a decision and its commits", 2)
            night.least("salvages", 1)

    @override
    def play(self) -> None:
        self.begin(0)
        for phase, rows in zip(self._phases, self.parts, strict=True):
            phase(rows)

    @override
    def make_daemon(self, number: int) -> DaemonProcess:
        return self._job.daemon(number, SLOTS[number % len(SLOTS)])

    @override
    def write(self, chunks: Sequence[Row]) -> None:
        for writer in [self._write_side(side, chunks) for side in SIDES]:
            self.join(writer)

    @override
    def count_rows(self, output: str) -> int:
        return len(self._read(output))

    @override
    def read_log(self, daemon: DaemonProcess) -> None:
        super().read_log(daemon)
        self.count("salvages", len(AGAIN.findall(daemon.text())))

    # -- the phases ----------------------------------------------------------------------------------------------------

    def _kill_a_slot(self, rows: Sequence[Row]) -> None:
        writer, daemon = self.start_writing(rows), self._running
        daemon.wait_committed()
        self.kill_slot(daemon)
        self.join(writer)

    def _kill_brokers(self, rows: Sequence[Row]) -> None:
        writer, daemon = self.start_writing(rows), self._running
        for side in self._sides:
            self.night.pause(0.5, 2.0)
            self._brokers[side].kill()
            self.count(f"broker {side} killed")
            self.night.pause(0.5, 8.0)
            self._brokers[side].start()
            with self.night.recovery():
                daemon.wait_checkpoints(2)
        self.join(writer)

    def _freeze_a_broker(self, rows: Sequence[Row]) -> None:
        writer, daemon = self.start_writing(rows), self._running
        broker = self._brokers[self.night.dice.choice(SIDES)]
        self.night.pause(0.5, 2.0)
        broker.pause()
        try:
            self.night.pause(3.0, 15.0)
        finally:
            broker.resume()
        self.count("brokers frozen")
        with self.night.recovery():
            daemon.wait_checkpoints(2)
        self.join(writer)

    def _kill_the_daemon(self, rows: Sequence[Row]) -> None:
        writer = self.start_writing(rows)
        self.night.pause(0.5, 3.0)
        self.kill_daemon(self._running)
        self._begin_next()
        self.join(writer)

    def _outlast_transactions(self, rows: Sequence[Row]) -> None:
        """A broker is away for longer than transactions live; the daemon waits, and rows arrive on the other side."""
        side, daemon = self._take_side(), self._running
        self.join(self._write_side(side, rows))
        other = self._write_side(SIDES[1 - SIDES.index(side)], rows)
        self._brokers[side].kill()
        self.count(f"broker {side} killed")
        threading.Event().wait(self.night.outage_s or TIMEOUT_S + BEYOND_S)
        daemon.assert_alive()
        self._brokers[side].start()
        self.count(f"outage of {side} beyond the transaction timeout")
        with self.night.recovery():
            daemon.wait_checkpoints(2)
        self.join(other)

    def _lose_transactions(self, rows: Sequence[Row]) -> None:
        """A daemon dies between a decision and its commits, and both clusters abort what was decided.

        One of them is away meanwhile.
        """
        side = self._take_side()
        self.kill_daemon(self._running)
        writer = self.start_writing(rows)
        self._number += 1
        command = ("-m", "tests.support.faulty_daemon", "after-append", "1")
        dying = self.daemon = self._job.daemon(self._number, SLOTS[self._number % len(SLOTS)], *command)
        code = dying.start().wait()
        assert code == -signal.SIGKILL, f"exit code {code}\n{dying.text()[-3000:]}"
        self.count("daemons that died between a decision and its commits")
        self.join(writer)
        self._brokers[side].kill()
        self.count(f"broker {side} killed")
        threading.Event().wait(TIMEOUT_S + BEYOND_S)
        self._brokers[side].start()
        wait_until(self._has_expired, "the brokers have timed the listed transactions out")
        self._begin_next()
        self._running.wait_checkpoints(2)

    # -- helpers -------------------------------------------------------------------------------------------------------

    @property
    def _running(self) -> DaemonProcess:
        assert self.daemon is not None
        return self.daemon

    def _begin_next(self) -> None:
        self._number += 1
        self.begin(self._number)

    def _take_side(self) -> ClusterName:
        """Returns the cluster that is hit next."""
        self._sides = [*self._sides[1:], self._sides[0]]
        return self._sides[0]

    def _has_expired(self) -> bool:
        """Returns whether all transactions of the newest journal entry have ended, and one of them by an abort."""
        listed = read_journal(self._job.place / "checkpoints").committables
        states: list[CoordinatorState] = []
        for side, broker in self._brokers.items():
            client = TransactionClient({"bootstrap.servers": broker.bootstrap})
            try:
                found = [client.describe(one.transactional_id) for one in listed if one.cluster == side]
            finally:
                client.close()
            states += [one.state for one in found if one is not None]
        return CoordinatorState.COMPLETE_ABORT in states and set(states) <= ENDED

    def _write_side(self, side: ClusterName, rows: Sequence[Row]) -> threading.Thread:
        of_side = [row for row in rows if row.side == side]
        chunks = [of_side[at : at + CHUNK] for at in range(0, len(of_side), CHUNK)]
        bootstrap = self._brokers[side].bootstrap
        writer = threading.Thread(target=deliver_parts, args=(bootstrap, map(_paced, chunks)), daemon=True)
        writer.start()
        return writer

    # -- the comparison ------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Waits for all output, ends the daemon and compares."""
        rows = [row for part in self.parts for row in part]
        wanted = {name: [row for row in rows if row.side == _source_of(name)] for name in OUTPUTS}
        self.finish({name: len(expected) for name, expected in wanted.items()} | {TOTALS: len(rows)})
        for name, expected in wanted.items():
            found = self._read(name)
            self.note(name, Counter(_plain(row) for row in expected), Counter(_plain(row) for row in found))
            self._check_order(name, found, "id")
        totals = self._read(TOTALS)
        self.note(TOTALS, Counter(row.id for row in rows), Counter(row["last_id"] for row in totals))
        self._check_order(TOTALS, totals, "records", by_one=True)

    def _check_order(self, name: str, found: Sequence[dict[str, Any]], column: str, *, by_one: bool = False) -> None:
        """Checks that the column grows in the rows of each key; `by_one`: from 1 on, without a gap."""
        newest: dict[str, int] = {}
        for row in found:
            before = newest.get(row["key"], 0)
            if row[column] <= before or (by_one and row[column] != before + 1):
                self.night.result.out_of_order += 1
                self.night.problem(f"{name}: {row} comes after {before}")
                return
            newest[row["key"]] = row[column]

    def _read(self, output: str) -> list[dict[str, Any]]:
        side, topic = OUTPUTS.get(output, (MAIN_CLUSTER, output))
        return [row for part in read_rows(self._brokers[side].bootstrap, topic) for row in part]


def _make_rows(seed: int, count: int) -> list[Row]:
    """Returns the rows of both sides in turn; ids begin at 1."""
    keys = [f"k{(seed + at // 2 * 7919) % KEYS}" for at in range(count)]
    return [Row(at + 1, keys[at], SIDES[at % 2]) for at in range(count)]


def _plain(row: Any) -> tuple[Any, ...]:
    return (row.id, row.key, row.side) if isinstance(row, Row) else (row["id"], row["key"], row["side"])


def _source_of(output: str) -> ClusterName:
    """Returns the cluster whose rows an output has."""
    return MAIN_CLUSTER if output == "to_far" else FAR


def _paced(rows: Sequence[Row]) -> Iterator[Record]:
    for row in rows:
        yield Record("orders", int(row.key[1:]) % PARTITIONS, None, msgspec.json.encode(row))
    threading.Event().wait(len(rows) / RATE)


def _settings(bootstraps: dict[ClusterName, str], night: Night) -> dict[str, Any]:
    """Returns the sections of the pipeline file."""
    source = {
        "topic": "orders",
        "format": "json",
        "schema": {"id": "bigint", "key": "string", "side": "string"},
        "start": "earliest",
    }
    short = {"timeout": "10s", "transaction_timeout": f"{TIMEOUT_S}s"} if night.outage_s is None else {}
    return {
        "clusters": {FAR: {"bootstrap.servers": bootstraps[FAR]}},
        "checkpoints": {"interval": "500ms", **short},
        "sources": {"near": source, "far": {**source, "cluster": FAR}},
        "steps": [
            {
                "name": TOTALS,
                "from": ["near", "far"],
                "key": "key",
                "aggregate": {"records": "count(*)", "last_id": "last(id)"},
            }
        ],
        "sinks": {
            **{
                name: {"topic": topic, "from": source_of, "format": "json", "key": "key", **_in(cluster)}
                for (name, (cluster, topic)), source_of in zip(OUTPUTS.items(), ("near", "far", "far"), strict=True)
            },
            "sums": {"topic": TOTALS, "from": TOTALS, "format": "json", "key": "key"},
        },
    }


def _in(cluster: ClusterName) -> dict[str, str]:
    return {} if cluster == MAIN_CLUSTER else {"cluster": cluster}
