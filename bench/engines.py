"""The engines that `compare.py` runs: how each is built, set up and started.

An engine is a program that gets a file of settings (`key=value` lines) and runs until SIGTERM. Jars of the JVM engines
are pinned in `peers/*.txt`, fetched once into the cache directory as those of the development broker are, and their
programs are compiled by the `javac` of a JDK.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from bench.orders import WINDOW_MS
from tidegate.dev.broker.artifacts import fetch_into, find_mismatches, locked, read_artifacts
from tidegate.spark.java import VERSION_MIN, find_java, read_java_version
from tidegate.spark.work_directory import cache_directory

PEERS: Final = Path(__file__).resolve().parent / "peers"
CODE: Final = PEERS.parent / "python_steps.py"
"""The steps in Python."""
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
OPENED: Final = ("java.base/java.util", "java.base/java.lang", "java.base/java.time")
"""Packages that Flink's serializers reach into, as its own start script opens them."""
LATENESS_MS: Final = 1_000
ORDER: Final = {
    "id": "bigint",
    "ts": "bigint",
    "customer": "string",
    "sku": "string",
    "qty": "int",
    "price": "bigint",
    "country": "string",
    "status": "string",
    "note": "string",
}


class Setup(NamedTuple):
    """What a run asks of an engine."""

    workload: str
    interval_ms: int = 1_000
    partitions: int = 4
    parallelism: int = 2
    filters: int = 0
    """Steps that pass everything, in front of the workload (Tidegate alone)."""
    compression: str = "none"
    python: str = ""
    """How often the workload's code in Python is called (Tidegate alone): `rows`, `struct` or `batch`, or built-in."""


class Place(NamedTuple):
    """The broker of a run, its name, and its directory."""

    bootstrap: str
    name: str
    directory: Path

    @property
    def input(self) -> str:
        """The topic of the orders. The names of all topics of a run begin with its name."""
        return f"{self.name}-orders"

    @property
    def output(self) -> str:
        """The topic of the results."""
        return f"{self.name}-result"


class Engine(NamedTuple):
    """An engine that is ready to run."""

    label: str
    command: Callable[[Setup, Place], Sequence[str | Path]]
    """Writes what the program needs into the directory of the run, and returns its command."""
    lateness_ms: int = LATENESS_MS
    follows_fastest: bool = False
    """Its event time is the highest of all partitions, so closing orders may come only when all others are read."""


def prepare(name: str) -> Engine:
    """Builds an engine. `tidegate=PROGRAM` is another Tidegate, for example of another checkout."""
    if name.startswith("tidegate"):
        program = name.partition("=")[2]
        return Engine(name, lambda setup, place: _tidegate(setup, place, [program] if program else []))
    kind = name.removeprefix("python-")
    if kind in {"rows", "struct", "batch"}:
        label = f"Tidegate, steps in Python ({kind})"
        return Engine(label, lambda setup, place: _tidegate(setup._replace(python=kind), place, []))
    if name not in ENGINES:
        raise SystemExit(f"there is no engine {name}; there are {', '.join(('tidegate', *ENGINES))}")
    return ENGINES[name]()


def _tidegate(setup: Setup, place: Place, program: Sequence[str]) -> Sequence[str | Path]:
    shutil.copy(CODE, place.directory)
    path = place.directory / "pipeline.yaml"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(describe_pipeline(setup, place)), indent=2))
    return [*(program or (sys.executable, "-m", "tidegate")), "run", path]


def describe_pipeline(setup: Setup, place: Place) -> dict[str, Any]:
    """Returns Tidegate's pipeline file as an object."""
    source: dict[str, Any] = {"topic": place.input, "format": "json", "schema": ORDER, "start": "earliest"}
    steps: list[dict[str, Any]] = []
    before = "orders"
    for number in range(setup.filters):
        steps.append({"name": f"pass{number}", "from": before, "where": "qty > 0"})
        before = f"pass{number}"
    if setup.python:
        steps += list_python_steps(setup, before)
    elif setup.workload == "W1":
        steps += [
            {"name": "paid", "from": before, "where": "status = 'paid'"},
            {
                "name": "out",
                "from": "paid",
                "select": {"id": "id", "ts": "ts", "customer": "customer", "sku": "sku", "total": "qty * price"},
            },
        ]
    elif setup.workload == "W2":
        sums = {"count": "count(*)", "sum": "sum(price)", "ts": "last(ts)"}
        steps.append({"name": "out", "from": before, "key": "customer", "aggregate": sums, "emit": "each"})
    else:
        source |= {"event_time": "ts", "watermark": {"delay": f"{LATENESS_MS}ms", "idle": "caught-up"}}
        sums = {"count": "count(*)", "sum": "sum(price)"}
        window = {"tumbling": f"{WINDOW_MS}ms"}
        steps += [
            {"name": "closed", "from": before, "key": "sku", "window": window, "aggregate": sums},
            {
                "name": "out",
                "from": "closed",
                "select": {"sku": "sku", "window_start": "unix_millis(window_start)", "count": "count", "sum": "sum"},
            },
        ]
    key = "sku" if setup.workload == "W3" else "customer"
    return {
        "version": 1,
        "name": place.name,
        "kafka": {"bootstrap.servers": place.bootstrap},
        "spark": {"master": f"local[{setup.parallelism}]"},
        "parallelism": setup.parallelism,
        "http": {"port": 0},
        "checkpoints": {
            "directory": f"file://{place.directory / 'checkpoints'}",
            "interval": f"{setup.interval_ms}ms",
            "timeout": "120s",
        },
        "sources": {"orders": source},
        "steps": steps,
        "sinks": {
            "result": {
                "from": "out",
                "topic": place.output,
                "format": "json",
                "key": key,
                "kafka": {"compression.type": setup.compression},
            }
        },
    }


