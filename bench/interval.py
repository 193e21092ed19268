"""What frequent checkpoints cost: the same backlog worked off at an interval of 1 s and of 60 s, in turns.

    python bench/interval.py [--orders 6000000] [--repeat 3] [--file bench/interval.yaml] [--limit 5]

A real broker of its own, `tidegate run` on local[2], `until: latest`: the run ends with a final checkpoint, so every
record is committed in both. Only the time between "all slots run" and the end of the process counts. Prints records/s
of every run and the difference of the medians; a first run, which warms the broker, is printed and not counted. Exit
code 1 when 1 s costs more than `--limit` percent (contract F29).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tidegate.daemon.status import PipelineState
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import create_topics
from tidegate.dev.demo.daemon import DemoDaemon
from tidegate.dev.demo.orders import Order, make_orders, write_orders

HERE = Path(__file__).resolve().parent
LIMIT_PERCENT = 5.0
DISTINCT = 300_000
"""Orders that are made; they are written again and again."""
PARTITIONS = 4
TIMEOUT_S = 600.0
TOPICS = ("orders", "paid", "totals")


def main() -> int:
    """See the module."""
    options = _parse()
    rates: dict[str, list[float]] = {"1s": [], "60s": []}
    with tempfile.TemporaryDirectory(prefix="tidegate-interval-") as name:
        directory = Path(name)
        broker = DevelopmentBroker(directory / "broker").start()
        try:
            create_topics(broker.bootstrap, dict.fromkeys(TOPICS, PARTITIONS))
            write_orders(broker.bootstrap, "orders", _orders(options.orders))
            _run(broker.bootstrap, directory, "1s", -1, options)  # the broker's first reading is slower: not counted
            for turn in range(options.repeat):
                for interval in rates if turn % 2 == 0 else reversed(rates):
                    rates[interval].append(_run(broker.bootstrap, directory, interval, turn, options))
        finally:
            broker.kill()
    short, long = (statistics.median(rates[interval]) for interval in ("1s", "60s"))
    cost = 1 - short / long
    figures = f"{short:,.0f} at 1 s, {long:,.0f} at 60 s"
    print(f"median records/s: {figures}: 1 s costs {cost:.1%} (limit {options.limit:g}%)")
    return 1 if cost > options.limit / 100 else 0


def _orders(count: int) -> Iterator[Order]:
    distinct = list(make_orders(min(DISTINCT, count), seed=1))
    for index in range(count):
        yield distinct[index % len(distinct)]


def _run(bootstrap: str, directory: Path, interval: str, turn: int, options: argparse.Namespace) -> float:
    """Records per second of one run."""
    name = f"interval-{interval}-{turn}"
    environ = {
        "KAFKA_BOOTSTRAP": bootstrap,
        "INTERVAL": interval,
        "INTERVAL_NAME": name,
        "INTERVAL_STATE": str(directory / name),
    }
    daemon = DemoDaemon(options.file, environ, directory / f"{name}.log", _ignore)
    daemon.start()
    try:
        daemon.wait_for(lambda now: now.state in {PipelineState.RUNNING, PipelineState.FINISHED}, "running", TIMEOUT_S)
        began = time.monotonic()
        code = daemon.wait(TIMEOUT_S)
        elapsed_s = time.monotonic() - began
    finally:
        daemon.close()
    if code != 0:
        raise SystemExit(f"the run at {interval} ended with exit code {code}:\n{daemon.tail()}")
    print(f"{interval:>4}: {options.orders / elapsed_s:,.0f} records/s in {elapsed_s:.1f} s", flush=True)
    return float(options.orders / elapsed_s)


def _ignore(_: object) -> None:
    """Nobody watches."""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=6_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--file", type=Path, default=HERE / "interval.yaml")
    parser.add_argument("--limit", type=float, default=LIMIT_PERCENT, metavar="PERCENT")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.pop("KAFKA_BOOTSTRAP", None)
    sys.exit(main())
