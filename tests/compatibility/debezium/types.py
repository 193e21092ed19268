"""A column of every kind of PostgreSQL's, in all ways that Debezium writes it, copied by one pipeline.

The copies are compared with PostgreSQL's own answers. `--record` writes what Debezium has written, with these answers,
for the quick tests (`tests/formats/test_debezium_recorded.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from tests.compatibility.debezium.kinds import (
    BEFORE,
    CHANGES,
    LAST,
    MODES,
    TABLES,
    query,
    rows_of,
    schema_of,
    written_as,
)
from tests.compatibility.debezium.settings import postgres_connector
from tests.compatibility.debezium.tables import TopicTable, read_records
from tests.night.story import TRACE, Night, Result
from tests.support import clients
from tests.support.connect import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.postgres import Postgres
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

RECORDED: Final = ROOT / "tests" / "formats" / "debezium"
COPIED: Final = ("kinds", "whole", "keyless")
READ: Final = (*COPIED, "thin", "outside")
KEPT: Final[Mapping[str, tuple[str, ...]]] = {
    "plain": (*READ, "message"),
    "wrapped": ("kinds", "transaction"),
    "isostring": ("kinds", "outside"),
    "numeric": ("kinds",),
}
"""Tables of which records are kept."""
FEW: Final = 2
KEPT_KEYS: Final = ('"payload":{"id":1}}', '"payload":{"id":3}}')
"""Of the rows that are kept where each has its schema with it, as their keys end."""
COPY_S: Final = 10.0
OUTSIDE_BAD: Final[Mapping[str, int]] = {"plain": 6, "wrapped": 7, "isostring": 7, "numeric": 6}
"""NaN of a `numeric` is NULL where decimals are bytes; Debezium warns of it."""


def run(night: Night, *, record: bool = False) -> Result:
    """See the module."""
    broker = DevelopmentBroker(night.place / "broker")
    with Postgres() as database, broker.start(), Connect(broker.bootstrap, night.place / "connect") as connect:
        database.run(*TABLES, *BEFORE)
        tables = ",".join(f"public.{name}" for name in READ)
        for mode, one in MODES.items():
            more = {**one.connector, "skipped.operations": "none"}
            connect.put(mode, postgres_connector(database, mode, tables, more))
        admin = clients.admin({"bootstrap.servers": broker.bootstrap})
        for mode in MODES:
            _wait_records(broker.bootstrap, admin, f"{mode}.public.outside", 7)
        database.run(*CHANGES)
        broker.create_topics({f"copy.{mode}.{table}": 1 for mode in MODES for table in (*COPIED, "outside")})
        for mode in MODES:
            _wait_records(broker.bootstrap, admin, f"{mode}.public.keyless", 4)
        wanted = {
            mode: {table: [row for (row,) in database.rows(query(table, mode))] for table in COPIED} for mode in MODES
        }
        path = night.place / "pipeline.yaml"
        path.write_text(json.dumps(_pipeline(broker.bootstrap, night.place), indent=1), encoding="utf-8")
        daemon = DaemonProcess(path, night.place / "daemon.log").start()
        try:
            _compare(night, daemon, broker.bootstrap, wanted)
        finally:
            daemon.destroy()
        database.run(*LAST)
        for mode in MODES:
            _wait_records(broker.bootstrap, admin, f"{mode}.public.thin", 16)
        night.result.drawn = f"PostgreSQL {database.version}"
        if record:
            _record(broker.bootstrap, admin, wanted)
    return night.close()


def _compare(
    night: Night, daemon: DaemonProcess, bootstrap: str, wanted: Mapping[str, Mapping[str, list[str]]]
) -> None:
    daemon.wait_running()
    for mode, tables in wanted.items():
        for table, answers in tables.items():
            topic = TopicTable(bootstrap, f"copy.{mode}.{table}")
            expected = rows_of(answers)
            try:
                wait_until(lambda: rows_of(topic.read().values()) == expected, "the copy is the table", COPY_S)  # noqa: B023 - is called here
            except AssertionError:
                found = rows_of(topic.rows.values())
                pairs = [(one, other) for one, other in zip(expected, found, strict=False) if one != other]
                night.problem(f"{mode}.{table}: {len(expected)} rows, {len(found)} in the copy; {pairs[:1]}")
            topic.close()
            night.result.expected += len(expected)
            night.result.seen += len(topic.rows)
    said = daemon.http("/metrics")[1].splitlines()
    for mode, bad in OUTSIDE_BAD.items():
        counts = [
            float(line.rpartition(" ")[2])
            for line in said
            if "bad_records_total{" in line and f"{mode}_outside" in line
        ]
        if sum(counts) != bad:
            night.problem(f"{mode}: {sum(counts)} bad records where {bad} belong")
        night.count("bad records", sum(counts))
    if daemon.terminate() != 0 or TRACE in daemon.text():
        night.problem(daemon.text()[-2000:])


def _pipeline(bootstrap: str, place: Path) -> dict[str, Any]:
    sources: dict[str, Any] = {}
    steps: list[Any] = []
    sinks: dict[str, Any] = {}
    for mode in MODES:
        for table in COPIED:
            name, schema = f"{mode}_{table}", schema_of(table, mode)
            sources[name] = {
                "topic": f"{mode}.public.{table}", "format": "debezium", "schema": schema,
                "written_as": written_as(table, mode),
            }  # fmt: skip
            steps.append({"name": f"{name}_rows", "from": name, "select": {one: one for one in [*schema, "_deleted"]}})
            sinks[f"{name}_copy"] = {
                "from": f"{name}_rows", "topic": f"copy.{mode}.{table}", "key": next(iter(schema)),
                "on_null": {"column": "_deleted"},
            }  # fmt: skip
        name = f"{mode}_outside"
        said = {**MODES[mode].written_as, "timestamps": MODES[mode].written_as.get("timestamps", "us")}
        if mode == "plain":
            said["timestamps"] = "us"
        sources[name] = {
            "topic": f"{mode}.public.outside", "format": "debezium", "bad_records": "skip", "written_as": said,
            "schema": {"id": "int", "d": "date", "ts": "timestamp_ntz", "tstz": "timestamp", "n": "decimal(10,2)"},
        }  # fmt: skip
        sinks[f"{name}_copy"] = {"from": name, "topic": f"copy.{mode}.outside", "key": "id"}
    return {
        "version": 1,
        "name": "kinds",
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"master": "local[2]"},
        "parallelism": 2,
        "checkpoints": {"directory": f"file://{place}/checkpoints", "interval": "500ms"},
        "http": {"port": 0},
        "sources": sources,
        "steps": steps,
        "sinks": sinks,
    }


def _wait_records(bootstrap: str, admin: AdminClient, topic: str, count: int) -> None:
    def there() -> bool:
        return topic in admin.list_topics(timeout=30).topics and len(read_records(bootstrap, topic)) >= count

    wait_until(there, f"{count} records in {topic}", 60.0)


def _record(bootstrap: str, admin: AdminClient, wanted: Mapping[str, Mapping[str, list[str]]]) -> None:
    RECORDED.mkdir(exist_ok=True)
    known = sorted(admin.list_topics(timeout=30).topics)
    for mode, tables in KEPT.items():
        lines: list[dict[str, Any]] = []
        for topic in (one for one in known if one.startswith(f"{mode}.")):
            table = topic.rpartition(".")[2]
            if table in tables:
                lines += [
                    {"topic": table, "key": key, "value": value}
                    for key, value in read_records(bootstrap, topic)[: FEW if table == "transaction" else None]
                    if (mode, table) != ("wrapped", "kinds") or (key or "").endswith(KEPT_KEYS)
                ]
        for table, rows in wanted[mode].items():
            lines += [{"table": table, "row": row} for row in rows if table in tables]
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (RECORDED / f"{mode}.jsonl").write_text(text, encoding="utf-8")
