"""`make bench`: Tidegate, Flink, Kafka Streams and a plain client loop on the same orders, every result checked.

    python bench/compare.py [--engines raw,tidegate,flink,streams] [--workloads W1,W2,W3]
        [--measures drain,latency,rates] [--records 1000000] [--repeat 5] [--minutes-max 60]
        [--load-max 0.2] [--accept-load] [--results FILE]
    python bench/compare.py --report FILE [--into docs/performance.md]

drain     a program that is warm and idle gets all orders at once: CPU seconds per million orders, orders a second
latency   orders arrive at 5,000 a second, commits every 100 ms and every second: from the order to a reader of
          committed records
rates     the same at 200, 2,000 and 10,000 a second, and with no orders at all: cores, commits every second

The broker is this command's own. Its first drains, `--discard` of them, only warm it up. Engines take turns, in
their order and in the reverse order, so that each also runs right after each of its neighbours. A run starts only when
other programs use at most `--load-max` cores, and one during which they used more is left out of every table, unless
the load is accepted. Each run is a line of JSON in the file of results. When the minutes are over, the command ends in
order with what it has. Exit code 1 if a run failed or a result was wrong, 3 if the machine is too busy.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka as ck

from bench.engines import Engine, Place, Setup, prepare
from bench.orders import Orders, Output, check
from bench.report import describe_machine, insert_report, render_report
from bench.support import (
    CALM_S,
    Ends,
    MachineBusy,
    Meter,
    Program,
    RunFailed,
    drain,
    hold,
    open_broker,
    order_of,
    subtract,
    wait_quiet,
)
from tests.support import clients
from tidegate.dev.broker.server import create_topics

HERE: Final = Path(__file__).resolve().parent
WARM: Final = 100_000
READ_S: Final = 120.0
SETTLE_S: Final = 3
LATENCY: Final = tuple((5_000, interval_ms) for interval_ms in (100, 1_000))
RATES: Final = tuple((rate, 1_000) for rate in (200, 2_000, 10_000))
SLOW: Final = 1.2
"""Orders were not written at their rate if it took so many times longer."""
TICK_S: Final = 0.005
BEHIND: Final = 200_000
CONSUMED_S: Final = 120.0
ROUND_S: Final = 1.2
ROUNDS: Final = 25
"""So few that closing orders, a second apart, do not close the windows of each other."""

Row = dict[str, Any]


class Bench(NamedTuple):
    """What all runs share."""

    bootstrap: str
    broker: int
    """The pid of the broker."""
    directory: Path
    engines: Mapping[str, Engine]


@contextmanager
def open_run(bench: Bench, name: str, setup: Setup) -> Iterator[tuple[Place, Program, Ends]]:
    """Starts an engine on topics of its own, which are deleted at the end."""
    run = f"{name.partition('=')[0]}-{setup.workload}-{time.time_ns() // 1_000_000}".lower()
    place = Place(bench.bootstrap, run, bench.directory / run)
    place.directory.mkdir()
    create_topics(bench.bootstrap, dict.fromkeys((place.input, place.output), setup.partitions))
    try:
        command = [str(one) for one in bench.engines[name].command(setup, place)]
        with Program(command, place.directory / "log") as program:
            yield place, program, Ends(bench.bootstrap, place.output, setup.partitions)
    finally:
        admin = clients.admin({"bootstrap.servers": bench.bootstrap})
        clients.delete_topics(
            bench.bootstrap, [one for one in admin.list_topics(timeout=30).topics if one.startswith(run)]
        )


class Load(NamedTuple):
    """Writes orders for one run, and closes its windows."""

    orders: Orders
    setup: Setup
    place: Place
    engine: Engine
    program: Program
    ends: Ends

    def warm_up(self) -> float:
        """Lets the engine work off the warm-up block. Returns the seconds from its start to the first result."""
        with self._producer() as producer:
            self._write(producer, 0, self.orders.warm)
            self._flush(producer)
        results = self.orders.expected(self.setup.workload, self.orders.warm).height
        self.close_windows(self.orders.warm, results)
        self.ends.wait(results, self.program.check, calm_s=self.calm_s)
        return self.ends.first_at - self.program.started

    @property
    def calm_s(self) -> float:
        """Without a new result for so long, the run is over."""
        return max(CALM_S, 3 * self.setup.interval_ms / 1000)

    def hold_main(self) -> ck.Producer:
        """Writes the main block, which is not visible yet."""

        def write(producer: ck.Producer) -> None:
            self._write(producer, self.orders.warm, self.orders.total)
            if self.setup.workload == "W3" and not self.engine.follows_fastest:
                self._write_closing(producer, self.orders.total)

        return hold(self.place.bootstrap, f"{self.place.name}-input", write)

    def close_windows(self, last: int, end: int) -> None:
        """Writes orders that close the windows of the first `last` orders, if the workload has windows.

        An engine that follows the fastest partition gets them when all others are read, and again until the results
        have reached `end`: Kafka Streams looks for windows to close at most once a second, and only when a record
        arrives.
        """
        if self.setup.workload != "W3":
            return
        if not self.engine.follows_fastest:
            self._close_once(last, 0)
            return
        self._wait_consumed()
        more = 1  # markers of transactions count as results, so the end may be reached too early
        for number in range(ROUNDS):
            self._close_once(last, number * 1000)
            until = time.monotonic() + ROUND_S
            while time.monotonic() < until:
                self.program.check()
                self.ends.poll()
                time.sleep(0.1)
            more -= self.ends.last >= end
            if more < 0:
                return

    def close_main_windows(self, end: int) -> None:
        """Closes the windows of the main block, unless it contains orders that do."""
        if self.engine.follows_fastest:
            self.close_windows(self.orders.total, end)

    def _close_once(self, last: int, ahead_ms: int) -> None:
        with self._producer() as producer:
            self._write_closing(producer, last, ahead_ms)
            self._flush(producer)

    def pace(self, first: int, count: int, rate: int) -> None:
        """Writes orders at this rate. Their event time is the time of the machine."""
        with self._producer(**{"linger.ms": 1}) as producer:
            texts = self.orders.texts(first, first + count)
            begun = time.monotonic()
            for number, (key, head, _, tail) in enumerate(texts):
                wait_s = begun + number / rate - time.monotonic()
                if wait_s > 0:
                    producer.poll(0)
                    time.sleep(max(wait_s, TICK_S))
                producer.produce(self.place.input, b"%s%d%s" % (head, time.time() * 1000, tail), key)
            self._flush(producer)

    def _wait_consumed(self) -> None:
        """Waits until the group of the engine has committed all that is visible in the input, but for markers."""
        admin = clients.admin({"bootstrap.servers": self.place.bootstrap})
        visible = Ends(self.place.bootstrap, self.place.input, self.setup.partitions)
        deadline = time.monotonic() + CONSUMED_S
        while time.monotonic() < deadline:
            self.program.check()
            visible.poll()
            found = admin.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(self.place.name)])
            places = found[self.place.name].result(30).topic_partitions
            read = sum(one.offset for one in places if one.topic == self.place.input and one.offset > 0)
            if read >= visible.last - 2 * self.setup.partitions:
                return
            time.sleep(0.1)
        raise RunFailed(f"the orders were not read in {CONSUMED_S:g} s")

    def _producer(self, **settings: object) -> ck.Producer:
        return clients.producer(
            {
                "bootstrap.servers": self.place.bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 2 * BEHIND,
                "linger.ms": 20,
                **settings,
            }
        )

    def _write(self, producer: ck.Producer, first: int, last: int) -> None:
        for number, batch in enumerate(self.orders.messages(first, last)):
            if number == 0:  # records may change their order while the client does not know the topic
                producer.produce_batch(self.place.input, batch[:1])
                self._flush(producer)
                del batch[:1]
            producer.produce_batch(self.place.input, batch)
            while len(producer) > BEHIND:
                producer.poll(0.01)

    def _write_closing(self, producer: ck.Producer, last: int, ahead_ms: int = 0) -> None:
        for partition in range(self.setup.partitions):
            producer.produce_batch(self.place.input, self.orders.closing(last, ahead_ms), partition=partition)

    def _flush(self, producer: ck.Producer) -> None:
        if producer.flush(60):
            raise RunFailed("the broker did not take the records in time")


def read_output(bootstrap: str, topic: str, partitions: int) -> Output:
    """Reads all committed records of a topic."""
    settings = {"enable.partition.eof": True, "fetch.message.max.bytes": 8 << 20, "check.crcs": False}
    output, deadline = Output([], [], []), time.monotonic() + READ_S
    ended: set[int | None] = set()
    with open_reader(bootstrap, topic, partitions, settings) as consumer:
        while len(ended) < partitions:
            if time.monotonic() > deadline:
                raise RunFailed("the results were not read in time")
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is None:
                    ended.discard(message.partition())
                    keep(output, message)
                elif error.code() == ck.KafkaError._PARTITION_EOF:  # noqa: SLF001  the client's code
                    ended.add(message.partition())
                else:
                    raise RunFailed(f"the results cannot be read: {error}")
    return output


@contextmanager
def open_reader(bootstrap: str, topic: str, partitions: int, settings: Mapping[str, object]) -> Iterator[ck.Consumer]:
    """Opens a reader of committed records from the beginning."""
    own = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = clients.consumer({**own, "isolation.level": "read_committed", **settings})
    try:
        consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(partitions)])
        yield consumer
    finally:
        consumer.close()


def keep(output: Output, message: ck.Message) -> None:
    """Adds a record."""
    output.partitions.append(message.partition() or 0)
    output.keys.append(message.key())
    output.values.append(message.value() or b"null")


class Arrivals(threading.Thread):
    """Reads results while they become visible, and keeps when each arrived."""

    def __init__(self, place: Place, partitions: int) -> None:
        super().__init__(daemon=True)
        self.output = Output([], [], [])
        self.times: list[float] = []
        self._place, self._partitions = place, partitions
        self._stopped = threading.Event()
        self.start()

    def run(self) -> None:
        """Reads until it is stopped."""
        with open_reader(self._place.bootstrap, self._place.output, self._partitions, {}) as consumer:
            while not self._stopped.is_set():
                messages = consumer.consume(1000, 0.02)
                now = time.time() * 1000
                for message in messages:
                    if message.error() is None:
                        keep(self.output, message)
                        self.times.append(now)

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        self.join()


def run_drain(bench: Bench, name: str, setup: Setup, orders: Orders) -> Row:
    """Measures a drain."""
    engine = bench.engines[name]
    with open_run(bench, name, setup) as (place, program, ends):
        load = Load(orders, setup, place, engine, program, ends)
        start_s = load.warm_up()
        expected = orders.expected(setup.workload, orders.total)
        results = expected.height - orders.expected(setup.workload, orders.warm).height
        producer = load.hold_main()
        meter = Meter(program.pid, bench.broker)
        outcome = drain(
            meter, ends, producer, orders.main, results, program.check, load.calm_s, load.close_main_windows
        )
        output = read_output(bench.bootstrap, place.output, setup.partitions)
    return {
        "records": orders.main,
        "cpu_s_per_m": round(outcome.cpu_s, 3),
        "records_per_s": round(outcome.rate),
        "broker_cpu_s_per_m": round(outcome.broker_cpu_s, 3),
        "others_cores": round(outcome.others, 3),
        "resident_mib": round(outcome.resident_mib),
        "start_s": round(start_s, 2),
        "check": check(setup.workload, expected, output.frame(setup.workload)),
    }


def run_paced(bench: Bench, name: str, setup: Setup, orders: Orders, rate: int, seconds: int) -> Row:
    """Measures latency and cores while orders arrive at a rate, or cores alone where that is 0."""
    with open_run(bench, name, setup) as (place, program, ends):
        load = Load(orders, setup, place, bench.engines[name], program, ends)
        load.warm_up()
        arrivals = Arrivals(place, setup.partitions)
        meter = Meter(program.pid, bench.broker)
        try:
            settled = SETTLE_S * rate
            if rate:
                load.pace(orders.warm, settled, rate)
            else:
                time.sleep(SETTLE_S)
            since, before = time.time() * 1000, meter.read()
            if rate:
                load.pace(orders.warm + settled, seconds * rate, rate)
            else:
                time.sleep(seconds)
            used = subtract(meter.read(), before)
            if used.elapsed > SLOW * seconds:
                raise RunFailed(f"the orders of {seconds} s were written in {used.elapsed:.1f} s")
            expected = orders.expected(setup.workload, orders.warm + (SETTLE_S + seconds) * rate)
            deadline = time.monotonic() + READ_S
            while len(arrivals.times) < expected.height and time.monotonic() < deadline:
                program.check()
                time.sleep(0.1)
        finally:
            arrivals.stop()
    found = arrivals.output.frame(setup.workload)
    latency = sorted(
        arrived - at
        for arrived, at in zip(arrivals.times, found["ts"].fill_null(0).to_list(), strict=True)
        if at >= since
    )
    row: Row = {
        "rate": rate,
        "seconds": seconds,
        "cores": round(used.program / used.elapsed, 3),
        "broker_cores": round(used.broker / used.elapsed, 3),
        "others_cores": round(used.others, 3),
        "check": check(setup.workload, expected, found, ("ts",)),
    }
    if latency:
        row |= {f"p{share}_ms": round(latency[len(latency) * share // 100], 1) for share in (50, 99)}
    return row


class Case(NamedTuple):
    """One measurement of every engine."""

    measure: str
    setup: Setup
    rate: int = 0


def list_cases(measures: Sequence[str], workloads: Sequence[str]) -> list[Case]:
    """Lists what is measured in each turn. Latency and rates are those of W1 and W2; a pipeline is idle as W1."""
    cases = []
    if "drain" in measures:
        cases += [Case("drain", Setup(workload)) for workload in workloads]
    for measure, settings in (("latency", LATENCY), ("rates", RATES)):
        paced = [workload for workload in workloads if workload != "W3"] if measure in measures else []
        cases += [
            Case(measure, Setup(workload, interval_ms), rate) for workload in paced for rate, interval_ms in settings
        ]
    if "rates" in measures:
        cases.append(Case("rates", Setup("W1")))
    return cases


class Journal(NamedTuple):
    """Runs cases and writes a line for each."""

    bench: Bench
    results: Path
    load_max: float
    """Cores of other programs; infinite if any load is accepted."""
    machine: Row

    def run(self, name: str, case: Case, orders: Orders, seconds: int, turn: int) -> Row:
        """Runs one case, and returns its row; without figures if it failed. Raises MachineBusy."""
        if self.load_max < float("inf"):
            wait_quiet(self.load_max)
        setup = case.setup
        row: Row = {"engine": name, "label": self.bench.engines[name].label, "measure": case.measure, "turn": turn}
        row |= {**setup._asdict(), "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **self.machine}
        try:
            if case.measure == "drain":
                row |= run_drain(self.bench, name, setup, orders)
            else:
                paced = Orders(WARM // 2, (SETTLE_S + seconds) * case.rate)
                row |= run_paced(self.bench, name, setup, paced, case.rate, seconds)
            wrong = {key: count for key, count in row["check"].items() if key != "results"}
            if wrong:
                row["error"] = f"the results are wrong: {wrong}"
        except Exception as error:  # noqa: BLE001  the row has the reason, and the next run begins
            row["error"] = f"{type(error).__name__}: {error}"
        row["loaded"] = row.get("others_cores", 0) > self.load_max
        if turn >= 0:
            with self.results.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
        return row


def run_all(options: argparse.Namespace) -> int:
    """Runs all cases in turns, until they are done or the time is over."""
    names, deadline = options.engines.split(","), time.monotonic() + options.minutes_max * 60
    engines = {name: prepare(name) for name in names}
    cases = list_cases(options.measures.split(","), options.workloads.split(","))
    orders = Orders(min(WARM, options.records), options.records)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with open_broker() as (broker, directory):
        assert broker.pid is not None
        bench = Bench(broker.bootstrap, broker.pid, directory, engines)
        limit = float("inf") if options.accept_load else options.load_max
        journal = Journal(bench, options.results, limit, describe_machine())
        for turn in range(-options.discard, 0):
            print_row(journal.run(names[0], Case("drain", Setup("W1")), orders, 0, turn), "discarded")
        return run_turns(journal, cases, orders, options, deadline)


def run_turns(
    journal: Journal, cases: Sequence[Case], orders: Orders, options: argparse.Namespace, deadline: float
) -> int:
    """Runs all cases with all engines, turn by turn. What failed is not run again. Returns the exit code."""
    names = list(journal.bench.engines)
    total, done, longest = options.repeat * len(cases) * len(names), 0, 0.0
    failed: set[tuple[str, Case]] = set()
    for turn, case in itertools.product(range(options.repeat), cases):
        for name in order_of(names, turn):
            begun = time.monotonic()
            if begun + longest > deadline:
                print(f"the time is over: {done} of {total} runs", flush=True)
                return int(bool(failed))
            done += 1
            if (name, case) in failed:
                continue
            row = journal.run(name, case, orders, options.seconds, turn)
            longest = max(longest, time.monotonic() - begun)
            print_row(row, f"{done} of {total}")
            if "error" in row:
                failed.add((name, case))
    return int(bool(failed))


def print_row(row: Row, what: str) -> None:
    """Prints one run."""
    shown = (
        "cpu_s_per_m",
        "records_per_s",
        "broker_cpu_s_per_m",
        "cores",
        "p50_ms",
        "p99_ms",
        "others_cores",
        "check",
        "error",
    )
    figures = ", ".join(f"{name} {row[name]}" for name in shown if name in row)
    rate = f" {row['rate']}/s" if "rate" in row else ""
    print(
        f"{what}: {row['engine']} {row['workload']} {row['measure']}{rate} {row['interval_ms']} ms: {figures}",
        flush=True,
    )


def main() -> int:
    """See the module."""
    options = _parse()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ends what was started
    if options.report is not None:
        rows = [json.loads(line) for line in options.report.read_text().splitlines()]
        if options.into is None:
            print(render_report(rows))
        else:
            insert_report(options.into, rows)
        return 0
    try:
        status = run_all(options)
    except MachineBusy as error:
        print(f"{error}; --accept-load goes on nevertheless", file=sys.stderr)
        status = 3
    if options.results.exists():
        print(render_report([json.loads(line) for line in options.results.read_text().splitlines()]))
        print(f"kept in {options.results}")
    return status


def add_limits(parser: argparse.ArgumentParser, results: Path, repeat: int) -> None:
    """Adds the options that `sweep.py` has also."""
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=repeat)
    parser.add_argument("--minutes-max", type=float, default=60)
    parser.add_argument("--load-max", type=float, default=0.2)
    parser.add_argument("--accept-load", action="store_true")
    parser.add_argument("--results", type=Path, default=results)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default="raw,tidegate,flink,streams")
    parser.add_argument("--workloads", default="W1,W2,W3")
    parser.add_argument("--measures", default="drain")
    parser.add_argument("--seconds", type=int, default=20, help="how long latency and cores are measured")
    parser.add_argument("--discard", type=int, default=2)
    add_limits(parser, HERE / "results" / time.strftime("%Y-%m-%d-%H%M%S.jsonl"), repeat=5)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--into", type=Path, help="the page whose table is replaced")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
