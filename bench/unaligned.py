"""Checkpoint times under backpressure, aligned against unaligned, on real Spark and a real broker of its own.

    python bench/unaligned.py [--depths 20000,80000,240000] [--repeat 2] [--queue 600]

A slow sink, two subtasks with four input channels each. For each setting of `checkpoints.unaligned` a daemon first
works under a trickle ("unloaded"); then bursts of records, far faster than the sink, fill the channels, and every
checkpoint until the burst is through is measured. A sink has to send what it was given before the barrier, so the table
shows that part (prepare), the way of the barriers (start delay and alignment) and the whole. Exit code 1 when the
median unaligned checkpoint takes more than twice the unloaded one, or when the aligned ones do not grow with the queue.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bench.support import open_broker
from tidegate.daemon.status import PipelineState, Status
from tidegate.dev.broker.server import create_topics
from tidegate.dev.demo.daemon import DemoDaemon
from tidegate.dev.demo.verify import Order, make_orders, write_orders

HERE = Path(__file__).resolve().parent
MODES: Final = ("never", "always", "after 200ms")
TRICKLE_RATE: Final = 200.0
TRICKLE_S: Final = 8
TIMEOUT_S: Final = 240.0
POLL_S: Final = 0.1
LINE = re.compile(
    r"checkpoint \d+ completed in (?P<total>[\d.]+ m?s) \(start delay (?P<delay>[\d.]+ m?s), "
    r"alignment (?P<alignment>[\d.]+ m?s), .*?prepare (?P<prepare>[\d.]+ m?s),.*?\): state [^(]*?"
    r"(?:\((?P<inflight>[\d.]+ \w+) of it rows in flight\))?, commits (?P<records>[\d,]+) records?"
)


class Checkpoint(NamedTuple):
    """One line of the log, times in ms."""

    total: float
    barriers: float
    prepare: float
    inflight: str
    records: int


def main() -> int:
    """See the module."""
    options = _parse()
    depths = [int(depth) for depth in options.depths.split(",")]
    results: dict[tuple[str, int], list[Checkpoint]] = {}
    with open_broker() as (broker, directory):
        for mode in MODES:
            for depth, found in _run(broker.bootstrap, directory, mode, depths, options):
                results.setdefault((mode, depth), []).extend(found)
    return _report(results, depths)


def _run(
    bootstrap: str, directory: Path, mode: str, depths: list[int], options: argparse.Namespace
) -> Iterator[tuple[int, list[Checkpoint]]]:
    """Depth (0: unloaded) and the checkpoints measured at it."""
    name = f"bench-{mode.replace(' ', '-')}"
    topics = [f"{name}-left", f"{name}-right"]
    create_topics(bootstrap, dict.fromkeys([*topics, f"{name}-totals"], 4))
    environ = {
        "KAFKA_BOOTSTRAP": bootstrap,
        "BENCH_NAME": name,
        "BENCH_STATE": str(directory / name),
        "BENCH_UNALIGNED": mode,
        "BENCH_QUEUE": str(options.queue),
    }
    log = directory / f"{name}.log"
    daemon = DemoDaemon(HERE / "unaligned.yaml", environ, log, _ignore)
    daemon.start()
    try:
        daemon.wait_for(_is_running, "running", TIMEOUT_S)
        done = _wait_committed(log, _write(bootstrap, topics, 1000, None), TIMEOUT_S)  # warm
        count = int(TRICKLE_RATE * TRICKLE_S)
        done, before = _wait_committed(log, done + _write(bootstrap, topics, count, TRICKLE_RATE), TIMEOUT_S), done
        yield 0, _checkpoints(log, before, done)
        for _ in range(options.repeat):
            for depth in depths:
                before = done
                done = _wait_committed(log, done + _write(bootstrap, topics, depth, None), TIMEOUT_S)
                yield depth, _checkpoints(log, before, done)
    finally:
        daemon.close()


def _is_running(status: Status) -> bool:
    return status.state is PipelineState.RUNNING


def _write(bootstrap: str, topics: list[str], count: int, rate: float | None) -> int:
    """Half of the orders into each topic; their number."""
    orders: list[Order] = list(make_orders(count, seed=1))
    for index, topic in enumerate(topics):
        write_orders(bootstrap, topic, iter(orders[index::2]), rate)
    return count


def _wait_committed(log: Path, records: int, timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    while sum(each.records for each in _read(log)) < records:
        if time.monotonic() > deadline:
            raise SystemExit(f"{records} records are not committed within {timeout_s:g} s:\n{log.read_text()[-3000:]}")
        time.sleep(POLL_S)
    return records


def _checkpoints(log: Path, before: int, until: int) -> list[Checkpoint]:
    """Those that committed the records from `before` to `until`."""
    found: list[Checkpoint] = []
    committed = 0
    for each in _read(log):
        if each.records and before <= committed < until:
            found.append(each)
        committed += each.records
    return found


def _read(log: Path) -> list[Checkpoint]:
    text = log.read_text(errors="replace")
    return [
        Checkpoint(
            _ms(match["total"]),
            _ms(match["delay"]) + _ms(match["alignment"]),
            _ms(match["prepare"]),
            match["inflight"] or "-",
            int(match["records"].replace(",", "")),
        )
        for match in LINE.finditer(text)
    ]


def _most(found: list[Checkpoint]) -> str:
    """The most that was in flight."""
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
    sizes = [each.inflight for each in found if each.inflight != "-"]
    return max(sizes, key=lambda size: float(size.split()[0]) * units[size.split()[1]], default="-")


def _ms(text: str) -> float:
    value, unit = text.split()
    return float(value) * (1000 if unit == "s" else 1)


def _report(results: dict[tuple[str, int], list[Checkpoint]], depths: list[int]) -> int:
    print(
        "\nunaligned    | records in a burst | checkpoints | total ms: med., max | barriers ms | prepare ms | in flight"
    )
    medians: dict[tuple[str, int], float] = {}
    for (mode, depth), found in results.items():
        medians[mode, depth] = statistics.median(each.total for each in found)
        worst = max(found, key=lambda each: each.total)
        label = f"{depth:,}" if depth else "unloaded"
        parts = [statistics.median(each.barriers for each in found), statistics.median(each.prepare for each in found)]
        print(
            f"{mode:<12} | {label:>18} | {len(found):>11} | {medians[mode, depth]:>9,.0f} {worst.total:>10,.0f} "
            f"| {parts[0]:>11,.0f} | {parts[1]:>10,.0f} | {_most(found)}"
        )
    unloaded = medians["always", 0]
    slowest = max(medians["always", depth] for depth in depths)
    grows = max(each.total for each in results["never", depths[-1]]) > max(
        each.total for each in results["never", depths[0]]
    )
    barriers = max(statistics.median(each.barriers for each in results["always", depth]) for depth in depths)
    print(f"the barriers' way, unaligned under backpressure: {barriers:,.0f} ms at most (median of a depth)")
    print(f"whole checkpoint: {slowest / unloaded:.2f} x unloaded (limit 2); aligned grows: {grows}")
    return 0 if slowest <= 2 * unloaded and grows else 1


def _ignore(_: object) -> None:
    """Nobody watches."""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depths", default="20000,80000,240000", help="records per burst, ascending")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--queue", type=int, default=600, help="records that the sink's client takes every 20 ms")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
