"""Random transactions in PostgreSQL, and what a pipeline makes of them, compared with what PostgreSQL itself answers.

Copies of tables, a filtered copy, running totals with retraction and totals of those; a slot, the daemon and Connect
are killed meanwhile, Connect is restarted, a column is added, and one table is read again by an incremental snapshot.
"""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Self

from tests.compatibility.debezium.orders import COLUMNS, IDENTITY, TABLE, TOTALS, Writer
from tests.compatibility.debezium.settings import PLAIN, WRAPPED, postgres_connector
from tests.compatibility.debezium.tables import TopicTable
from tests.night.story import TRACE, Night, Result
from tests.support.connect import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.postgres import Postgres
from tests.support.processes import kill
from tests.waiting import PATIENCE_S, wait_until
from tidegate.dev.broker import DevelopmentBroker

PARTITIONS: Final = 3
MOMENTS: Final = ("at", "seen", "made")
FIRST_ROWS: Final = 150
PAUSE_S: Final = 0.2
NAME: Final = "shop"
THINGS: Final = "CREATE TABLE things (id int PRIMARY KEY, name text, price numeric(8,2))"
SIGNALS: Final = "CREATE TABLE signals (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))"
AGAIN: Final = (
    """INSERT INTO signals VALUES ('s1', 'execute-snapshot', '{"data-collections": ["public.things"], """
    """"type": "incremental"}')"""
)
ADAPTIVE: Final = {"seen": "us", "made": "ms"}
WAYS: Final[Mapping[str, tuple[dict[str, str], dict[str, Any]]]] = {
    "plain, precise": (PLAIN, {"decimals": "base64", "timestamps": ADAPTIVE}),
    "plain, numbers": (
        {**PLAIN, "value.converter.decimal.format": "NUMERIC"}, {"decimals": "text", "timestamps": ADAPTIVE}
    ),
    "plain, isostring": (
        {**PLAIN, "time.precision.mode": "isostring", "decimal.handling.mode": "string"}, {"decimals": "text"}
    ),
    "wrapped": (WRAPPED, {"decimals": "schema"}),
    "wrapped, string": (
        {**WRAPPED, "time.precision.mode": "microseconds", "decimal.handling.mode": "string"},
        {"decimals": "schema"},
    ),
}  # fmt: skip
"""How the connector writes, and what the source says of it."""
ROWS: Final = ", ".join(COLUMNS)
LIVE: Final = "status <> 'gone'"
REGION: Final = "coalesce(region, 'none')"
QUERIES: Final[Mapping[str, str]] = {
    "copy": f"SELECT {ROWS} FROM orders",
    "live": f"SELECT {ROWS} FROM orders WHERE {LIVE}",
    "things": "SELECT id, name, price FROM things",
    "totals": f"SELECT {REGION} AS region, {', '.join(f'{text} AS {name}' for name, text in TOTALS.items())} "
    f"FROM orders WHERE {LIVE} GROUP BY 1",
    "sizes": "SELECT n, count(*) AS regions "
    f"FROM (SELECT {REGION}, count(*) AS n FROM orders WHERE {LIVE} GROUP BY 1) s GROUP BY n",
}  # fmt: skip
"""What the topics have to hold, by their names."""
SINKS: Final[Mapping[str, tuple[str, str]]] = {
    "copy": ("all_orders", "id"),
    "live": ("plain_live", "id"),
    "totals": ("totals", "region"),
    "sizes": ("sizes", "n"),
    "things": ("all_things", "id"),
}
"""Their steps and keys."""


