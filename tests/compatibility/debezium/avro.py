"""The same events in Avro, with the schemas in a registry: read as records, for the format `debezium` reads JSON.

Apicurio's converter writes them as Confluent's clients do. A column is added while the pipeline runs, so a topic has
two schemas.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.compatibility.debezium.kinds import ASKED, BEFORE, CHANGES, KINDS, NOT_ASKED, SCHEMAS, TABLES, rows_of
from tests.compatibility.debezium.settings import postgres_connector
from tests.compatibility.debezium.tables import TopicTable
from tests.night.story import TRACE, Night, Result
from tests.support.apicurio import Apicurio
from tests.support.connect import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.postgres import Postgres
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

NAME: Final = "avro"
CONVERTER: Final = "io.apicurio.registry.utils.converter.AvroConverter"
OTHERS: Final = {"tstz": "string", "moments": "array<string>"}
"""Logical types that are not Avro's: their texts stay."""
LEFT_OUT: Final = ("nn", "ts", "ts3", "ti", "ti3", "titz", "iv", "bi8")
"""A record of scale and bytes, milliseconds in UTC of a time without zone, and what is not compared anywhere."""
DEFAULTS: Final = {"more": "coalesce(more, 'more')"}
"""The converter writes a column's default for NULL, and has no word against it."""
COPIED: Final = ("kinds", "whole")
COPY_S: Final = 30.0


def run(night: Night) -> Result:
    """See the module."""
    broker = DevelopmentBroker(night.place / "broker")
    with (
        Postgres() as database,
        broker.start(),
        Apicurio(night.place) as registry,
        Connect(broker.bootstrap, night.place / "connect", "avro") as connect,
    ):
        database.run(*TABLES, *BEFORE)
        connect.put(NAME, postgres_connector(database, NAME, "public.kinds,public.whole", _converters(registry)))
        broker.create_topics({f"{NAME}.public.whole": 1, **{f"copy.{table}": 1 for table in COPIED}})
        path = night.place / "pipeline.yaml"
        document = _pipeline(broker.bootstrap, registry.url, night.place)
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        daemon = DaemonProcess(path, night.place / "daemon.log").start()
        try:
            daemon.wait_running().wait_committed()
            database.run(*CHANGES)
            for table in COPIED:
                _compare(night, daemon, TopicTable(broker.bootstrap, f"copy.{table}"), database, table)
            if "bad_records_total{" in daemon.http("/metrics")[1] or daemon.terminate() != 0 or TRACE in daemon.text():
                night.problem(daemon.text()[-2000:])
        finally:
            daemon.destroy()
    return night.close()


def _compare(night: Night, daemon: DaemonProcess, topic: TopicTable, database: Postgres, table: str) -> None:
    answers = ASKED if table == "kinds" else DEFAULTS
    asked = [f"{answers.get(name, name)} AS {name}" for name in _columns(table)]
    query = f"SELECT row_to_json(q) FROM (SELECT {', '.join(asked)} FROM {table}) q"
    expected = rows_of([row for (row,) in database.rows(query)], NOT_ASKED)

    def equal() -> bool:
        daemon.assert_alive()
        return rows_of(topic.read().values()) == expected

    try:
        wait_until(equal, "the copy is the table", COPY_S)
    except AssertionError:
        pairs = [
            (one, other) for one, other in zip(expected, rows_of(topic.rows.values()), strict=False) if one != other
        ]
        night.problem(f"{table}: {len(expected)} rows, {len(topic.rows)} in the copy; {pairs[:1]}")
    topic.close()
    night.result.expected += len(expected)
    night.result.seen += len(topic.rows)


def _columns(table: str) -> dict[str, str]:
    if table != "kinds":
        return dict(SCHEMAS[table])
    return {name: OTHERS.get(name, kind) for name, (_, kind) in KINDS.items() if name not in LEFT_OUT} | {
        "small": "int"
    }


def _converters(registry: Apicurio) -> dict[str, str]:
    settings = {"time.precision.mode": "connect", "schema.name.adjustment.mode": "avro"}
    for part in ("key", "value"):
        settings |= {
            f"{part}.converter": CONVERTER,
            f"{part}.converter.apicurio.registry.url": registry.url.partition("/apis/")[0] + "/apis/registry/v2",
            f"{part}.converter.apicurio.registry.auto-register": "true",
            f"{part}.converter.apicurio.registry.as-confluent": "true",
            f"{part}.converter.apicurio.registry.use-id": "contentId",
            f"{part}.converter.apicurio.registry.headers.enabled": "false",
        }
    return settings


def _pipeline(bootstrap: str, registry: str, place: Path) -> dict[str, Any]:
    sources: dict[str, Any] = {}
    steps: list[Any] = []
    sinks: dict[str, Any] = {}
    for table in COPIED:
        columns = _columns(table)
        row = f"struct<{', '.join(f'{name}: {kind}' for name, kind in columns.items())}>"
        sources[table] = {
            "topic": f"{NAME}.public.{table}", "format": "avro", "on_null": "skip",
            "schema": {"before": row, "after": row, "op": "string"},
        }  # fmt: skip
        select = {
            name: f"coalesce(after.{name}, before.{name})" if name == "id" else f"after.{name}" for name in columns
        }
        steps.append({"name": f"{table}_rows", "from": table, "select": {**select, "gone": "op = 'd'"}})
        sinks[f"{table}_copy"] = {
            "from": f"{table}_rows", "topic": f"copy.{table}", "key": "id",
            "on_null": {"column": "gone", "write": "tombstone"},
        }  # fmt: skip
    return {
        "version": 1,
        "name": "avro",
        "kafka": {"bootstrap.servers": bootstrap},
        "registry": {"url": registry},
        "spark": {"master": "local[2]"},
        "parallelism": 2,
        "checkpoints": {"directory": f"file://{place}/checkpoints", "interval": "500ms"},
        "http": {"port": 0},
        "sources": sources,
        "steps": steps,
        "sinks": sinks,
    }
