"""Consistency checks between settings, beyond the form of each. Return problems, raise nothing."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

import msgspec
from pydantic import SecretStr

from tidegate.config.case_checks import decide_case_problems
from tidegate.config.clusters import cluster_names, derive_uses, place_of, properties_of
from tidegate.config.encryption import SECRET, decide_encryption_problems
from tidegate.config.errors import PathProblem
from tidegate.config.fields.base import Path
from tidegate.config.fields.records import BY_ARRIVAL
from tidegate.config.fields.schemas import NamedSchema
from tidegate.config.fields.secrets import Text
from tidegate.config.fields.steps import DirectiveVerb
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.units import render_duration
from tidegate.config.models import PipelineSettings, SourceSettings, StepSettings, decide_section_problems
from tidegate.config.properties import (
    CONNECT,
    SERVERS,
    Side,
    decide_kafka_problems,
    decide_limit_problems,
    decide_login_problems,
    decide_spark_problems,
    find_other_name,
)
from tidegate.config.schemas import decide_schema_problems
from tidegate.config.translate import Understood
from tidegate.config.values import Value
from tidegate.datatypes import Schema, holds_kind
from tidegate.formats import keys
from tidegate.formats.contract import Format
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import UnknownFields
from tidegate.ids import MAIN_CLUSTER, ClusterName
from tidegate.operators.builtin.kafka_source import TOMBSTONE
from tidegate.operators.registry import keys_of, kinds_in, step_kinds
from tidegate.storage.open import STORES, scheme_of

_LOCAL = re.compile(r"local\[([0-9]{1,6}|\*)(?:, *[0-9]+)?\]", re.ASCII)
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ *([0-9]{1,6}) *, *([0-9]{1,6}) *, *[0-9]+ *\]", re.ASCII)
_MASTER = re.compile(r"local|spark://.+|k8s://.+|yarn|local.*")


def derive_problems(understood: Understood, values: dict[str, Value]) -> list[PathProblem]:
    """Returns every problem between settings; `values` has what the file contains, parts of which may be broken."""
    settings = understood.settings
    problems = [
        PathProblem((section,), f"there are no {section}", f"name at least one under `{section}:`")
        for section in ("sources", "sinks")
        if values.get(section) == {}
    ]
    problems += _clusters(settings, values)
    problems += _properties(settings, values)
    problems += _spark(settings, values)
    problems += _times(settings, values)
    problems += _storage(settings)
    problems += _roles(settings)
    for name, source in settings.sources.items():
        problems += _source(("sources", name), source)
    for name, sink in settings.sinks.items():
        problems += decide_section_problems(("sinks", name), sink)
    for index, step in zip(understood.step_indices, settings.steps, strict=True):
        problems += _step(("steps", index), step)
    problems += decide_schema_problems(settings, registry=values.get("registry") is not None)
    problems += decide_case_problems(settings, understood.case_indices, values)
    problems += decide_change_problems(settings, understood.step_indices, values)
    problems += _late_sinks(settings, values)
    problems += _dead_letters(settings, values)
    return problems


def _storage(settings: PipelineSettings) -> Iterator[PathProblem]:
    """Yields options of `checkpoints.storage` that the kind of store in `checkpoints.directory` would ignore."""
    scheme = scheme_of(settings.checkpoints.directory)
    taken = STORES[scheme].options
    for name in sorted(settings.checkpoints.storage.model_fields_set - taken):
        of = f"a store of {scheme}:// takes {', '.join(sorted(taken))}" if taken else "a directory takes no options"
        yield PathProblem(
            ("checkpoints", "storage", name),
            f"`{name}` is not for {scheme}://",
            f"remove it, or correct `checkpoints.directory`: {of}",
            at_key=True,
        )


def _roles(settings: PipelineSettings) -> Iterator[PathProblem]:
    """Checks that a token has only one role, and that certificate names are used only with client certificates."""
    tls, tokens = settings.http.tls, (settings.http.read_token_file, settings.http.token_file)
    if None not in tokens and PurePath(str(tokens[0])) == PurePath(str(tokens[1])):
        message = "is also `token_file`: clients that may only read could give commands"
        yield PathProblem(
            ("http", "read_token_file"), message, "name another file; the daemon creates it if it does not exist"
        )
    if tls is None or tls.client_ca is not None:
        return
    for key in ("read", "operate"):
        if getattr(tls, key) is not None:
            message = "has no effect: without `client_ca`, clients present no certificates"
            yield PathProblem(("http", "tls", key), message, "add `client_ca`, or remove this", at_key=True)


def _late_sinks(settings: PipelineSettings, values: dict[str, Value]) -> Iterator[PathProblem]:
    """Checks that a sink either has `from` or is named as `late` by a step."""
    steps, sinks = values.get("steps"), values.get("sinks")
    named: dict[str, str] = {}
    for index, step in enumerate(steps if isinstance(steps, list) else ()):
        late = step.get("late") if isinstance(step, dict) else None
        if isinstance(step, dict) and isinstance(late, str):
            named[late] = str(step.get("name"))
            if isinstance(sinks, dict) and late not in sinks:
                remedy = derive_suggestion(late, sinks, otherwise="add it under `sinks:`, without `from`")
                yield PathProblem(("steps", index, "late"), f"there is no sink `{late[:60]}`", remedy)
    for name, sink in settings.sinks.items():
        if sink.from_ is None and name not in named:
            remedy = "add it: source or step to write; a list writes all of them"
            yield PathProblem(("sinks", name), "`from` is missing", remedy, at_key=True)
        elif sink.from_ is not None and name in named:
            message = f"it gets the late records of `{named[name]}`, and nothing else"
            yield PathProblem(("sinks", name, "from"), message, "remove `from`, or add another sink", at_key=True)


def _dead_letters(settings: PipelineSettings, values: dict[str, Value]) -> Iterator[PathProblem]:
    """Checks that `bad_records: dead-letter` has a topic."""
    if settings.dead_letters is not None or "dead_letters" in values:  # problems inside the section were reported
        return
    for name, source in settings.sources.items():
        if source.bad_records == BadRecordPolicy.DEAD_LETTER:
            remedy = "add `dead_letters: {topic: ...}` at the top of the file, or use fail or skip"
            yield PathProblem(("sources", name, "bad_records"), "`dead-letter` has no topic to write to", remedy)


def _clusters(settings: PipelineSettings, values: dict[str, Value]) -> Iterator[PathProblem]:
    """Checks that every cluster that is named is defined, readable or not."""
    written = values.get("clusters", {})
    if not isinstance(written, dict):
        return  # reported with the section
    known = [MAIN_CLUSTER, *written]
    for path, name in derive_uses(settings):
        if name not in known:
            missing = f"add `{name[:60]}: {{bootstrap.servers: ...}}` to `clusters`"
            remedy = derive_suggestion(name, known, otherwise=missing)
            yield PathProblem((*path, "cluster"), f"there is no cluster `{name[:60]}`", remedy)


def _properties(settings: PipelineSettings, values: dict[str, Value]) -> Iterator[PathProblem]:
    for cluster in cluster_names(settings):
        path, properties = place_of(cluster), properties_of(settings, cluster)
        if isinstance(_written_at(path, values), dict):
            written = _as_written(path, properties, values)
            yield from _below(path, decide_kafka_problems(properties, "both"))
            yield from _login_problems(path, written, properties)
            yield from _servers(path, written)
            if settings.dead_letters is not None and settings.dead_letters.cluster == cluster:
                yield from _limits(path, path, written, {}, "producer", settings)
    for name, source in settings.sources.items():
        path = ("sources", name, "kafka")
        yield from _own_properties(path, source.cluster, source.kafka, "consumer", settings, values)
    for name, sink in settings.sinks.items():
        path = ("sinks", name, "kafka")
        yield from _own_properties(path, sink.cluster, sink.kafka, "producer", settings, values)


def _as_written(path: Path, properties: Mapping[str, Text], values: dict[str, Value]) -> dict[str, Text]:
    """Returns the properties, with placeholders for unreadable ones, which are reported and not missing."""
    written = _written_at(path, values)
    names = written if isinstance(written, dict) else {}
    return {**dict.fromkeys(names, SecretStr("")), **properties}


def _written_at(path: Path, values: dict[str, Value]) -> Value:
    written: Value = values
    for step in path:
        written = written.get(str(step)) if isinstance(written, dict) else None
    return written


def _login_problems(path: Path, written: Mapping[str, Text], properties: Mapping[str, Text]) -> Iterator[PathProblem]:
    """Yields problems of the login as a whole that concern one of these properties."""
    return _below(path, [one for one in decide_login_problems(written) if one.path[0] in properties])


def _own_properties(
    path: Path,
    cluster: ClusterName,
    properties: Mapping[str, Text],
    side: Side,
    settings: PipelineSettings,
    values: dict[str, Value],
) -> Iterator[PathProblem]:
    place = place_of(cluster)
    top = _as_written(place, properties_of(settings, cluster), values)
    yield from _below(path, decide_kafka_problems(properties, side))
    yield from _login_problems(path, {**top, **_as_written(path, properties, values)}, properties)
    yield from _limits(path, place, top, properties, side, settings)
    for name in properties:
        if name not in top and (other := find_other_name(name, top)):
            message = f"is another name of `{other}`, which is in `{'.'.join(map(str, place))}:`"
            yield PathProblem(
                (*path, name), message, f"write `{other}` here as well: it overrides that one", at_key=True
            )
    for key in sorted(SERVERS & set(properties)):
        message = "a source or sink cannot define a cluster"
        remedy = "define the cluster under `clusters:` at the top, and name it here: `cluster: NAME`"
        yield PathProblem((*path, key), message, remedy, at_key=True)


def _limits(
    path: Path, place: Path, top: Mapping[str, Text], own: Mapping[str, Text], side: Side, settings: PipelineSettings
) -> Iterator[PathProblem]:
    """Yields problems of all properties of one client, each where it is written: at `path`, or that of the cluster."""
    for problem in decide_limit_problems({**top, **own}, side, settings.checkpoints.transaction_timeout_ms):
        yield from _below(path if problem.path[0] in own else place, [problem])


def _below(path: Path, problems: Iterable[PathProblem]) -> Iterator[PathProblem]:
    for problem in problems:
        yield msgspec.structs.replace(problem, path=(*path, *problem.path))


def _servers(path: Path, written: Mapping[str, Text]) -> Iterator[PathProblem]:
    if not SERVERS & written.keys():
        remedy = "add it: host:port of one or more brokers"
        yield PathProblem(path, "`bootstrap.servers` is missing", remedy, at_key=True)


def _spark(settings: PipelineSettings, values: dict[str, Value]) -> Iterator[PathProblem]:
    yield from _below(("spark",), decide_spark_problems(settings.spark))
    master, wanted = settings.spark_master, settings.parallelism
    written = {**settings.spark}
    if SECRET in _as_written(("spark",), {}, values):
        written.setdefault(SECRET, SecretStr(""))
    yield from _below(("spark",), decide_encryption_problems(settings.runtime.encryption, master, written))
    slots = None
    if match := _LOCAL.fullmatch(master):
        slots = None if match[1] == "*" else int(match[1])
    elif match := _LOCAL_CLUSTER.fullmatch(master):
        slots = int(match[1]) * int(match[2])
    elif master == "local":
        slots = 1
    elif not _MASTER.fullmatch(master) or master.startswith("local"):
        remedy = derive_suggestion(
            master, ["local[2]", "local-cluster[2,1,1024]", "spark://host:7077", "k8s://...", "yarn"]
        )
        what = f"is a server of Spark Connect: {CONNECT}" if master.startswith("sc://") else "is not a Spark master"
        yield PathProblem(("spark", "master"), f"`{master[:60]}` {what}", remedy)
    yield from _executors(settings, master)
    if slots is not None and slots < wanted:
        message = f"`{master}` has room for {slots} slot{'s' if slots != 1 else ''}, but parallelism is {wanted}"
        yield PathProblem(("spark", "master"), message, f"give it {wanted}, or lower `parallelism`")


def _executors(settings: PipelineSettings, master: str) -> Iterator[PathProblem]:
    """Checks that a fixed number of executors has room for all slots, as far as the file sets their size."""
    numbers = []
    for name in ("spark.executor.instances", "spark.executor.cores", "spark.task.cpus"):
        value = settings.spark.get(name, "1" if name == "spark.task.cpus" else "")
        if not isinstance(value, str) or not re.fullmatch("0*[1-9][0-9]{0,8}", value, re.ASCII):
            return
        numbers.append(int(value))
    executors, cores, cpus = numbers
    slots, wanted = executors * (cores // cpus), settings.parallelism
    if slots < wanted and master.startswith(("k8s://", "yarn")):
        message = f"{executors} executors with {cores} cores have room for {slots} slots, but parallelism is {wanted}"
        yield PathProblem(("spark", "spark.executor.instances"), message, "give it more, or lower `parallelism`")


def _times(settings: PipelineSettings, values: dict[str, Value]) -> Iterator[PathProblem]:
    if settings.max_parallelism < settings.parallelism:
        message = f"{settings.max_parallelism} key groups are fewer than {settings.parallelism} slots"
        place = "max_parallelism" if "max_parallelism" in values else "parallelism"
        yield PathProblem((place,), message, "make `max_parallelism` at least `parallelism`; 128 is the default")
    if settings.restart.max_ms < settings.restart.initial_ms:
        yield PathProblem(("restart", "max"), "is less than `restart.initial`", "make it at least as long")
    runtime = settings.runtime
    if runtime.heartbeat_timeout_ms < 2 * runtime.heartbeat_interval_ms:
        remedy = "make it at least twice `runtime.heartbeat_interval`"
        yield PathProblem(("runtime", "heartbeat_timeout"), "is too short for the heartbeat interval", remedy)
    checkpoints = settings.checkpoints
    if checkpoints.mode != "exactly-once" and checkpoints.unaligned.after_ms is not None:
        message = (
            f"`{checkpoints.unaligned}` needs `mode: exactly-once`: in at-least-once mode nothing waits for barriers"
        )
        yield PathProblem(("checkpoints", "unaligned"), message, "remove it, or change the mode")
    pauses = checkpoints.min_pause_ms > checkpoints.interval_ms
    apart_ms, key = (checkpoints.min_pause_ms, "min_pause") if pauses else (checkpoints.interval_ms, "interval")
    needed = apart_ms + checkpoints.timeout_ms + settings.restart.max_ms
    if checkpoints.mode == "exactly-once" and needed >= checkpoints.transaction_timeout_ms and "checkpoints" in values:
        limit, whole = render_duration(checkpoints.transaction_timeout_ms), render_duration(needed)
        message = f"{limit} is not more than {key} + timeout + restart.max ({whole}): data could be lost in a restart"
        remedy = f"make it more than {whole}, or shorten `checkpoints.{'min_pause' if pauses else 'timeout'}`"
        yield PathProblem(("checkpoints", "transaction_timeout"), message, remedy)


def _is_over(start: str | dict[int, int], until: str) -> bool:
    """Tells whether a read ends before it begins; both arguments are names or timestamps in UTC."""
    if isinstance(start, dict) or not (start[:1].isdigit() and until[:1].isdigit()):
        return False
    return dt.datetime.fromisoformat(until) <= dt.datetime.fromisoformat(start)


def _source(path: Path, source: SourceSettings) -> Iterator[PathProblem]:
    keys = [key for key in ("topic", "topics", "pattern") if getattr(source, key) is not None]
    if not keys:
        yield PathProblem(path, "`topic` is missing", "add it: the topic to read", at_key=True)
    for key in keys[1:]:
        message = f"both `{keys[0]}` and `{key}` are given"
        yield PathProblem((*path, key), message, "keep one of them", at_key=True)
    if source.pattern is not None and source.until != "never":
        message = "a bounded read of topics by a pattern is not supported yet"
        yield PathProblem((*path, "until"), message, "list them: `topics: [a, b]`")
    if source.pattern is not None and source.bad_records == "dead-letter":
        message = "dead letters of topics by a pattern are not supported yet"
        yield PathProblem((*path, "bad_records"), message, "list the topics: `topics: [a, b]`, or use fail or skip")
    if isinstance(source.start, dict) and (source.pattern is not None or len(source.all_topics) > 1):
        message = "offsets by partition are ambiguous for several topics"
        yield PathProblem((*path, "start"), message, "make a source per topic and list them in `from`")
    if _is_over(source.start, source.until):
        message = f"`{source.until}` is not after `start`, {source.start}: nothing would be read"
        yield PathProblem((*path, "until"), message, "make it later than `start`")
    yield from decide_section_problems(path, source)
    if source.time == BY_ARRIVAL:
        yield from _arrival(path, source)
    kind = FORMATS[source.format]
    if kind.needs_schema and source.schema_ is None:
        yield PathProblem(
            path, "`schema` is missing", "add it: columns and types, for instance {id: bigint}", at_key=True
        )
    unknown = source.unknown_fields
    if UnknownFields(unknown.what) is not UnknownFields.SKIP and not kind.finds_unknown_fields:
        message = (
            f"records in {kind.name} have no fields"
            if kind.fixed_columns is not None
            else f"{kind.name} skips fields that the schema does not name: another way is not supported yet"
        )
        yield PathProblem((*path, "unknown_fields"), message, "remove it", at_key=True)
    elif isinstance(source.schema_, dict) and unknown.column in source.schema_:
        message = f"`{unknown.column}` is a column of `schema` already"
        yield PathProblem((*path, "unknown_fields"), message, "choose another name")
    if kind.fixed_columns is not None and not isinstance(source.schema_, NamedSchema):
        yield from _chosen_columns(path, kind.name, kind.fixed_columns, source.schema_ or {})
    if source.on_null is not None and kind.reads_tombstones:
        message = f"has no effect: in a {kind.name} source a record without value has NULL in `value`"
        yield PathProblem((*path, "on_null"), message, "remove it, and use `where: value IS NOT NULL`", at_key=True)
    for key, schema in (("schema", source.schema_), ("key_schema", source.key_schema)):
        if isinstance(schema, NamedSchema) and schema.file is not None:
            yield from _check_schema_file((*path, key), schema)
    yield from _changes(path, kind, source)
    yield from _source_key(path, source)


def _check_schema_file(path: Path, schema: NamedSchema) -> Iterator[PathProblem]:
    """Checks that a reader's schema comes from only one place."""
    if schema.registry is not None:
        message = "both a file and a subject of the registry are given"
        yield PathProblem((*path, "registry"), message, "keep one of them", at_key=True)
    elif "version" in schema.model_fields_set:
        yield PathProblem(
            (*path, "version"), "a file has no versions: a subject of the registry has", "remove it", at_key=True
        )


