"""The pipeline file that `tidegate init --topic` writes: valid whatever the records are."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.compatibility.debezium.kinds import schema_of
from tests.formats.any_records import RECORDS
from tests.support.descriptors import lowered
from tests.testing.pipelines import messages, run
from tests.tidy.tree import ROOT
from tidegate.config.draft import render_draft, withheld_secrets
from tidegate.config.fields.columns import derive_type
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.dev.init import derive_draft, init
from tidegate.plan.build import check_pipeline

RECORDED = ROOT / "tests" / "formats" / "debezium"
KAFKA = {"bootstrap.servers": "127.0.0.1:9092"}
TOPICS = st.one_of(
    st.sampled_from(["orders", "true", "1e5", "_", "out", "kept", "a.b", "-x", "z" * 249, "null", "9"]),
    st.text("abcXYZ019._-", min_size=1, max_size=12).filter(lambda name: name not in (".", "..")),
)


def draft(values: list[bytes | None], topic: str = "orders", folder: str = "/home/ann", **kafka: str) -> str:
    return render_draft(derive_draft(topic, {**KAFKA, **kafka}, folder, values))


def checked(text: str, **environ: str) -> LoadedPipeline:
    """The file as `validate` sees it, without findings."""
    loaded = parse_pipeline(text, "draft.yaml", environ)
    found = check_pipeline(loaded)
    assert (loaded.problems, found.problems, found.warnings) == ((), (), ()), text
    return loaded


@pytest.mark.slow
@given(RECORDS, TOPICS)
def test_the_file_is_valid_whatever_the_records_are(records: list[dict[str, Any]], topic: str) -> None:
    settings = checked(draft([json.dumps(record).encode() for record in records], topic)).settings
    (source,) = settings.sources.values()
    assert source.all_topics == (topic,)


@pytest.mark.slow
@given(st.lists(st.one_of(st.none(), st.binary(max_size=8)), min_size=1, max_size=5), TOPICS)
def test_bytes_that_are_no_json_are_passed_on(values: list[bytes | None], topic: str) -> None:
    checked(draft(values, topic))


@pytest.mark.slow
@given(st.text("ab /${}%'\"#:é\\", max_size=12))
def test_checkpoints_are_kept_in_the_folder_of_the_file(name: str) -> None:
    settings = checked(draft([b'{"a": 1}'], folder=f"/home/{name}")).settings
    assert str(settings.checkpoints.directory).startswith("file:///home/")


def test_the_schema_and_its_comments() -> None:
    records = [{"id": 1, "at": "2026-01-01T00:00:00Z", "tags": ["x"], "odd": 1, "to": {"zip": "1", "a b": None}}]
    records += [{"id": 2, "odd": "x", "none": None}]
    text = draft([*(json.dumps(record).encode() for record in records), b"no json", None])
    schema = text.partition("    schema:")[2].partition("    start:")[0].splitlines()[1:]
    assert schema == [
        "      id: bigint",
        "      at: timestamp",
        "      tags: array<string>",
        '      to: "struct<zip: string, `a b`: string>"',
        "      none: string                    # it is null in all sampled records",
        "      # odd: left out: its type differs from record to record: bigint, string",
    ]
    assert "    # inferred from 4 records\n" in text
    assert "    # 2 records of them do not match these columns; the first: MALFORMED_JSON" in text


def changes(*events: dict[str, Any], wrapped: bool = False) -> list[bytes | None]:
    return [json.dumps({"schema": {}, "payload": one} if wrapped else one).encode() for one in events]


@pytest.mark.parametrize("wrapped", [False, True])
def test_change_events_are_read_as_such(wrapped: bool) -> None:
    row = {"name": "a", "id": 1, "price": "BNI=", "_op": "x"}
    values = changes(
        {"op": "r", "before": None, "after": row, "source": {"db": "d"}},
        {"op": "d", "before": {"name": None, "id": 1, "price": None}, "after": None},
        {"op": "t", "before": None, "after": None},
        wrapped=wrapped,
    )
    keys = changes({"id": 1}, wrapped=wrapped)
    text = render_draft(derive_draft("shop.orders", KAFKA, "/home/ann", [*values, None], [None, *keys]))
    settings = checked(text).settings
    (source,) = settings.sources.values()
    assert source.format == "debezium"
    assert isinstance(source.schema_, dict)
    assert {name: str(kind) for name, kind in source.schema_.items()} == {
        "name": "string", "id": "bigint", "price": "string"
    }  # fmt: skip
    (sink,) = settings.sinks.values()
    assert sink.on_null is not None
    assert (sink.key, sink.on_null.column, settings.steps) == ("id", "_deleted", [])
    assert "    # inferred from the rows of 2 change events\n    # decimals written as text, and" in text
    assert "      # _op: left out: every debezium source has a column `_op`\n" in text
    assert "_op: left out" in text


def test_the_schema_in_change_events_has_the_types() -> None:
    lines = map(json.loads, (RECORDED / "wrapped.jsonl").read_text("utf-8").splitlines())
    records = [(one["key"].encode(), one["value"].encode()) for one in lines if one.get("topic") == "kinds"]
    text = render_draft(derive_draft("t", KAFKA, "/home/ann", [one for _, one in records], [one for one, _ in records]))
    (source,) = checked(text).settings.sources.values()
    assert isinstance(source.schema_, dict)
    wanted = {name: derive_type(kind) for name, kind in schema_of("kinds", "wrapped").items()}
    texts = {"n", "n0", "nn", "m"}  # decimals of this mode
    differ = {name: str(kind) for name, kind in source.schema_.items() if kind != wanted[name] and name not in texts}
    assert differ == {"na": "array<string>", "po": "struct<x: double, y: double, wkb: binary, srid: int>"}
    assert source.schema_.keys() == wanted.keys()
    assert "    # the schema in 3 change events has these columns\n" in text


def test_decimals_have_the_digits_of_their_schema() -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "field": "d"}
    row = {"field": "after", "fields": [{**decimal, "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
                                        {**decimal, "field": "m", "parameters": {"scale": "2"}},
                                        {**decimal, "field": "odd", "parameters": {"scale": "-3"}},
                                        {"type": "int8", "field": "id"}]}  # fmt: skip
    event = {"op": "c", "after": {"d": "BNI=", "m": None, "odd": "BNI=", "id": 1}}
    text = draft([json.dumps({"schema": {"fields": [row]}, "payload": event}).encode()])
    (source,) = checked(text).settings.sources.values()
    assert isinstance(source.schema_, dict)
    kinds = {name: str(kind) for name, kind in source.schema_.items()}
    assert kinds == {"d": "decimal(10,2)", "m": "decimal(38,2)", "odd": "string", "id": "tinyint"}
    assert source.written_as.decimals == "schema"


def test_numbers_too_large_for_a_bigint_are_decimals_that_are_no_texts() -> None:
    (source,) = checked(draft(changes({"op": "c", "after": {"id": 10**19}}))).settings.sources.values()
    assert source.schema_ == {"id": derive_type("decimal(20,0)")}
    assert source.written_as.decimals == "text"


ROWS = [
    {"name": "a", "id": 1, "__op": "c", "__deleted": "false"},
    {"name": "a", "id": 1, "__op": "d", "__deleted": "true"},
]


@pytest.mark.parametrize(
    ("rows", "condition", "on_null"),
    [
        (ROWS, "`__deleted` = 'true'", "skip"),
        ([{**row, "__deleted": row["__deleted"] == "true"} for row in ROWS], "`__deleted`", "skip"),
        ([{**row, "__deleted": 1} for row in ROWS], "`__op` = 'd'", None),
    ],
)
def test_deletions_of_flattened_rows_stay_deletions(
    rows: list[dict[str, Any]], condition: str, on_null: str | None
) -> None:
    values = [json.dumps(row).encode() for row in rows]
    text = render_draft(derive_draft("rows", KAFKA, "/home/ann", [*values, None], [None, *changes({"id": 1})]))
    settings = checked(text).settings
    (source,), (sink,) = settings.sources.values(), settings.sinks.values()
    assert f'add: {{_deleted: "{condition}"}}' in text
    assert sink.on_null is not None
    assert (source.on_null, sink.key, sink.on_null.column) == (on_null, "id", "_deleted")
    cases = f"""
