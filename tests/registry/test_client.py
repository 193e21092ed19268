"""The client of the registry, against one in this process that misbehaves when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.registry import FakeRegistry, answer_with
from tidegate.config.fields.schemas import RegistrySettings
from tidegate.formats.schemas import SchemaKind, SchemaText
from tidegate.registry import transport
from tidegate.registry.client import REFERENCES_MAX, SchemaCopies, SchemaRegistry
from tidegate.registry.transport import (
    BODY_BYTES_MAX,
    RegistryRefused,
    RegistryUnavailable,
    SchemaIncompatible,
    SchemaMissing,
    Transport,
)

T = TypeVar("T")

ORDER = '{"type": "record", "name": "Order", "fields": []}'
WRITTEN = SchemaText(SchemaKind.AVRO, ORDER)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRegistry]:
    monkeypatch.setattr(transport, "PAUSES_S", (0.0, 0.0, 0.0))
    with FakeRegistry() as running:
        yield running


@pytest.fixture
def ask(fake: FakeRegistry, tmp_path: Path) -> Callable[..., Any]:
    """Runs something with a client; settings of the registry by name."""

    def run(use: Callable[[SchemaRegistry], Coroutine[Any, Any, T]], **settings: Any) -> T:
        made = RegistrySettings.model_validate({"url": fake.url, **settings})

        async def inside() -> T:
            async with SchemaRegistry(Transport(made), SchemaCopies(tmp_path, made.url[0])) as registry:
                return await use(registry)

        return asyncio.run(inside())

    return run


def test_a_schema_is_read_by_its_id_once(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    number = fake.add("orders-value", ORDER)

    async def twice(registry: SchemaRegistry) -> list[SchemaText]:
        return [await registry.read(number), await registry.read(number)]

    assert ask(twice) == [SchemaText(SchemaKind.AVRO, ORDER, id=number)] * 2
    assert fake.asked == [("GET", f"/schemas/ids/{number}")]


def test_of_protobuf_the_descriptor_is_asked_for(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    fake.serialized = {"A text": "QQ==", "B text": "Qg=="}
    fake.add("address", "A text", "PROTOBUF")
    number = fake.add("orders", "B text", "PROTOBUF", [{"name": "a", "subject": "address", "version": 1}])
    address = SchemaText(SchemaKind.PROTOBUF, "QQ==", subject="address", version=1)
    whole = SchemaText(SchemaKind.PROTOBUF, "Qg==", (("a", address),), id=number)
    assert ask(lambda one: one.read(number)) == whole
    assert fake.asked[:2] == [("GET", "/schemas/ids/2"), ("GET", "/schemas/ids/2?format=serialized")]
    assert ask(lambda one: one.read(fake.add("others", "Qw==", "PROTOBUF"))).text == "Qw=="
    assert fake.asked[-1] == ("GET", "/schemas/ids/3")


def test_references_come_with_a_schema(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    fake.add("deep", "D", "JSON")
    fake.add("address", "A", "JSON", [{"name": "d", "subject": "deep", "version": 1}])
    number = fake.add("orders", "O", "JSON", [{"name": "a", "subject": "address", "version": 1}])
    deep = SchemaText(SchemaKind.JSON, "D", subject="deep", version=1)
    address = SchemaText(SchemaKind.JSON, "A", (("d", deep),), subject="address", version=1)
    assert ask(lambda one: one.read(number)) == SchemaText(SchemaKind.JSON, "O", (("a", address),), id=number)


def test_a_schema_that_many_refer_to_is_read_and_counted_once(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    """Each level refers to the two below it: of 60 levels there are more ways down than can be walked."""
    for level in range(60):
        below = [{"name": f"s{one}", "subject": f"s{one}", "version": 1} for one in range(max(0, level - 2), level)]
        number = fake.add(f"s{level}", f'"{level}"', "JSON", below)
    found = ask(lambda one: one.read(number))
    assert len(fake.asked) == 60
    assert [name for name, _ in found.references] == ["s57", "s58"], "those of the schema itself are complete"
    written, waiting = set(), [found]
    while waiting:
        one = waiting.pop()
        written.add(one.text)
        waiting += [reference for _, reference in one.references]
    assert len(written) == 60


def test_a_schema_of_too_many_others_is_refused(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    for one in range(REFERENCES_MAX + 1):
        fake.add(f"s{one}", f'"{one}"', "JSON", [{"name": "s", "subject": f"s{one - 1}", "version": 1}] if one else [])
    assert ask(lambda client: client.read(REFERENCES_MAX)).references
    chain = fake.add("main", "O", "JSON", [{"name": "s", "subject": f"s{REFERENCES_MAX}", "version": 1}])
    with pytest.raises(RegistryRefused, match=f"more than {REFERENCES_MAX} references"):
        ask(lambda client: client.read(chain))


def test_a_schema_that_refers_to_itself_is_refused(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    number = fake.add("orders", "O", "JSON", [{"name": "o", "subject": "orders", "version": 1}])
    with pytest.raises(RegistryRefused, match="`orders` version 1 references itself"):
        ask(lambda one: one.read(number))


def test_a_schema_whose_reference_is_missing_is_not_missing(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    """Its records are as good as before, and wait."""
    number = fake.add("orders", "O", "JSON", [{"name": "a", "subject": "address", "version": 3}])
    with pytest.raises(
        RegistryRefused, match="references `address` version 3, which the registry does not have"
    ) as found:
        ask(lambda one: one.read(number))
    assert not isinstance(found.value, SchemaMissing)


def test_a_version_of_a_subject_whatever_its_name(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    fake.add("a/b c?", "first", "JSON")
    number = fake.add("a/b c?", "second", "JSON")
    latest = ask(lambda one: one.read_version("a/b c?", "latest"))
    assert latest == SchemaText(SchemaKind.JSON, "second", id=number, subject="a/b c?", version=2)
    assert ask(lambda one: one.read_version("a/b c?", 1)).text == "first"
    with pytest.raises(SchemaMissing, match="Version 3 not found"):
        ask(lambda one: one.read_version("a/b c?", 3))


def test_a_schema_is_registered_once(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    with pytest.raises(SchemaMissing):
        ask(lambda one: one.look_up("orders-value", WRITTEN))
    registered = ask(lambda one: one.register("orders-value", WRITTEN))
    assert (registered.id, registered.subject) == (1, "orders-value")
    assert ask(lambda one: one.look_up("orders-value", WRITTEN)).version == 1
    assert ask(lambda one: one.register("orders-value", WRITTEN)).id == 1
    assert fake.subjects == {"orders-value": [1]}


@pytest.mark.parametrize("compares_with_one", [False, True])
def test_what_is_not_compatible_is_refused_in_the_registrys_words(
    fake: FakeRegistry, ask: Callable[..., Any], compares_with_one: bool
) -> None:
    fake.compares_with_one = compares_with_one
    fake.incompatible = ["reader field `total` has no default", "and more"]
    ask(lambda one: one.check("new-value", WRITTEN))
    fake.add("orders-value", "{}")
    with pytest.raises(SchemaIncompatible, match="`orders-value`: reader field `total` has no default; and more"):
        ask(lambda one: one.check("orders-value", WRITTEN))
    with pytest.raises(SchemaIncompatible, match="reader field `total` has no default"):
        ask(lambda one: one.register("orders-value", WRITTEN))


def test_only_the_registrys_own_word_means_that_a_schema_is_missing(
    fake: FakeRegistry, ask: Callable[..., Any]
) -> None:
    with pytest.raises(SchemaMissing, match="Schema not found"):
        ask(lambda one: one.read(7))
    fake.trouble = answer_with(404, "<html>nginx</html>")
    with pytest.raises(RegistryRefused, match="does not have /schemas/ids/7") as found:
        ask(lambda one: one.read(7))
    assert not isinstance(found.value, SchemaMissing)


@pytest.mark.parametrize(
    ("trouble", "expected", "words"),
    [
        (answer_with(500, '{"error_code": 50001, "message": "store is down"}'), RegistryUnavailable, "store is down"),
        (answer_with(503, ""), RegistryUnavailable, "[0-9]: HTTP status 503$"),
        (answer_with(429, ""), RegistryUnavailable, "HTTP status 429"),
        (answer_with(403, ""), RegistryRefused, "[0-9]: HTTP status 403$"),
        (answer_with(401, '{"error_code": 401, "message": "Unauthorized"}'), RegistryRefused, "Unauthorized"),
        (answer_with(302, "", Location="http://elsewhere/"), RegistryRefused, "redirect to http://elsewhere/"),
        (answer_with(200, "garbage"), RegistryRefused, "is not a schema registry"),
        (answer_with(200, '{"schema": 5}'), RegistryRefused, "is not a schema registry"),
        (answer_with(200, '{"schema": "x", "schemaType": "XML"}'), RegistryRefused, "type 'XML'"),
        (answer_with(200, b" " * (BODY_BYTES_MAX + 1)), RegistryRefused, "more than 4 MiB"),
        (answer_with(200, '{"schema": "%s"}' % ("x" * (2 << 20))), RegistryRefused, "more than 1024 KiB"),
    ],
)  # fmt: skip
def test_every_other_answer_is_waited_out_or_refused(
    fake: FakeRegistry, ask: Callable[..., Any], trouble: Any, expected: type[Exception], words: str
) -> None:
    fake.trouble = trouble
    with pytest.raises(expected, match=words) as found:
        ask(lambda one: one.read(1))
    assert type(found.value) is expected
    assert len(fake.asked) == (3 if expected is RegistryUnavailable else 1)


def test_no_answer_ends_in_time(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    fake.trouble = fake.hang
    with pytest.raises(RegistryUnavailable, match=r"has not answered within 0\.1 s"):
        ask(lambda one: one.read(1), timeout="100ms")
    assert len(fake.asked) == 1, "who lets a request hang gets no other one at once"


def test_a_registry_that_hangs_is_not_waited_for_again_by_every_question(
    fake: FakeRegistry, ask: Callable[..., Any]
) -> None:
    """A start has a question for each source and each sink."""
    fake.trouble = fake.hang

    async def several(one: SchemaRegistry) -> list[str]:
        said = []
        for number in range(20):
            with pytest.raises(RegistryUnavailable) as found:
                await one.read(number)
            said.append(found.value.message)
        return said

    said = ask(several, timeout="5s")
    assert len(set(said)) == 1
    assert len(fake.asked) == 1


def test_several_addresses_are_tried_in_turn(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    number = fake.add("orders", ORDER)
    assert ask(lambda one: one.read(number), url=["http://127.0.0.1:1", fake.url]).text == ORDER
    with pytest.raises(
        RegistryUnavailable, match=r"registry http://127\.0\.0\.1:1 cannot be reached: Connection refused"
    ):
        ask(lambda one: one.read(number), url="http://127.0.0.1:1")


def test_questions_at_the_same_time_leave_an_address_that_hangs_together(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one went back to it, and nothing was asked for a while."""
    asked: list[str] = []

    async def answer(_: Transport, url: str, *_question: Any) -> bytes:
        asked.append(url)
        await asyncio.sleep(0)
        if url == "http://a":
            raise transport._Hung("a has not answered")
        raise SchemaMissing("b has none")

    monkeypatch.setattr(Transport, "_ask_one", answer)

    async def thrice(one: SchemaRegistry) -> list[Any]:
        both = await asyncio.gather(one.read(1), one.read(2), return_exceptions=True)
        return [*both, *await asyncio.gather(one.read(3), return_exceptions=True)]

    assert [type(one) for one in ask(thrice, url=["http://a", "http://b"])] == [SchemaMissing] * 3
    assert asked == ["http://a", "http://a", "http://b", "http://b", "http://b"], "who has answered is asked first"