def _changes(path: Path, kind: Format, source: SourceSettings) -> Iterator[PathProblem]:
    if kind.is_changelog and source.on_null == TOMBSTONE:
        message = f"a {kind.name} source emits a row for each delete, which a tombstone would repeat"
        yield PathProblem((*path, "on_null"), message, "remove it: tombstones are skipped")
    yield from _units((*path, "written_as", "timestamps"), source)
    given = {key for key in source.written_as.model_fields_set if getattr(source.written_as, key) is not None}
    refused = given - set(kind.written_as)
    if refused and not kind.written_as:
        message = f"values of {kind.name} are not ambiguous"
        yield PathProblem((*path, "written_as"), message, "remove it", at_key=True)
        return
    for key in sorted(refused):
        message = f"{key} of {kind.name} are not ambiguous"
        yield PathProblem((*path, "written_as", key), message, "remove it", at_key=True)
    if "decimals" in kind.written_as and "decimals" not in given:
        yield from _decimals((*path, "schema"), source)


def _decimals(path: Path, source: SourceSettings) -> Iterator[PathProblem]:
    """Requires `written_as`.

    Most texts could be a number or base64, so the digits of a number would decide which records are bad.
    """
    columns = source.schema_ if isinstance(source.schema_, dict) else {}
    found = next(((name, kind) for name, kind in columns.items() if holds_kind(kind, ["decimal"])), None)
    if found is not None:
        message = f"the column `{found[0]}` is {found[1]}, and a text in it may be a number or base64"
        remedy = (
            "add `written_as: {decimals: text}` to the source (the connector has `decimal.handling.mode=string`, or "
            "writes numbers), `base64` (`precise`), or `schema` (records have their schema with them)"
        )
        yield PathProblem((*path, found[0]), message, remedy, at_key=True)


