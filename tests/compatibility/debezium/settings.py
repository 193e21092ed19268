"""Settings of Debezium's connectors, as its manual has them; what a story varies comes on top."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.support.postgres import Postgres

JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
PLAIN: Final = {
    "key.converter": JSON,
    "key.converter.schemas.enable": "false",
    "value.converter": JSON,
    "value.converter.schemas.enable": "false",
    "value.converter.replace.null.with.default": "false",
}
"""Without the wrapper of `schema` and `payload`, which is the default. A NULL of a column with a DEFAULT stays one."""
WRAPPED: Final = {"key.converter": JSON, "value.converter": JSON, "value.converter.replace.null.with.default": "false"}


def postgres_connector(database: Postgres, name: str, tables: str, more: Mapping[str, str]) -> dict[str, str]:
    """A connector that writes each change once; its topics are `name` and the table's, in one partition each."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "postgres",
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "topic.prefix": name,
        "table.include.list": tables,
        "exactly.once.support": "required",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
        **more,
    }