def list_python_steps(setup: Setup, before: str) -> list[dict[str, Any]]:
    """Returns the steps of a workload whose code is `python_steps.py`."""
    per = {"per": "batch"} if setup.python == "batch" else {}
    if setup.workload == "W1":
        output = {"id": "bigint", "ts": "bigint", "customer": "string", "sku": "string", "total": "bigint"}
        function = "paid_batch" if per else "paid_row"
        return [{"name": "out", "from": before, "python": f"python_steps:{function}", "output": output, **per}]
    name = {"rows": "TotalsByRow", "struct": "TotalsByStruct", "batch": "TotalsByBatch"}[setup.python]
    output = {"customer": "string", "count": "bigint", "sum": "bigint", "ts": "bigint"}
    return [
        {"name": "slim", "from": before, "select": {name: name for name in ("customer", "price", "ts")}},
        {"name": "out", "from": "slim", "key": "customer", "python": f"python_steps:{name}", "output": output, **per},
    ]


def _write_settings(setup: Setup, place: Place, lateness_ms: int) -> Path:
    settings: Mapping[str, object] = {
        "bootstrap": place.bootstrap,
        "workload": setup.workload,
        "input": place.input,
        "output": place.output,
        "id": place.name,
        "partitions": setup.partitions,
        "parallelism": setup.parallelism,
        "interval.ms": setup.interval_ms,
        "window.ms": WINDOW_MS,
        "lateness.ms": lateness_ms,
        "state": place.directory / "state",
    }
    path = place.directory / "settings.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return path


def _raw() -> Engine:
    def command(setup: Setup, place: Place) -> Sequence[str | Path]:
        return [sys.executable, PEERS / "raw.py", _write_settings(setup, place, LATENESS_MS)]

    return Engine("raw Python client loop (state not durable)", command)


def _flink() -> Engine:
    java, path = build_jvm_program("flink", "FlinkEngine.java")
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]

    def command(setup: Setup, place: Place) -> Sequence[str | Path]:
        settings = _write_settings(setup, place, LATENESS_MS)
        return [java, "-Xmx2g", QUIET, *opened, "-cp", path, "bench.FlinkEngine", settings]

    return Engine("Flink 2.3", command)


def _streams() -> Engine:
    java, path = build_jvm_program("streams", "StreamsEngine.java")
    lateness_ms = 600_000  # more than a block lasts: a thread that reads faster than the other makes its orders late

    def command(setup: Setup, place: Place) -> Sequence[str | Path]:
        settings = _write_settings(setup, place, lateness_ms)
        return [java, "-Xmx1g", QUIET, "-cp", path, "bench.StreamsEngine", settings]

    return Engine("Kafka Streams 4.3", command, lateness_ms, follows_fastest=True)


ENGINES: Final[Mapping[str, Callable[[], Engine]]] = {"raw": _raw, "flink": _flink, "streams": _streams}


def build_jvm_program(name: str, program: str) -> tuple[Path, str]:
    """Fetches the jars of an engine and compiles its program, unless both are in the cache.

    Returns `java` and the class path.
    """
    sources = [PEERS / "Order.java", PEERS / program]
    listing = PEERS / f"{name}.txt"
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in (listing, *sources))).hexdigest()[:16]
    javac, jars, classes = find_javac(), fetch_jars(name), cache_directory() / f"bench-{name}-{digest}"
    with locked(cache_directory()):
        if not classes.is_dir():
            new = classes.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            command = [str(javac), "-nowarn", "-cp", f"{jars}/*", "-d", str(new), *map(str, sources)]
            subprocess.run(command, check=True)
            new.rename(classes)
    return javac.with_name("java"), f"{classes}{os.pathsep}{jars}/*"


def fetch_jars(name: str) -> Path:
    """Returns the directory of the jars that `peers/NAME.txt` lists, and fetches them if they are not in the cache."""
    artifacts, jars = read_artifacts(PEERS / f"{name}.txt"), cache_directory() / f"bench-{name}"
    with locked(cache_directory()):
        if find_mismatches(jars, artifacts):
            fetch_into(jars, artifacts)
    return jars


def find_javac() -> Path:
    """Finds a compiler: that of the Java that Tidegate uses, else the one on PATH."""
    found = [find_java().resolve().with_name("javac")]
    found += [Path(one).resolve() for one in [shutil.which("javac")] if one]
    for javac in found:
        if javac.is_file() and (read_java_version(javac.with_name("java")) or 0) >= VERSION_MIN:
            return javac
    raise SystemExit(
        f"no javac of a JDK {VERSION_MIN} or newer: install one (on Debian: apt install openjdk-17-jdk-headless), or "
        "leave the JVM engines out (--engines raw,tidegate)"
    )