def _units(path: Path, source: SourceSettings) -> Iterator[PathProblem]:
    columns = source.schema_ if isinstance(source.schema_, dict) else {}
    units = source.written_as.timestamps
    for name, _ in () if units is None else units.by_column:
        if name not in columns:
            message = f"`{name}` is no column of `schema`"
            yield PathProblem((*path, name), message, derive_suggestion(name, columns), at_key=True)
        elif not holds_kind(columns[name], ["timestamp", "timestamp_ntz"]):
            message = f"the column `{name}` is {columns[name]} and holds no timestamp"
            yield PathProblem((*path, name), message, "remove it, or change the type in `schema`", at_key=True)


def _arrival(path: Path, source: SourceSettings) -> Iterator[PathProblem]:
    """Checks what contradicts `time: arrival`."""
    both = "`time: arrival` makes the time of arrival the event time"
    if source.event_time is not None:
        yield PathProblem((*path, "event_time"), both, "keep one of them", at_key=True)
    if "idle" in source.watermark.model_fields_set:
        message = "with `time: arrival` the watermark follows the clock whenever everything has been read"
        yield PathProblem((*path, "watermark", "idle"), message, "remove it", at_key=True)
    if source.watermark.ahead_ms is not None:
        remedy = "remove `ahead`: brokers have `message.timestamp.after.max.ms`"
        yield PathProblem((*path, "watermark", "ahead"), f"{both}, so `ahead` has no effect", remedy, at_key=True)


