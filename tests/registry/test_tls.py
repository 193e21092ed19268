"""The client of the registry against a TLS server: whom it trusts, and who it says that it is."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.certificates import Authority, Identity
from tests.support.registry import FakeRegistry
from tidegate.config.fields.schemas import RegistrySettings
from tidegate.registry import transport
from tidegate.registry.client import SchemaCopies, SchemaRegistry
from tidegate.registry.transport import RegistryRefused, RegistryUnavailable, Transport


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("other"), "another authority")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.sign("client")


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PAUSES_S", (0.0,))


@pytest.fixture
def trusting(authority: Authority) -> Iterator[FakeRegistry]:
    """Asks clients for nothing."""
    with FakeRegistry(server_context(authority.sign("server"))) as running:
        yield running


@pytest.fixture
def mutual(authority: Authority) -> Iterator[FakeRegistry]:
    """Asks clients for a certificate."""
    with FakeRegistry(mutual_context(authority)) as running:
        yield running


def mutual_context(authority: Authority) -> ssl.SSLContext:
    context = server_context(authority.sign("server"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    return context


def server_context(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    return context


def ping(registry: FakeRegistry, tmp_path: Path, **settings: Any) -> None:
    made = RegistrySettings.model_validate({"url": registry.url, **{name: str(one) for name, one in settings.items()}})

    async def inside() -> None:
        async with SchemaRegistry(Transport(made), SchemaCopies(tmp_path, made.url[0])) as client:
            await client.ping()

    asyncio.run(inside())


def test_a_server_of_a_known_authority_is_trusted(trusting: FakeRegistry, authority: Authority, tmp_path: Path) -> None:
    ping(trusting, tmp_path, ca=authority.file)
    assert trusting.asked == [("GET", "/schemas/types")]


def test_a_server_of_another_authority_is_refused_before_anything_is_sent(
    trusting: FakeRegistry, other: Authority, tmp_path: Path
) -> None:
    for settings in ({"ca": other.file}, {}):
        with pytest.raises(RegistryRefused, match="CERTIFICATE_VERIFY_FAILED") as caught:
            ping(trusting, tmp_path, username="ann", password="secret", **settings)
        assert "check `ca`" in caught.value.remedy
    assert trusting.asked == []


def test_a_server_without_tls_is_refused_in_plain_words(authority: Authority) -> None:
    with FakeRegistry() as plain:
        made = RegistrySettings.model_validate({"url": f"https://127.0.0.1:{plain.port}", "ca": str(authority.file)})

        async def inside() -> None:
            async with Transport(made) as client:
                await client.ask("GET", "/schemas/types")

        with pytest.raises(RegistryRefused, match=r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE") as caught:
            asyncio.run(inside())
    assert " object at 0x" not in caught.value.message


def test_a_server_of_another_name_is_refused(authority: Authority, tmp_path: Path) -> None:
    context = server_context(authority.sign("elsewhere", "DNS:registry.example"))
    with FakeRegistry(context) as elsewhere:
        with pytest.raises(RegistryRefused, match="IP address mismatch"):
            ping(elsewhere, tmp_path, ca=authority.file)
        assert elsewhere.asked == []


def test_a_server_may_ask_who_the_client_is(
    mutual: FakeRegistry, authority: Authority, client: Identity, tmp_path: Path
) -> None:
    ping(mutual, tmp_path, ca=authority.file, certificate=client.certificate, key=client.key)
    assert mutual.asked == [("GET", "/schemas/types")]


def test_a_connection_has_the_files_as_they_are_now(
    authority: Authority, other: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A daemon runs for longer than its certificate, and maybe than the registry's authority."""
    names = {word: str(tmp_path / word) for word in ("ca", "certificate", "key")}

    def write(given: Authority, me: Identity, key: Path) -> None:
        for source, word in ((given.file, "ca"), (me.certificate, "certificate"), (key, "key")):
            shutil.copy(source, names[word])

    former, later = authority.sign("former"), other.sign("later")
    with FakeRegistry(mutual_context(authority)) as before, FakeRegistry(mutual_context(other)) as after:
        write(authority, former, former.key)
        made = RegistrySettings.model_validate({"url": [before.url, after.url], **names})

        async def inside() -> None:
            async with Transport(made) as client:
                await client.ask("GET", "/schemas/types")
                write(other, later, former.key)  # half of it is written
                await client.ask("GET", "/schemas/types")
                assert (len(before.asked), len(after.asked)) == (2, 0)
                write(other, later, later.key)
                client._first = 1
                await client.ask("GET", "/schemas/types")

        asyncio.run(inside())
        assert (len(before.asked), len(after.asked)) == (2, 1)
    assert "the former ones stay in use" in caplog.text


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_the_server_does_not_know_is_refused(
    authority: Authority, other: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """With TLS 1.3 the client has sent its request by then, and may hear of a broken connection alone."""
    context = mutual_context(authority)
    context.maximum_version = version
    refused = RegistryRefused if version is ssl.TLSVersion.TLSv1_2 else (RegistryRefused, RegistryUnavailable)
    stranger = other.sign("stranger")
    with FakeRegistry(context) as mutual:
        for settings in ({}, {"certificate": stranger.certificate, "key": stranger.key}):
            with pytest.raises(refused) as caught:
                ping(mutual, tmp_path, ca=authority.file, **settings)
            if isinstance(caught.value, RegistryRefused):
                assert "check `ca`, `certificate`" in caught.value.remedy
        assert mutual.asked == []


@pytest.mark.parametrize(
    ("cause", "refused"), [(ssl.SSLError(1, "certificate required"), True), (ssl.SSLEOFError(8, "EOF"), False)]
)
def test_a_refusal_that_comes_with_the_answer_is_no_outage(
    monkeypatch: pytest.MonkeyPatch, trusting: FakeRegistry, authority: Authority, tmp_path: Path,
    cause: ssl.SSLError, *, refused: bool
) -> None:  # fmt: skip
    async def broken(*_: object) -> bytes:
        raise aiohttp.ClientOSError(1, "broken") from cause

    monkeypatch.setattr(transport, "_read", broken)
    with pytest.raises(RegistryRefused if refused else RegistryUnavailable):
        ping(trusting, tmp_path, ca=authority.file)


def test_a_key_of_another_certificate_is_refused_with_the_setting(
    mutual: FakeRegistry, client: Identity, authority: Authority, tmp_path: Path
) -> None:
    with pytest.raises(RegistryRefused, match="cannot be used") as caught:
        ping(mutual, tmp_path, certificate=client.certificate, key=authority.sign("third").key)
    assert caught.value.fields["setting"] == "certificate"
