"""Schemas before a start: read from files, the registry and its copies; what sinks write is checked and registered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from tests.formats.protobuf.any_protobuf import file_of, text_of
from tests.support.registry import FakeRegistry, answer_with
from tidegate.checks import registry
from tidegate.checks.findings import Severity
from tidegate.checks.registry import Ask, check_registrations, open_registry, register_schemas, resolve_schemas
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.daemon.schema_service import SchemaService
from tidegate.formats.schemas import FormatOptions, SchemaText
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.build import build_plan
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.registry import transport
from tidegate.registry.transport import RegistryUnavailable

ORDER = json.dumps({"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]})
AWAY = answer_with(503, "")

Load = Callable[..., LoadedPipeline]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(transport, "PAUSES_S", (0.0,))
    monkeypatch.setattr(registry, "PATIENCE_S", 0.0)
    monkeypatch.setattr(registry, "AGAIN_S", 0.0)
    monkeypatch.setenv("TIDEGATE_CACHE", str(tmp_path / "cache"))
    with FakeRegistry() as running:
        yield running


@pytest.fixture
def load(fake: FakeRegistry, tmp_path: Path) -> Load:
    """A pipeline from Avro to Avro; `source` and `sink` are further settings of its two ends, `late` of one more."""

    def make(ask: Ask | None = None, sink: Any = None, late: Any = None, **source: Any) -> LoadedPipeline:
        ends: dict[str, Any] = {"schema": {"id": "bigint"}, **source}
        text: dict[str, Any] = {
            "version": 1, "name": "p", "kafka": {"bootstrap.servers": "127.0.0.1:1"},
            "checkpoints": {"directory": f"file://{tmp_path}"},
            "registry": {"url": fake.url, "username": "ann", "password": "pass-word"},
            "sources": {"orders": {"topic": "orders", "format": "avro", **ends}},
            "sinks": {"out": {"from": "orders", "topic": "out", "format": "avro", **(sink or {})}},
        }  # fmt: skip
        if late is not None:
            text["sinks"]["late"] = {"from": "orders", "topic": "late", "format": "avro", **late}
        loaded = parse_pipeline(json.dumps(text), str(tmp_path / "p.yaml"), {})
        return loaded if ask is None else resolve_schemas(loaded, ask)

    return make


def messages(loaded: LoadedPipeline) -> list[str]:
    return [f"{one.path}: {one.message}; {one.remedy}" for one in loaded.problems]


def options_of(loaded: LoadedPipeline) -> FormatOptions:
    (source,) = build_plan(loaded).operators(SourceOperator)
    return source.options


def written(loaded: LoadedPipeline) -> SchemaText:
    (sink,) = build_plan(loaded).operators(SinkOperator)
    assert sink.options.schema is not None
    return sink.options.schema


def register(loaded: LoadedPipeline) -> int:
    """The id that the sink writes with after a start."""
    assert loaded.settings.registry is not None
    plan, registry = build_plan(loaded), open_registry(loaded.settings.registry)

    async def start() -> int:
        desk = SchemaService(registry)
        async with registry:
            desk.write_with(await register_schemas(registry, plan))
        (sink,) = desk.complete(plan).operators(SinkOperator)
        assert sink.options.schema is not None
        return sink.options.schema.id

    return asyncio.run(start())


def refusals(loaded: LoadedPipeline) -> list[str]:
    found = asyncio.run(check_registrations(loaded, build_plan(loaded), 0.0))
    return [f"{one.exit_code if one.prevents_start else 0} {loaded.display(one.place)}: {one.value}" for one in found]


def test_a_file_next_to_the_pipeline_file_gives_the_columns(load: Load, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(ORDER, "utf-8")
    loaded = load(Ask.COPY, schema={"file": "order.avsc"})
    assert messages(loaded) == []
    assert [name for name, _ in build_plan(loaded).operators(SourceOperator)[0].schema] == ["id"]
    missing = load(Ask.COPY, schema={"file": "other.avsc"})
    assert "sources.orders.schema.file: " in messages(missing)[0]
    assert "other.avsc cannot be read: No such file or directory" in messages(missing)[0]


def test_a_descriptor_set_gives_the_columns_of_one_of_its_messages(load: Load, tmp_path: Path) -> None:
    file = file_of({"Order": [("id", "int64")], "Payment": [("sum", "double")]}, package="shop")
    (tmp_path / "shop.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    (tmp_path / "shop.proto").write_text('syntax = "proto3";\nmessage Order { int64 id = 1; }\n', "utf-8")
    for message, column in ((None, "id"), ("shop.Order", "id"), ("shop.Payment", "sum")):
        named = {"file": "shop.desc"} | ({} if message is None else {"message": message})
        loaded = load(Ask.COPY, sink={"format": "json"}, format="protobuf", schema=named)
        assert (messages(loaded), [name for name, _ in build_plan(loaded).operators(SourceOperator)[0].schema]) == (
            [], [column]
        )  # fmt: skip
    assert "it has shop.Order, shop.Payment" in messages(
        load(Ask.COPY, format="protobuf", schema={"file": "shop.desc", "message": "Order"})
    )[0]  # fmt: skip
    text = load(Ask.COPY, sink={"format": "json"}, format="protobuf", schema={"file": "shop.proto"})
    assert (messages(text), [name for name, _ in build_plan(text).operators(SourceOperator)[0].schema]) == ([], ["id"])
    (said,) = messages(load(Ask.COPY, schema={"file": "order.avsc", "message": "a.B"}, format="json-schema"))
    assert "cannot be read" in said


def test_a_message_is_named_of_a_schema_that_has_several(load: Load, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(ORDER, "utf-8")
    (said,) = messages(load(Ask.COPY, schema={"file": "order.avsc", "message": "shop.Order"}))
    assert "a schema in avro has no messages; remove `message`" in said


def test_a_protobuf_sink_writes_with_a_schema_of_its_own(fake: FakeRegistry, load: Load, tmp_path: Path) -> None:
    file = file_of({"Other": [("x", "int32")], "Order": [("id", "int64"), ("more", "string")]}, package="shop")
    (tmp_path / "shop.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    named = {"schema": {"file": "shop.desc", "message": "shop.Order"}, "format": "protobuf"}
    loaded = load(Ask.EITHER, sink=named)
    assert (refusals(loaded), register(loaded)) == ([], 1)
    assert written(loaded).subject == "out-value"
    assert fake.schemas[1]["schemaType"] == "PROTOBUF"
    with pytest.raises(ConfigErrors, match="a message needs field numbers, which columns do not have"):
        build_plan(load(Ask.EITHER, sink={"format": "protobuf"}))


def test_a_protobuf_schema_that_imports_others_is_not_registered(load: Load, tmp_path: Path) -> None:
    other = file_of({"Customer": [("name", "string")]}, name="customer.proto", package="shop")
    file = file_of({"Order": [("id", "int64"), ("who", "shop.Customer")]}, imports=["customer.proto"])
    (tmp_path / "shop.desc").write_bytes(FileDescriptorSet(file=[other, file]).SerializeToString())
    loaded = load(Ask.EITHER, sink={"format": "protobuf", "schema": {"file": "shop.desc"}})
    (said,) = refusals(loaded)
    assert said == "2 sinks.out.schema: the schema imports `customer.proto`, whose subject is unknown"


def test_the_registrys_descriptor_gives_the_columns_where_it_returns_one(fake: FakeRegistry, load: Load) -> None:
    text, named = 'syntax = "proto3";', {"schema": {"registry": "orders-value"}, "format": "protobuf"}
    fake.add("orders-value", text, "PROTOBUF")
    (said,) = messages(load(Ask.EITHER, **named))
    assert "`orders-value` cannot be used: the schema has no message" in said
    fake.serialized[text] = text_of(file_of({"Order": [("id", "int64")]})).text
    schema = options_of(load(Ask.EITHER, sink={"format": "json"}, **named)).schema
    assert schema is not None
    assert (schema.text, schema.message, schema.id) == (fake.serialized[text], "t.Order", 1)


def test_a_subject_is_asked_for_at_a_start_and_looked_up_in_its_copy_otherwise(fake: FakeRegistry, load: Load) -> None:
    named: dict[str, Any] = {"schema": {"registry": "orders-value"}}
    (said,) = messages(load(Ask.COPY, **named))
    assert (
        "this machine has no copy of `orders-value` from the registry; run `tidegate validate --connect FILE`" in said
    )
    fake.add("orders-value", ORDER)
    at_start = options_of(load(Ask.REGISTRY, **named)).schema
    assert at_start is not None
    assert (at_start.text, at_start.id, at_start.version) == (ORDER, 1, 1)
    asked = len(fake.asked)
    assert options_of(load(Ask.COPY, **named)).schema == at_start
    assert len(fake.asked) == asked
    fake.trouble = AWAY
    assert options_of(load(Ask.EITHER, **named)).schema == at_start
    with pytest.raises(RegistryUnavailable):
        load(Ask.REGISTRY, **named)
    with pytest.raises(RegistryUnavailable):
        load(Ask.EITHER, schema={"registry": "another"})


def test_what_the_registry_does_not_have_is_a_problem_of_the_file(fake: FakeRegistry, load: Load) -> None:
    (said,) = messages(load(Ask.EITHER, schema={"registry": "orders-value"}))
    assert said.startswith("sources.orders.schema.registry: registry http://127.0.0.1:")
    assert "Subject 'orders-value' not found." in said
    fake.add("orders-value", "{}", "JSON")
    (said,) = messages(load(Ask.EITHER, schema={"registry": "orders-value"}))
    assert "`orders-value` is a schema of type json, but the format needs avro" in said


def test_a_sinks_schema_is_registered_once_under_its_subject(fake: FakeRegistry, load: Load) -> None:
    for sink, subject in (
        ({}, "out-value"),
        ({"schema": {"subject": "record"}}, "tidegate.out"),
        ({"schema": {"subject": "topic-record"}}, "out-tidegate.out"),
        ({"schema": {"registry": "mine"}}, "mine"),
    ):
        loaded = load(Ask.COPY, sink=sink)
        assert refusals(loaded) == []
        assert subject not in fake.subjects  # to look changes nothing
        assert register(loaded) == 1
        assert fake.subjects[subject] == [1]
        assert refusals(loaded) == []
        assert register(loaded) == 1


def test_existing_takes_what_the_subject_has(fake: FakeRegistry, load: Load, tmp_path: Path) -> None:
    existing: dict[str, Any] = {"schema": {"register": "existing"}}
    loaded = load(Ask.COPY, sink=existing)
    (said,) = refusals(loaded)
    assert said.startswith("2 sinks.out.schema: the subject `out-value` does not have the schema of this sink")
    fake.add("out-value", written(loaded).text)
    assert refusals(loaded) == []
    assert register(loaded) == 1
    fake.add("mine", ORDER)
    loaded = load(Ask.REGISTRY, sink={"schema": {"registry": "mine", "register": "existing"}})
    assert (written(loaded).text, written(loaded).id, refusals(loaded)) == (ORDER, 2, [])
    (tmp_path / "order.avsc").write_text(ORDER, "utf-8")
    loaded = load(Ask.COPY, sink={"schema": {"file": "order.avsc", "registry": "mine", "register": "existing"}})
    assert (refusals(loaded), register(loaded)) == ([], 2)


def test_what_is_not_compatible_refuses_the_start_in_the_registrys_words(fake: FakeRegistry, load: Load) -> None:
    fake.add("out-value", ORDER)
    fake.incompatible = ["reader field `id` is missing"]
    (said,) = refusals(load(Ask.COPY))
    assert said == (
        "2 sinks.out.schema: the schema is not compatible with those of `out-value`: reader field `id` is missing"
    )


def test_two_new_schemas_of_one_subject_are_a_warning(fake: FakeRegistry, load: Load) -> None:
    """It was valid, and the start registered the one before the registry refused the other."""
    shared = {"schema": {"registry": "mine"}}
    loaded = load(Ask.COPY, sink=shared, late=shared)
    fake.incompatible = ["the name differs"]
    (said,) = refusals(loaded)
    assert said == (
        "0 sinks.late.schema: sink `out` registers another schema under the subject `mine`, so the registry cannot "
        "check this one before the start"
    )
    assert ("POST", "/subjects/mine/versions?normalize=true") not in fake.asked
    out, late = (one.options.schema for one in build_plan(loaded).operators(SinkOperator))
    assert out is not None
    assert late is not None
    fake.add("mine", late.text)
    assert refusals(loaded) == [
        "2 sinks.out.schema: the schema is not compatible with those of `mine`: the name differs"
    ]
    fake.add("mine", out.text)
    assert refusals(loaded) == []


@pytest.mark.parametrize("late", [{"schema": {"registry": "other"}}, {"topic": "out"}])
def test_other_subjects_and_equal_schemas_are_none(load: Load, late: Any) -> None:
    assert refusals(load(Ask.COPY, late=late)) == []


def test_without_the_registry_a_start_needs_what_it_has_given_before(fake: FakeRegistry, load: Load) -> None:
    loaded = load(Ask.COPY)
    fake.trouble = AWAY
    (said,) = refusals(loaded)
    assert said.startswith("1 registry.url: registry http://127.0.0.1:")
    with pytest.raises(RegistryUnavailable):
        register(loaded)
    fake.trouble = None
    assert register(loaded) == 1
    fake.trouble = AWAY
    (said,) = refusals(loaded)
    assert said.startswith("0 registry.url: registry http://127.0.0.1:")
    assert register(loaded) == 1


def test_a_registry_that_is_away_is_waited_for_only_where_a_copy_is_missing(
    fake: FakeRegistry, load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = load(Ask.COPY)
    register(loaded)
    fake.trouble = AWAY
    (found,) = asyncio.run(check_registrations(loaded, build_plan(loaded), 3600.0))
    assert found.severity is Severity.WARNING
    assert "waiting for the registry" not in caplog.text


def test_explain_shows_schemas_and_no_secret(load: Load) -> None:
    loaded = load(Ask.COPY)
    text = render_explanation(derive_explanation(loaded, build_plan(loaded)))
    assert "schema of out-value, register: auto" in text
    assert '"name":"id"' in text.replace(" ", "")
    assert "pass-word" not in text
    assert "pass-word" in loaded.secrets.values


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schema_id": "none"}, "records have no schema id"),
        ({"format": "json", "schema": {"file": "x"}}, "json has no schemas"),
        ({"format": "json", "schema_id": "none"}, "json has no schemas"),
        ({"sink": {"schema": {"registry": "s", "subject": "record"}}}, "`registry` names the subject already"),
        ({"sink": {"schema": {"version": 3}}}, "`version` needs a schema that is in the registry"),
        ({"sink": {"format": "json", "schema": {}}}, "json has no schemas"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(load: Load, changes: Any, words: str) -> None:
    assert [one for one in messages(load(**changes)) if words in one]


@pytest.mark.parametrize(
    ("registry", "words"),
    [
        ({"url": "registry:8081"}, "is not an address"),
        ({"url": "http://u:p@registry"}, "the address has a user in it"),
        ({"url": []}, "the list is empty"),
        ({"url": "http://r", "username": "ann"}, "`username` without `password`"),
        ({"url": "http://r", "username": "a", "password": "b", "token": "c"}, "both a token and a user"),
        ({"url": "http://r", "ca": "/ca.pem"}, "is not encrypted"),
        ({"url": "http://r", "password": "a\nb", "username": "a"}, "has a control character"),
    ],
)
def test_a_registry_that_cannot_be_one_is_refused(registry: Any, words: str) -> None:
    found = parse_pipeline(json.dumps({"registry": registry}), "p.yaml", {}).problems
    assert [one for one in found if words in one.message]


def test_avro_without_a_registry_is_refused_where_records_have_ids(load: Load) -> None:
    text = json.loads(load().source)
    del text["registry"]
    found = parse_pipeline(json.dumps(text), "p.yaml", {}).problems
    assert {one.path for one in found if "needs the schema registry" in one.message} == {
        "sources.orders.format", "sinks.out.format"
    }  # fmt: skip


def test_a_registry_with_a_wrong_address_is_not_said_to_be_missing(load: Load) -> None:
    text = json.loads(load().source)
    text["registry"] = {"url": "127.0.0.1:8081"}
    (only,) = parse_pipeline(json.dumps(text), "p.yaml", {}).problems
    assert only.path == "registry.url"


def test_keys_have_schemas_and_subjects_of_their_own(fake: FakeRegistry, load: Load) -> None:
    fake.add("orders-key", '"long"')
    source: dict[str, Any] = {"metadata": {"key": "k"}, "key_format": "avro", "key_schema": {"registry": "orders-key"}}
    loaded = load(Ask.REGISTRY, sink={"key": "id", "key_format": "avro"}, **source)
    assert messages(loaded) == []
    plan = build_plan(loaded)
    (one,) = plan.operators(SourceOperator)
    assert (dict(one.columns)["k"].kind, one.key_options.schema and one.key_options.schema.id) == ("bigint", 1)
    (sink,) = plan.operators(SinkOperator)
    assert sink.key_options.schema is not None
    assert (sink.key_options.schema.text, sink.key_options.schema.subject) == ('"long"', "out-key")
    assert loaded.settings.registry is not None
    registry = open_registry(loaded.settings.registry)

    async def start() -> SinkOperator:
        desk = SchemaService(registry)
        async with registry:
            desk.write_with(await register_schemas(registry, plan))
        (found,) = desk.complete(plan).operators(SinkOperator)
        return found

    found = asyncio.run(start())
    assert found.key_options.schema is not None
    assert found.options.schema is not None
    assert 0 < found.key_options.schema.id != found.options.schema.id > 0
    existing = {"key": "id", "key_format": "avro", "key_schema": {"registry": "others-key", "register": "existing"}}
    (said,) = messages(load(Ask.REGISTRY, sink=existing))
    assert said.startswith("sinks.out.key_schema.registry: ")
    other = {"key": "id", "key_format": "avro", "key_schema": {"register": "existing"}}
    (said,) = refusals(load(Ask.REGISTRY, sink=other | {"topic": "new"}))
    assert said.startswith("2 sinks.out.key_schema: the subject `new-key` does not have the schema of this sink")