def _source_key(path: Path, source: SourceSettings) -> Iterator[PathProblem]:
    if source.metadata.key is None:
        for key, value in (("key_format", source.key_format), ("key_schema", source.key_schema)):
            if value is not None:
                message = "no column holds the key"
                yield PathProblem((*path, key), message, "add it: `metadata: {key: NAME}`", at_key=True)
    elif source.key_format in (keys.JSON, keys.AVRO):
        if source.key_schema is None:
            remedy = "add it: the type of the key, for instance bigint or {id: bigint}"
            yield PathProblem((*path, "key_format"), "`key_schema` is missing", remedy)
        elif source.key_format == keys.JSON and isinstance(source.key_schema, NamedSchema):
            message = "a json key has a type, not a schema"
            yield PathProblem((*path, "key_schema"), message, "write its type, for instance bigint or {id: bigint}")
    elif source.key_schema is not None:
        message = f"a {source.key_format or keys.TEXT} key has no schema"
        yield PathProblem(
            (*path, "key_schema"), message, "remove it, or write `key_format: json` or `avro`", at_key=True
        )


def _chosen_columns(path: Path, format_name: str, fixed: Schema, chosen: Schema) -> Iterator[PathProblem]:
    """Checks the columns chosen by `schema` for a format whose columns are fixed."""
    for name, kind in chosen.items():
        if name not in fixed:
            message = f"a {format_name} source has no such column"
            yield PathProblem((*path, "schema", name), message, derive_suggestion(name, fixed), at_key=True)
        elif fixed[name] != kind:
            message = f"is {fixed[name]} in a {format_name} source, not {kind}"
            yield PathProblem((*path, "schema", name), message, f"write {fixed[name]}")


