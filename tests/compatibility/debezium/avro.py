"""The same events in Avro, with the schemas in a registry, as Apicurio's converter writes them for Confluent's clients.

One connector writes times as Avro has them, and its events are read as records (`avro`). Another one writes as Debezium
does by default, with types that only Connect's names show, and its events are read as changes (`debezium-avro`): copied
and totalled. A column is added while the pipeline runs, so a topic has two schemas.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.compatibility.debezium.kinds import ASKED, BEFORE, CHANGES, KINDS, NOT_ASKED, SCHEMAS, TABLES, rows_of
from tests.compatibility.debezium.settings import postgres_connector
from tests.compatibility.debezium.tables import TopicTable, read_bytes
from tests.night.story import TRACE, Night, Result
from tests.support.apicurio import Apicurio
from tests.support.connect import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.postgres import Postgres
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

RECORDS, NATIVE = "avro", "native"
"""The connectors."""
CONVERTER: Final = "io.apicurio.registry.utils.converter.AvroConverter"
OTHERS: Final = {"tstz": "string", "moments": "array<string>"}
"""Logical types that are not Avro's: their texts stay where events are read as records."""
LEFT_OUT: Final = ("nn", "ts", "ts3", "ti", "ti3", "titz", "iv", "bi8")
"""A record of scale and bytes, milliseconds in UTC of a time without zone, and what is not compared anywhere."""
DEFAULTS: Final = {"more": "coalesce(more, 'more')"}
"""The converter writes a column's default for NULL, and has no word against it."""
COPIED: Final = ("kinds", "whole")
OUTSIDE: Final = {"id": "int", "d": "date", "ts": "timestamp_ntz", "tstz": "timestamp", "n": "decimal(10,2)"}
BAD: Final = {"thin": 2, "outside": 6}
"""Records of sources: large values that a change did not touch, and what no column holds (NaN is NULL as bytes)."""
TOTALS: Final[Mapping[str, tuple[str, str, Mapping[str, str]]]] = {
    "whole": (
        "id % 2",
        "id % 2",
        {"n": "count(*)", "net": "sum(n)", "most": "max(n)", "names": "count(distinct name)"},
    ),
    "kinds": (
        "coalesce(e, 'none')",
        "coalesce(e::text, 'none')",
        {"n": "count(*)", "n0": "sum(n0)", "m": "sum(m)", "l": "max(l)", "da": "min(da)", "tstz": "max(tstz)",
         "ts": "min(ts)", "small": "max(small)", "us": "count(distinct u)"},
    ),
}  # fmt: skip
"""By table: what groups go by, the same in PostgreSQL, and the totals."""
ASKED_TOTALS: Final = {"sum(m)": "sum(m::numeric)"}
RECORDED: Final = ROOT / "tests" / "formats" / "debezium"
COPY_S: Final = 60.0


def run(night: Night, *, record: bool = False) -> Result:
    """See the module."""
    broker = DevelopmentBroker(night.place / "broker")
    with (
        Postgres() as database,
        broker.start(),
        Apicurio(night.place) as registry,
        Connect(broker.bootstrap, night.place / "connect", "avro") as connect,
    ):
        database.run(*TABLES, *BEFORE)
        topics = [f"{RECORDS}.public.{table}" for table in COPIED]
        topics += [f"{NATIVE}.public.{table}" for table in (*COPIED, "thin", "outside")]
        broker.create_topics(dict.fromkeys([*topics, *_outputs(), "log.outside"], 1))
        settings = {**_converters(registry), "time.precision.mode": "connect"}
        connect.put(RECORDS, postgres_connector(database, RECORDS, "public.kinds,public.whole", settings))
        tables = "public.kinds,public.whole,public.thin,public.outside"
        connect.put(NATIVE, postgres_connector(database, NATIVE, tables, _converters(registry)))
        for topic in (topics[0], topics[-1], topics[-2]):
            _wait_records(TopicTable(broker.bootstrap, topic))
        path = night.place / "pipeline.yaml"
        document = _pipeline(broker.bootstrap, registry.url, night.place)
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
        daemon = DaemonProcess(path, night.place / "daemon.log").start()
        try:
            daemon.wait_running().wait_committed()
            database.run(*CHANGES)
            for topic, query in _outputs().items():
                _compare(night, daemon, TopicTable(broker.bootstrap, topic), [row for (row,) in database.rows(query)])
            _count_bad(night, daemon)
            if daemon.terminate() != 0 or TRACE in daemon.text():
                night.problem(daemon.text()[-2000:])
        finally:
            daemon.destroy()
        night.result.drawn = f"PostgreSQL {database.version}"
        if record:
            _record(broker.bootstrap, registry, database)
    return night.close()


def _wait_records(topic: TopicTable) -> None:
    """So that the schema of its records is there."""
    wait_until(lambda: bool(topic.read()), f"records in {topic.name}", COPY_S)
    topic.close()


