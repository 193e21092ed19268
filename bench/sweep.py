"""Drains of Tidegate alone, with one setting after the other at several values.

    python bench/sweep.py [--axes partitions,parallelism,...] [--records 1000000] [--repeat 3] [--minutes-max 60]
        [--load-max 0.2] [--accept-load] [--results FILE]

Axes: partitions of the topics (W1), parallelism (W1 and W3), bytes of an order (W1), the interval of checkpoints (W2),
steps in a chain (W1), compression of the output (W1), and customers (W2), each of which is a key of the state: the
warm-up block has as many orders as there are customers. Everything else is as in `compare.py`, and every result is
checked. The values of all axes take turns. Prints each run, and a table of medians for each axis.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Final, NamedTuple

from bench.compare import HERE, WARM, Bench, Case, Journal, Row, add_limits, print_row
from bench.engines import Setup, prepare
from bench.orders import Orders
from bench.report import describe_machine
from bench.support import MachineBusy, open_broker, order_of

NAME: Final = "tidegate"
TEXT: Final = 135
"""Bytes of an order without its note."""


class Point(NamedTuple):
    """A value of an axis."""

    value: int | str
    setup: Setup
    orders: Orders


def list_points(axis: str, records: int) -> list[Point]:
    """Lists the values of an axis."""
    some = Orders(WARM, records)
    if axis == "partitions":
        return [Point(value, Setup("W1", partitions=value), some) for value in (1, 4, 16, 64)]
    if axis == "parallelism":
        return [Point(value, Setup(one, parallelism=value), some) for one in ("W1", "W3") for value in (1, 2, 4)]
    if axis == "bytes":
        return [Point(value, Setup("W1"), some._replace(note=value - TEXT)) for value in (150, 195, 500, 2_000)]
    if axis == "interval_ms":
        return [Point(value, Setup("W2", interval_ms=value), some) for value in (100, 300, 1_000, 10_000)]
    if axis == "filters":
        return [Point(value, Setup("W1", filters=value), some) for value in (0, 4, 16)]
    if axis == "compression":
        kinds = ("none", "lz4", "snappy", "zstd", "gzip")
        return [Point(value, Setup("W1", compression=value), some) for value in kinds]
    values = (10_000, 100_000, 1_000_000, 10_000_000)
    return [Point(value, Setup("W2"), Orders(max(WARM, value), records, value)) for value in values]


AXES: Final = ("partitions", "parallelism", "bytes", "interval_ms", "filters", "compression", "customers")


def run_all(options: argparse.Namespace) -> list[Row]:
    """Runs all values in turns, until they are done or the time is over."""
    rows: list[Row] = []
    deadline = time.monotonic() + options.minutes_max * 60
    points = [(axis, point) for axis in options.axes.split(",") for point in list_points(axis, options.records)]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with open_broker() as (broker, directory):
        assert broker.pid is not None
        bench = Bench(broker.bootstrap, broker.pid, directory, {NAME: prepare(NAME)})
        limit = float("inf") if options.accept_load else options.load_max
        journal = Journal(bench, options.results, limit, describe_machine())
        for turn in range(-1, options.repeat):
            for number in order_of(range(len(points)) if turn >= 0 else [0], turn):
                axis, point = points[number]
                if time.monotonic() > deadline:
                    print("the time is over", flush=True)
                    return rows
                row = journal.run(NAME, Case("drain", point.setup), point.orders, 0, turn)
                print_row(row, f"{axis} {point.value}" if turn >= 0 else "discarded")
                if turn >= 0:
                    rows.append({**row, "axis": axis, "value": point.value})
    return rows


def render_table(axis: str, rows: list[Row]) -> str:
    """Returns the medians of an axis."""
    lines = [f"| {axis} | CPU s per million | k records/s | resident MiB | runs |", "| --- | --- | --- | --- | --- |"]
    for workload, value in dict.fromkeys((row["workload"], row["value"]) for row in rows):
        mine = [row for row in rows if (row["workload"], row["value"]) == (workload, value)]
        cpu, rate, mib = (
            statistics.median(row[name] for row in mine) for name in ("cpu_s_per_m", "records_per_s", "resident_mib")
        )
        lines.append(f"| {workload}, {value} | {cpu:.2f} | {rate / 1000:,.0f} | {mib:,.0f} | {len(mine)} |")
    return "\n".join(lines)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axes", default=",".join(AXES))
    add_limits(parser, HERE / "results" / time.strftime("sweep-%Y-%m-%d-%H%M%S.jsonl"), repeat=3)
    options = parser.parse_args()
    if not set(options.axes.split(",")) <= set(AXES):
        parser.error(f"axes are {', '.join(AXES)}")
    try:
        rows = run_all(options)
    except MachineBusy as error:
        print(f"{error}; --accept-load goes on nevertheless", file=sys.stderr)
        return 3
    good = [row for row in rows if "error" not in row and not row["loaded"]]
    for axis in options.axes.split(","):
        print(f"\n{render_table(axis, [row for row in good if row['axis'] == axis])}")
    print(f"\nkept in {options.results}; {len(rows) - len(good)} of {len(rows)} runs are left out")
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