def test_user_and_token_are_sent_and_nothing_without_them(fake: FakeRegistry, ask: Callable[..., Any]) -> None:
    for settings in ({}, {"username": "ann", "password": "secret"}, {"token": "t0ken"}):
        ask(lambda one: one.ping(), **settings)
    sent = [headers.get("Authorization") for headers in fake.headers]
    assert sent == [None, "Basic YW5uOnNlY3JldA==", "Bearer t0ken"]


def test_certificates_that_cannot_be_read_are_refused(ask: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate", "utf-8")
    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(RegistryRefused, match=f"{name} cannot be used"):
            ask(lambda one: one.ping(), url="https://127.0.0.1:1", ca=str(tmp_path / name))


def test_copies_are_of_one_registry_and_damaged_ones_are_none(
    fake: FakeRegistry, ask: Callable[..., Any], tmp_path: Path
) -> None:
    number = fake.add("orders", ORDER)
    ask(lambda one: one.read(number))
    ask(lambda one: one.read_version("orders", "latest"))
    copies = SchemaCopies(tmp_path, fake.url)
    assert copies.of_id(number) == SchemaText(SchemaKind.AVRO, ORDER, id=number)
    assert copies.of_version("orders", "latest") == SchemaText(
        SchemaKind.AVRO, ORDER, id=number, subject="orders", version=1
    )
    assert SchemaCopies(tmp_path, "http://other").of_id(number) is None
    for file in tmp_path.rglob("id-*"):
        file.write_bytes(file.read_bytes()[:-1])
    assert copies.of_id(number) is None


def test_a_version_that_was_read_is_known_by_its_id_too(
    fake: FakeRegistry, ask: Callable[..., Any], tmp_path: Path
) -> None:
    number = fake.add("orders", ORDER)
    ask(lambda one: one.read_version("orders", "latest"))
    assert SchemaCopies(tmp_path, fake.url).of_id(number) == SchemaText(SchemaKind.AVRO, ORDER, id=number)


def test_the_copy_of_a_text_gives_another_message_its_id_and_not_its_message(
    fake: FakeRegistry, ask: Callable[..., Any]
) -> None:
    """Sinks may share a descriptor and a subject; whose copy was kept last is nothing to the others."""
    created = SchemaText(SchemaKind.PROTOBUF, "QQ==", message="shop.Created")
    deleted = SchemaText(SchemaKind.PROTOBUF, "QQ==", message="shop.Deleted")

    async def use(one: SchemaRegistry) -> SchemaText | None:
        one.keep_text("events", deleted, await one.register("events", deleted))
        return one.copy_of_text("events", created)

    assert ask(use) == SchemaText(SchemaKind.PROTOBUF, "QQ==", id=1, subject="events", message="shop.Created")


def test_copies_that_cannot_be_kept_are_no_reason_to_stop(fake: FakeRegistry, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("", "utf-8")
    copies = SchemaCopies(tmp_path / "taken", fake.url)
    copies.keep(1, SchemaText(SchemaKind.AVRO, ORDER, id=1))
    assert copies.of_id(1) is None