def _record(bootstrap: str, registry: Apicurio, database: Postgres) -> None:
    """Schemas, values and rows."""
    lines: list[dict[str, Any]] = []
    ids: set[int] = set()
    for table in (*COPIED, "thin", "outside"):
        for _, value in read_bytes(bootstrap, f"{NATIVE}.public.{table}"):
            if value is not None:
                ids.add(int.from_bytes(value[1:5], "big"))
                lines.append({"topic": table, "value": base64.b64encode(value).decode()})
    lines += [{"id": one, "schema": registry.ask("GET", f"/schemas/ids/{one}")["schema"]} for one in sorted(ids)]
    for table in (*COPIED, "thin"):
        lines += [{"table": table, "row": row} for (row,) in database.rows(_query(table, native_columns(table)))]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (RECORDED / "avro.jsonl").write_text(text, encoding="utf-8")


def _outputs() -> dict[str, str]:
    """Topics, and what PostgreSQL is asked for to compare them with."""
    found = {f"copy.{table}": _query(table, _columns(table)) for table in COPIED}
    found |= {f"changes.{table}": _query(table, native_columns(table)) for table in (*COPIED, "thin")}
    for table, (_, key, totals) in TOTALS.items():
        asked = ", ".join(f"{ASKED_TOTALS.get(total, total)} AS {name}" for name, total in totals.items())
        found[f"totals.{table}"] = f"SELECT row_to_json(q) FROM (SELECT {key} AS g, {asked} FROM {table} GROUP BY 1) q"
    return found


def _query(table: str, columns: Mapping[str, str]) -> str:
    answers = ASKED if table == "kinds" else DEFAULTS
    asked = ", ".join(f"{answers.get(name, name)} AS {name}" for name in columns if name not in NOT_ASKED)
    return f"SELECT row_to_json(q) FROM (SELECT {asked} FROM {table}) q"


def _compare(night: Night, daemon: DaemonProcess, topic: TopicTable, rows: list[str]) -> None:
    expected = rows_of(rows)

    def equal() -> bool:
        daemon.assert_alive()
        return rows_of(topic.read().values()) == expected

    try:
        wait_until(equal, f"{topic.name} is as the table", COPY_S)
    except AssertionError:
        pairs = [
            (one, other) for one, other in zip(expected, rows_of(topic.rows.values()), strict=False) if one != other
        ]
        night.problem(f"{topic.name}: {len(expected)} rows, {len(topic.rows)} in the topic; {pairs[:1]}")
    topic.close()
    night.result.expected += len(expected)
    night.result.seen += len(topic.rows)
    night.count("tombstones", topic.tombstones)


def _count_bad(night: Night, daemon: DaemonProcess) -> None:
    said = [line for line in daemon.http("/metrics")[1].splitlines() if "bad_records_total{" in line]
    counts = {name: sum(float(line.rpartition(" ")[2]) for line in said if f'"{name}' in line) for name in BAD}
    if counts != BAD or sum(counts.values()) != sum(float(line.rpartition(" ")[2]) for line in said):
        night.problem(f"{BAD} bad records were expected: {said}")
    night.count("bad records", sum(counts.values()))


def _columns(table: str) -> dict[str, str]:
    """Where events are read as records."""
    if table != "kinds":
        return dict(SCHEMAS[table])
    return {name: OTHERS.get(name, kind) for name, (_, kind) in KINDS.items() if name not in LEFT_OUT} | {
        "small": "int"
    }


def native_columns(table: str) -> dict[str, str]:
    """Where events are read as changes. Those of `thin` are of the first version of its schema."""
    if table == "kinds":
        return {name: kind for name, (_, kind) in KINDS.items()}
    return {name: kind for name, kind in SCHEMAS[table].items() if table != "thin" or name != "more"}


def _converters(registry: Apicurio) -> dict[str, str]:
    settings = {"schema.name.adjustment.mode": "avro"}
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
            "topic": f"{RECORDS}.public.{table}", "format": "avro", "on_null": "skip",
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
    for table in (*COPIED, "thin"):
        native, name = native_columns(table), f"{table}_changes" if table in COPIED else table
        schema: Any = {"registry": f"{NATIVE}.public.thin-value"} if table == "thin" else native
        bad = {"bad_records": "skip"} if table == "thin" else {}
        sources[name] = {"topic": f"{NATIVE}.public.{table}", "format": "debezium-avro", "schema": schema, **bad}
        select = {one: one for one in [*native, "_deleted"]}
        steps.append({"name": f"{name}_native", "from": name, "select": select})
        sinks[f"{name}_out"] = {
            "from": f"{name}_native", "topic": f"changes.{table}", "key": "id", "on_null": {"column": "_deleted"},
        }  # fmt: skip
    for table, (key, _, totals) in TOTALS.items():
        read = [name for name in native_columns(table) if re.search(rf"\b{name}\)", " ".join(totals.values()))]
        select = {"g": key, **{name: name for name in read}}
        steps.append({"name": f"{table}_keyed", "from": f"{table}_changes", "select": select})
        steps.append({"name": f"{table}_sums", "from": f"{table}_keyed", "key": "g", "aggregate": dict(totals)})
        sinks[f"{table}_totals"] = {
            "from": f"{table}_sums", "topic": f"totals.{table}", "key": "g", "on_null": {"column": "_deleted"},
        }  # fmt: skip
    sources["outside"] = {
        "topic": f"{NATIVE}.public.outside", "format": "debezium-avro", "bad_records": "skip", "schema": OUTSIDE,
    }  # fmt: skip
    sinks["outside_log"] = {"from": "outside", "topic": "log.outside"}
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