def _step(path: Path, step: StepSettings) -> Iterator[PathProblem]:
    kinds = step_kinds()
    given = kinds_in(step)
    keys = [kind.key for kind in given]
    if len(given) > 1:
        message = f"a step has one operation, and this one has `{'` and `'.join(keys)}`"
        yield PathProblem((*path, keys[1]), message, "make it two steps", at_key=True)
    for kind in given:
        for key, remedy in kind.needs.items():
            if getattr(step, key) is None:
                yield PathProblem(path, f"`{key}` is missing", remedy, at_key=True)
    orphans = [key for key in _keys_given(step) if not any(key in keys_of(kind) for kind in given)]
    for key, name in ((key, type(step).model_fields[key].alias or key) for key in orphans):
        *others, last = (f"`{kind.key}`" for kind in kinds if key in kind.keys)
        owners = f"{', '.join(others)} or {last}" if others else last
        remedy = f"add {owners}, or remove `{name}`"
        if name == "emit" and "keep" in keys:
            remedy = "write it inside `keep`: `keep: {by: column, n: 3, emit: on close}`"
        yield PathProblem((*path, name), f"`{name}` without {owners}", remedy, at_key=True)
    named = [kind.key for kind in given if kind.inputs(step)]
    with_from = any(one.path[0] == "from" for kind in given for one in kind.inputs(step))
    if step.from_ is None and not named:
        remedy = "add it: source or step to read; a list reads all of them"
        yield PathProblem(path, "`from` is missing", remedy, at_key=True)
    elif step.from_ is not None and named and not with_from:
        yield PathProblem((*path, "from"), f"`{named[0]}` names what the step reads", "remove `from`", at_key=True)
    if step.columns is not None and len(step.from_ or ()) < 2:
        remedy = "remove it, list several in `from`, or choose columns with `select`"
        yield PathProblem((*path, "columns"), "`columns` is for several inputs in `from`", remedy, at_key=True)
    if not given and not orphans and step.from_ is not None and len(step.from_) == 1:
        choices = ", ".join(f"`{kind.key}`" for kind in kinds if kind.key)
        remedy = f"add one of {choices}; a union lists several in `from`"
        yield PathProblem(path, "has no operation", remedy, at_key=True)