tests:
  - name: a deleted row
    given: {{rows: [{{value: {json.dumps(rows[0])}}}, {{value: {json.dumps(rows[1])}}}]}}
    expect: {{out: [{{key: "1"}}, {{key: "1", value: null}}]}}
"""
    assert messages(run("", text + cases)["a deleted row"]) == []


def test_rows_without_a_column_for_a_key_or_without_marks_are_plain_json() -> None:
    for row in ({"__deleted": "true", "x": 1.5}, {"id": 1, "deleted": "true"}, {"id": 1, "__op": 1}):
        (sink,) = checked(draft([json.dumps(row).encode()])).settings.sinks.values()
        assert (sink.key, sink.on_null) == (None, None)


def test_a_key_of_several_columns_is_named_and_one_of_no_type_is_none() -> None:
    values = changes({"op": "c", "after": {"x": 1.5, "a": 1, "b": "c"}})
    text = render_draft(derive_draft("t", KAFKA, "/home/ann", values, changes({"a": 1, "b": "c"})))
    assert "    # the key of the table has 2 columns: a, b\n" in text
    assert next(iter(checked(text).settings.sinks.values())).key == "a"
    text = draft(changes({"op": "c", "after": {"x": 1.5}}))
    assert '    where: "NOT _deleted"' in text
    checked(text)


@pytest.mark.slow
@given(RECORDS, st.sampled_from("cud"))
def test_the_file_is_valid_whatever_the_rows_are(rows: list[dict[str, Any]], op: str) -> None:
    places = ("before", "after") if op == "d" else ("after", "before")
    checked(draft(changes(*({"op": op, places[0]: row, places[1]: None} for row in rows))))


def test_a_secret_is_written_as_a_variable() -> None:
    login = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    text = draft([b'{"a": 1}'], **login, **{"sasl.password": "hidden"})
    assert "hidden" not in text
    assert '  sasl.password: "${KAFKA_SASL_PASSWORD}"' in text
    checked(text, KAFKA_SASL_PASSWORD="other")
    reference = {"sasl.password": "${file:/etc/password}"}
    assert withheld_secrets(reference) == {}
    assert '"${file:/etc/password}"' in draft([b'{"a": 1}'], **login, **reference)


def test_a_file_that_exists_is_left_alone_before_any_broker_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("mine")
    result = CliRunner().invoke(init, [str(file), "--topic", "orders", "--bootstrap", "127.0.0.1:9"])
    assert (result.exit_code, file.read_text()) == (1, "mine")
    assert "exists; choose another name" in result.output


def test_a_file_that_the_disk_does_not_take_is_not_left_behind(tmp_path: Path) -> None:
    """The next try, with room, must not find that it exists."""
    file = tmp_path / "orders.yaml"
    with lowered(resource.RLIMIT_FSIZE, 100):
        result = CliRunner().invoke(init, [str(file)])
    assert "cannot be written: File too large" in result.output
    assert not file.exists()


def test_a_name_that_no_topic_has_is_refused_before_any_broker_is_asked() -> None:
    result = CliRunner().invoke(init, ["--topic", "a b", "--bootstrap", "127.0.0.1:1"])
    assert result.exit_code == 2
    assert "--topic: `a b` is not a topic name; Kafka takes 1 to 249 letters" in result.output


def test_properties_without_a_topic_are_refused() -> None:
    result = CliRunner().invoke(init, ["--kafka", "client.id=x"])
    assert result.exit_code == 2
    assert "--kafka needs --topic" in result.output


@pytest.mark.parametrize("topic", ["orders", "kept", "out", "dead_letters", "dead.letters", "_dead.letters"])
def test_no_two_parts_have_one_name(topic: str) -> None:
    settings = checked(draft([b'{"a": 1}'], topic)).settings
    names = [*settings.sources, *(step.name for step in settings.steps), *settings.sinks]
    assert len(set(names)) == 3