def run(night: Night) -> Result:
    """See the module."""
    way = night.dice.choice(sorted(WAYS))
    night.result.drawn = way
    broker = DevelopmentBroker(night.place / "broker")
    with Postgres() as database, broker.start(), Connect(broker.bootstrap, night.place / "connect") as connect:
        writer = Writer(night.dice)
        things = (f"INSERT INTO things SELECT i, 'thing ' || i, i FROM generate_series(1, {FIRST_ROWS}) i",)
        database.run(TABLE, IDENTITY, THINGS, SIGNALS, *writer.first(FIRST_ROWS), *things)
        more = {
            **WAYS[way][0],
            "topic.creation.default.partitions": str(PARTITIONS),
            "heartbeat.interval.ms": "500",
            "provide.transaction.metadata": "true",
            "signal.data.collection": "public.signals",
        }
        tables = "public.orders,public.things,public.signals"
        connect.put(NAME, postgres_connector(database, NAME, tables, more))
        broker.create_topics(dict.fromkeys(QUERIES, PARTITIONS))
        path = write_pipeline(night.place / "pipeline.yaml", broker.bootstrap, night.place, WAYS[way][1])
        daemon = DaemonProcess(path, night.place / "daemon.log")
        with Load(database, writer) as load:
            try:
                _story(night, daemon, connect, load)
            finally:
                daemon.destroy()
            night.result.done |= writer.done
    return night.close()


def _story(night: Night, daemon: DaemonProcess, connect: Connect, load: Load) -> None:
    database = load.database
    daemon.start().wait_running().wait_committed()
    night.pause(0.5, 2.0)
    compare(night, daemon, load)
    for fault in ("slot killed", "Connect killed", "daemon killed", "Connect restarted"):
        night.least(fault)
        load.resume()
        night.pause(0.5, 2.0)
        if fault == "slot killed":
            attempt = daemon.attempt
            with night.recovery():
                night.count(fault, kill(night.dice.choice(sorted(daemon.slots()))))
                daemon.wait_attempt(attempt)
        elif fault == "daemon killed":
            daemon.kill()
            night.count(fault)
            database.run("ALTER TABLE orders ADD COLUMN more text DEFAULT 'more'")
            daemon.start().wait_running()
        else:
            (connect.kill if fault == "Connect killed" else connect.stop)()
            night.count(fault)
            night.pause(0.5, 2.0)
            connect.start().wait_running(NAME)
        night.pause(0.5, 2.0)
        database.run(*(f"UPDATE things SET price = price + 1 WHERE id = {night.dice.randint(1, FIRST_ROWS)}",) * 3)
        database.run(f"DELETE FROM things WHERE id = {night.dice.randint(1, FIRST_ROWS)}")
        if fault == "Connect killed":
            database.run(AGAIN)
        compare(night, daemon, load)
    if "bad_records_total{" in (said := daemon.http("/metrics")[1]):
        night.problem("\n".join(line for line in said.splitlines() if "bad_records_total{" in line))
    code = daemon.terminate()
    if code != 0:
        night.problem(f"SIGTERM: exit code {code}: {daemon.text()[-1000:]}")
    text = daemon.log.read_text("utf-8", errors="replace")
    if TRACE in text:
        night.problem(f"a traceback: {text[text.index(TRACE) :][:1000]}")


def write_pipeline(path: Path, bootstrap: str, place: Path, written_as: Mapping[str, Any]) -> Path:
    """The file of the pipeline; JSON is YAML."""
    source = {"format": "debezium", "written_as": written_as}
    copied = {name: name for name in COLUMNS}
    document = {
        "version": 1,
        "name": "debezium",
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"master": "local[2]"},
        "parallelism": 2,
        "checkpoints": {"directory": f"file://{place}/checkpoints", "interval": "500ms"},
        "restart": {"initial": "100ms", "max": "2s"},
        "http": {"port": 0},
        "sources": {
            "orders": {**source, "topic": f"{NAME}.public.orders", "schema": COLUMNS},
            "things": {
                "format": "debezium",
                "written_as": {word: value for word, value in written_as.items() if word == "decimals"},
                "topic": f"{NAME}.public.things",
                "schema": {"id": "int", "name": "string", "price": "decimal(8,2)"},
            },
        },
        "steps": [
            {"name": "all_orders", "from": "orders", "select": {**copied, "_deleted": "_deleted"}},
            {"name": "live", "from": "orders", "where": LIVE},
            {"name": "named", "from": "live", "select": {**copied, "region": REGION}},
            {"name": "totals", "from": "named", "key": "region", "aggregate": TOTALS},
            {"name": "sizes", "from": "totals", "key": "n", "aggregate": {"regions": "count(*)"}},
            {"name": "plain_live", "from": "live", "select": {**copied, "_deleted": "_deleted"}},
            {
                "name": "all_things",
                "from": "things",
                "select": {"id": "id", "name": "name", "price": "price", "_deleted": "_deleted"},
            },
        ],
        "sinks": {
            f"{topic}_topic": {"from": step, "topic": topic, "key": key, "on_null": {"column": "_deleted"}}
            for topic, (step, key) in SINKS.items()
        },
    }
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return path