def _keys_given(step: StepSettings) -> list[str]:
    """Returns the keys of step kinds that a step sets, whatever their values are."""
    keys = dict.fromkeys(key for kind in step_kinds() for key in kind.keys)
    return [key for key in keys if key in step.model_fields_set]


# -- `was` and `state`, as far as names show ---------------------------------------------------------------------------
# Which steps have state, and with which columns, is known once the plan is built: `plan/upgrade_directives.py`.


def decide_change_problems(
    settings: PipelineSettings, step_indices: tuple[int, ...], values: dict[str, Value]
) -> Iterator[PathProblem]:
    """Yields every problem of names; `values` has what the file contains, parts of which may be broken."""
    there = _names(values)
    taken: dict[str, str] = {}
    for path, name, was in _renamed(settings, step_indices):
        if was == name:
            yield PathProblem(path, "the name has not changed", "write its former name, or remove `was`")
        elif was in there:
            message = f"the file still has a {there[was]} `{was}`: state cannot continue in two places"
            yield PathProblem(path, message, f"remove `was`, or remove or rename that {there[was]}")
        elif was in taken:
            message = f"`{taken[was]}` also has `was: {was}`: state cannot continue in two places"
            yield PathProblem(path, message, "remove one `was`: that step begins with empty state")
        else:
            taken[was] = name
    for index, step in zip(step_indices, settings.steps, strict=True):
        renamed = {} if step.was is None else step.was.columns
        yield from _columns(("steps", index, "state"), step.state, renamed)


