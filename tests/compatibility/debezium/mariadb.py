"""A table with columns of MariaDB's kinds, in two ways of writing, copied and summed while its rows change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.compatibility.debezium.kinds import rows_of
from tests.compatibility.debezium.settings import PLAIN
from tests.compatibility.debezium.tables import TopicTable
from tests.night.story import TRACE, Night, Result
from tests.support.connect import Connect
from tests.support.daemon_process import DaemonProcess
from tests.support.mariadb import MariaDB
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

KINDS: Final[Mapping[str, tuple[str, str, str]]] = {
    "id": ("int PRIMARY KEY", "int", ""),
    "b": ("boolean", "tinyint", ""),
    "bi": ("bit(1)", "boolean", "IF(bi IS NULL, NULL, JSON_EXTRACT(IF(bi, 'true', 'false'), '$'))"),
    "bi8": ("bit(8)", "binary", "TO_BASE64(bi8)"),
    "ti": ("tinyint", "tinyint", ""),
    "tiu": ("tinyint unsigned", "smallint", ""),
    "iu": ("int unsigned", "bigint", ""),
    "l": ("bigint", "bigint", ""),
    "lu": ("bigint unsigned", "decimal(20,0)", ""),
    "d": ("double", "double", ""),
    "n": ("decimal(12,3)", "decimal(12,3)", ""),
    "t": ("text", "string", ""),
    "bn": ("binary(4)", "binary", "TO_BASE64(bn)"),
    "bl": ("blob", "binary", "TO_BASE64(bl)"),
    "da": ("date", "date", ""),
    "ts": ("datetime", "timestamp_ntz", "DATE_FORMAT(ts, '%Y-%m-%dT%H:%i:%s')"),
    "ts3": ("datetime(6)", "timestamp_ntz", "DATE_FORMAT(ts3, '%Y-%m-%dT%H:%i:%s.%f')"),
    "tstz": ("timestamp(6) NULL", "timestamp", "DATE_FORMAT(tstz, '%Y-%m-%dT%H:%i:%s.%f+00:00')"),
    "y": ("year", "int", "y + 0"),
    "e": ("enum('a', 'b')", "string", ""),
    "s": ("set('x', 'y')", "string", ""),
    "j": ("json", "string", "CONCAT(j, '')"),
    "u": ("uuid", "string", "CONCAT(u, '')"),
}
"""By column: the type in MariaDB, that in the schema of a source, and how MariaDB is asked for it as JSON."""
WAYS: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, Any]]]] = {
    "adaptive": ({}, {"decimals": "base64", "timestamps": {"ts": "ms", "ts3": "us"}}),
    "iso": ({"time.precision.mode": "isostring"}, {"decimals": "base64"}),
}
ROWS: Final = (
    r"""INSERT INTO kinds VALUES (1, true, 1, b'10101010', -1, 255, 4294967295, -9223372036854775808,
    18446744073709551615, 2.25, 12.340, 'text', 'ab', 'ef', '2024-02-29', '2024-02-29 13:14:15',
    '2024-02-29 13:14:15.123456', '2024-02-29 13:14:15.123456', 2024, 'a', 'x,y', '{"a":  1}',
    '0190aaaa-0000-7000-8000-000000000001')""",
    f"INSERT INTO kinds VALUES (2{', NULL' * (len(KINDS) - 1)})",
    r"""INSERT INTO kinds VALUES (3, false, 0, 0, 127, 0, 0, 9223372036854775807, 9223372036854775807, 1e300,
    -999999999.999, 'ä€😀\n"\\', '', '', '1970-01-01', '1000-01-01 00:00:00', '9999-12-31 23:59:59.999999',
    '1970-01-01 00:00:01', 1901, 'b', '', '[]', NULL)""",
    "INSERT INTO kinds (id, e, n) VALUES (4, 'a', 1.5), (5, 'b', 2.5), (6, 'b', NULL)",
)
CHANGES: Final = (
    "UPDATE kinds SET t = 'updated', n = 1 WHERE id = 1",
    "UPDATE kinds SET id = 12 WHERE id = 2",
    "INSERT INTO kinds (id, e, n) VALUES (7, 'a', 100), (8, NULL, 3)",
    "DELETE FROM kinds WHERE id = 5",
    "UPDATE kinds SET e = 'a' WHERE id = 6",
    "BEGIN; UPDATE kinds SET n = n + 1; ROLLBACK",
    "UPDATE kinds SET n = n - 0.125 WHERE id > 6",
    "REPLACE INTO kinds (id, e, n) VALUES (4, 'b', 9)",
)
TOTALS: Final = {"rows": "count(*)", "net": "sum(n)", "least": "min(n)"}
GROUP: Final = "coalesce(e, 'none')"
_FIELDS: Final = ", ".join(f"'{name}', {asked or name}" for name, (_, _, asked) in KINDS.items())
_SUMS: Final = f"'e', {GROUP}, 'rows', count(*), 'net', sum(n), 'least', min(n)"
QUERIES: Final = {
    "copy": f"SELECT JSON_OBJECT({_FIELDS}) FROM kinds",
    "totals": f"SELECT JSON_OBJECT({_SUMS}) FROM kinds GROUP BY {GROUP}",
}
COPY_S: Final = 30.0


def run(night: Night) -> Result:
    """See the module."""
    broker = DevelopmentBroker(night.place / "broker")
    with (
        MariaDB() as database,
        broker.start(),
        Connect(broker.bootstrap, night.place / "connect", connectors="mariadb") as connect,
    ):
        columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in KINDS.items())
        database.run(f"CREATE TABLE kinds ({columns})", *ROWS)
        for number, (way, (more, _)) in enumerate(WAYS.items()):
            connect.put(way, _connector(database, broker.bootstrap, way, number, more))
        broker.create_topics({f"{name}.{way}": 1 for name in QUERIES for way in WAYS})
        path = night.place / "pipeline.yaml"
        path.write_text(json.dumps(_pipeline(broker.bootstrap, night.place), indent=1), encoding="utf-8")
        daemon = DaemonProcess(path, night.place / "daemon.log").start()
        try:
            daemon.wait_running().wait_committed()
            database.run(*CHANGES)
            for name, query in QUERIES.items():
                expected = rows_of(database.rows(query), ())
                for way in WAYS:
                    _compare(night, daemon, TopicTable(broker.bootstrap, f"{name}.{way}"), expected, f"{name}.{way}")
            if "bad_records_total{" in daemon.http("/metrics")[1] or daemon.terminate() != 0 or TRACE in daemon.text():
                night.problem(daemon.text()[-2000:])
        finally:
            daemon.destroy()
        night.result.drawn = f"MariaDB {database.version}"
    return night.close()


def _compare(night: Night, daemon: DaemonProcess, topic: TopicTable, expected: list[str], name: str) -> None:
    def equal() -> bool:
        daemon.assert_alive()
        return rows_of(topic.read().values(), ()) == expected

    try:
        wait_until(equal, "the topic is as the query", COPY_S)
    except AssertionError:
        found = rows_of(topic.rows.values(), ())
        pairs = [(one, other) for one, other in zip(expected, found, strict=False) if one != other]
        night.problem(f"{name}: {len(expected)} rows, {len(found)} in the topic; {pairs[:1]}")
    topic.close()
    night.result.expected += len(expected)
    night.result.seen += len(topic.rows)


def _connector(database: MariaDB, bootstrap: str, name: str, number: int, more: Mapping[str, str]) -> dict[str, str]:
    return {
        **PLAIN,
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "debezium",
        "database.password": "debezium",
        "database.ssl.mode": "disable",
        "database.server.id": str(100 + number),
        "database.include.list": "shop",
        "bigint.unsigned.handling.mode": "precise",
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"history.{name}",
        "topic.prefix": name,
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        **more,
    }


def _pipeline(bootstrap: str, place: Path) -> dict[str, Any]:
    sources: dict[str, Any] = {}
    steps: list[Any] = []
    sinks: dict[str, Any] = {}
    deletable = {"on_null": {"column": "_deleted"}}
    for way, (_, written_as) in WAYS.items():
        schema = {name: kind for name, (_, kind, _) in KINDS.items()}
        sources[way] = {"topic": f"{way}.shop.kinds", "format": "debezium", "schema": schema, "written_as": written_as}
        steps += [
            {"name": f"{way}_rows", "from": way, "select": {name: name for name in [*schema, "_deleted"]}},
            {"name": f"{way}_named", "from": way, "select": {"e": GROUP, "n": "n"}},
            {"name": f"{way}_totals", "from": f"{way}_named", "key": "e", "aggregate": TOTALS},
        ]
        sinks[f"{way}_copy"] = {"from": f"{way}_rows", "topic": f"copy.{way}", "key": "id", **deletable}
        sinks[f"{way}_sums"] = {"from": f"{way}_totals", "topic": f"totals.{way}", "key": "e", **deletable}
    return {
        "version": 1,
        "name": "mariadb",
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"master": "local[2]"},
        "parallelism": 2,
        "checkpoints": {"directory": f"file://{place}/checkpoints", "interval": "500ms"},
        "http": {"port": 0},
        "sources": sources,
        "steps": steps,
        "sinks": sinks,
    }