class Load:
    """Transactions one after the other in a thread, until it is paused; a context manager."""

    def __init__(self, database: Postgres, writer: Writer) -> None:
        self.database = database
        self.transactions = 0
        self.topics: dict[str, TopicTable] = {}
        self.failed: list[BaseException] = []
        self._writer = writer
        self._goes, self._quiet, self._ends = threading.Event(), threading.Event(), threading.Event()
        self._goes.set()
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._goes.set()
        self._thread.join()
        for one in self.topics.values():
            one.close()

    def pause(self) -> None:
        """Returns when the last transaction has ended."""
        self._goes.clear()
        assert self._quiet.wait(PATIENCE_S)
        assert not self.failed, self.failed

    def resume(self) -> None:
        """Go on."""
        self._quiet.clear()
        self._goes.set()

    def _run(self) -> None:
        while not self._ends.is_set():
            if not self._goes.is_set():
                self._quiet.set()
                self._goes.wait()
                continue
            try:
                for _ in range(3):
                    self.database.run(*self._writer.transaction())
                    self.transactions += 1
            except BaseException as error:  # noqa: BLE001 - `pause` raises it
                self.failed.append(error)
                self._goes.clear()
                self._quiet.set()
            self._ends.wait(PAUSE_S)


def compare(night: Night, daemon: DaemonProcess, load: Load) -> None:
    """When nothing changes any more, every topic holds what PostgreSQL answers."""
    load.pause()
    bootstrap = json.loads(daemon.pipeline.read_text("utf-8"))["kafka"]["bootstrap.servers"]
    for sink, query in QUERIES.items():
        table = load.topics.setdefault(sink, TopicTable(bootstrap, sink))
        wanted = rows_of(one[0].encode() for one in load.database.rows(f"SELECT row_to_json(q) FROM ({query}) q"))
        different: list[str] = []

        def equal(table: TopicTable = table, wanted: Any = wanted, different: list[str] = different) -> bool:
            daemon.assert_alive()
            found = rows_of(table.read().values())
            different[:] = [*(f"missing {one}" for one in wanted - found), *(f"wrong {one}" for one in found - wanted)]
            return not different and len(table.rows) == len(wanted)

        try:
            wait_until(equal, f"the topic {sink} is as the query", 90.0)
        except AssertionError as late:
            night.problem(f"{late}: {len(different)} differences, {[one[:300] for one in different[:4]]}")
        night.result.seen += len(wanted)
        night.result.expected += len(wanted)
    night.count("comparisons", len(QUERIES))
    night.result.done["transactions"] = load.transactions
    night.result.done["records"] = sum(one.records for one in load.topics.values())
    night.result.done["tombstones"] = sum(one.tombstones for one in load.topics.values())


def rows_of(texts: Any) -> set[str]:
    """Rows as texts that are equal when their values are."""
    return {repr(sorted((k, _plain(k, v)) for k, v in json.loads(one, parse_float=Decimal).items())) for one in texts}


def _plain(name: str, value: Any) -> Any:
    if name in MOMENTS and isinstance(value, str):
        return dt.datetime.fromisoformat(value).isoformat()
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return format(Decimal(value).normalize(), "f")
    return value
