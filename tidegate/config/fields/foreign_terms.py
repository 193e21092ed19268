"""Keys that users know from SQL and other engines, and what to write in a pipeline file instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SELECT: Final = "write `select`: {column: expression}"
_ALL_COLUMNS: Final = 'write it inside `select`: {"*": all, add: {net: amount / 2}}, or `except`, `rename`'
_WHERE: Final = "write `where`"
_KEY: Final = "write `key`"
_BEST: Final = "write `key` and `keep: {by: column, n: 3}`: the best of each key; a stream as a whole has no order"
_WINDOW: Final = "write it inside `window`: {tumbling: 1m}, {sliding: 10m, every: 1m} or {session: 30s}"
_DEDUP: Final = "write `dedup: {key: id, within: 1h}`"
_EXPLODE: Final = "write `explode: {column: item}`"
_HTTP: Final = "write it inside `http`: {url: ...}"
_METADATA: Final = "for a column of it write `metadata: {PART: name}`"
_WATERMARK: Final = "write it inside `watermark`: {delay: 5s}"
_CLUSTER: Final = "write it as `bootstrap.servers` in `kafka:` at the top of the file, or under `clusters:`"
_OF_SOURCES: Final = "set it at the sources: it applies to all rows made from their records"

_VARIABLES: Final = "variables come from the environment: ${NAME:default} in a value"
_METRICS: Final = "metrics are at `/metrics` of `http`: {port: 9095}"

COMMAND_TERMS: Final[Mapping[str, str]] = {
    "restore": "it is an option: `tidegate run FILE --restore ID|PATH`",
    "savepoint": "it is a command: `tidegate savepoint FILE [DIRECTORY]`",
}
"""Keys that are on the command line."""
TOP_TERMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("variables", "vars", "env", "environment"), _VARIABLES),
    **dict.fromkeys(("metrics", "monitoring", "prometheus"), _METRICS),
    **dict.fromkeys(("pipeline", "pipeline_name", "id", "application"), "write `name`"),
    **COMMAND_TERMS,
    **dict.fromkeys(("description", "comment"), "write a comment: # ..."),
    **dict.fromkeys(("log_level", "log"), "write `logging: {level: info}`"),
    **dict.fromkeys(("kafka_options", "kafka_properties", "brokers"), "write `kafka: {bootstrap.servers: ...}`"),
    **dict.fromkeys(("bootstrap_servers", "bootstrap-servers"), "write `kafka: {bootstrap.servers: ...}`"),
}
"""Keys at the top of the file."""
STEP_TERMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("filter", "condition", "predicate"), _WHERE),
    "having": "write `where` in a step of its own, which reads this one",
    **dict.fromkeys(("group_by", "groupBy", "partition_by", "group", "keys"), _KEY),
    **dict.fromkeys(("order_by", "orderBy", "sort", "limit", "top", "top_n", "by", "n"), _BEST),
    **dict.fromkeys(("sql", "query"), "write `where`, `select` or `key` with `aggregate`, each in a step of its own"),
    **dict.fromkeys(("map", "project", "fields", "expressions"), _SELECT),
    **dict.fromkeys(("except", "rename", "drop"), _ALL_COLUMNS),
    **dict.fromkeys(("distinct", "deduplicate", "unique"), _DEDUP),
    **dict.fromkeys(("absence", "silence", "inactivity"), "write `quiet: {key: id, for: 10m}`"),
    **dict.fromkeys(("flatmap", "flat_map", "flatMap", "unnest", "flatten"), _EXPLODE),
    **dict.fromkeys(("tumbling", "sliding", "session", "hopping", "every", "time_zone"), _WINDOW),
    **dict.fromkeys(("aggregates", "agg", "aggregations"), "write `aggregate`"),
    **dict.fromkeys(("union", "inputs", "input"), "write `from: [a, b]`"),
    **dict.fromkeys(("case", "switch", "branch", "split"), "write `route: {big: amount >= 100, rest: else}`"),
    **dict.fromkeys(("url", "cache"), _HTTP),
    "enrich": "write `lookup`, which reads a step with `table`; or ask a server by `http`",
    **dict.fromkeys(("udf", "function"), "write `async: module:function`"),
    "cast": "write `select: {column: cast(column as bigint)}`",
    "merge": "write `from: [a, b]`",
    "bad_records": _OF_SOURCES,
    "type": "the key of a step determines its operation: `where`, `select`, `aggregate` ...",
}
"""Keys of steps."""
SOURCE_TERMS: Final[Mapping[str, str]] = {
    **{part: _METADATA.replace("PART", part) for part in ("key", "headers", "timestamp", "partition", "offset")},
    **dict.fromkeys(("processing_time", "proctime", "ingestion_time"), "write `time: arrival`"),
    **dict.fromkeys(("delay", "idle", "watermark_delay"), _WATERMARK),
    **dict.fromkeys(("bootstrap.servers", "bootstrap_servers", "brokers"), _CLUSTER),
    **dict.fromkeys(("columns", "fields"), "write `schema`: {column: type}"),
    **dict.fromkeys(("starting_offsets", "startingOffsets", "auto.offset.reset"), "write `start`"),
    "group.id": "the group is named after the pipeline: set `name` at the top of the file",
    "where": "write a step with `where`, which reads this source",
    "select": "write a step with `select`, which reads this source",
}
"""Keys of sources."""
SINK_TERMS: Final[Mapping[str, str]] = {
    "topics": "write `topic: {expression: ..., allow: [a, b]}`: an expression chooses among them",
    **dict.fromkeys(("primary_key", "partition_by", "message_key"), "write `key`"),
    **dict.fromkeys(("compression", "compression.type"), "write `kafka: {compression.type: gzip}`"),
    **dict.fromkeys(
        ("columns", "fields", "exclude", "value"), "all columns are written: choose them in a step with `select`"
    ),
    **dict.fromkeys(
        ("transactional", "exactly_once", "delivery"), "remove it: `checkpoints.mode` applies to all sinks"
    ),
    "mode": "rows are inserts; with `key` and `on_null` they are an upsert topic",
    "bad_records": _OF_SOURCES,
    **dict.fromkeys(("bootstrap.servers", "bootstrap_servers", "brokers"), _CLUSTER),
    "where": "write a step with `where`, which this sink reads",
    "select": "write a step with `select`, which this sink reads",
}
"""Keys of sinks."""