def _renamed(settings: PipelineSettings, step_indices: tuple[int, ...]) -> Iterator[tuple[Path, str, str]]:
    for name, source in settings.sources.items():
        if source.was is not None:
            yield ("sources", name, "was"), name, source.was
    for index, step in zip(step_indices, settings.steps, strict=True):
        if step.was is not None and step.was.step:
            yield ("steps", index, "was"), step.name, step.was.step


def _names(values: dict[str, Value]) -> dict[str, str]:
    """Returns the kind of everything that can have state or positions, by name, including broken parts."""
    steps, sources = values.get("steps"), values.get("sources")
    listed = steps if isinstance(steps, list) else []
    found = {str(step.get("name")): "step" for step in listed if isinstance(step, dict)}
    return found | (dict.fromkeys(sources, "source") if isinstance(sources, dict) else {})


def _columns(path: Path, directive: DirectiveVerb | None, renamed: dict[str, str]) -> Iterator[PathProblem]:
    """Yields contradictory statements about one column."""
    if directive is None:
        return
    former = {old: new for new, old in renamed.items()}
    for column in directive.drop:
        if column in former:
            message = f"`was` renames `{column}` to `{former[column]}`"
            yield PathProblem((*path, "drop"), message, "remove it here, or there")
    for column in directive.defaults:
        if column in renamed:
            message = f"`was` gives `{column}` the values of `{renamed[column]}`"
            yield PathProblem((*path, "defaults", column), message, "remove it here, or there", at_key=True)
