"""TLS of the HTTP port: probes for everybody, the rest by certificate or token, and strangers who stop half way."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.coordinator.values import IDENTITY, ME, completed, handle
from tests.daemon.http.orders import ORDER, TOKEN, Daemon, ending_once_looked_at
from tests.support.certificates import Authority, Identity
from tests.support.clocks import HandClock
from tests.waiting import wait_until
from tidegate.cli.control_client import DaemonLost, DaemonUnreachable
from tidegate.cli.daemon_commands import stop
from tidegate.cli.main import run_command
from tidegate.cli.savepoints import savepoint
from tidegate.config.deployment import HttpTlsSettings
from tidegate.daemon.http.admission import SCHEME
from tidegate.daemon.http.commands import JSON
from tidegate.daemon.http.connection_limiter import CONNECTIONS_MAX
from tidegate.daemon.http.server import PROBES, HttpServer
from tidegate.daemon.http.tls import LOOK_S, TlsRefused, make_context, names_of
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.journal.journal import Journal
from tidegate.storage.local import LocalStorage

pytestmark = pytest.mark.slow
URI = "spiffe://example/ns/streams/sa/prometheus"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def identities(authority: Authority) -> dict[str, Identity]:
    made = {name: authority.sign(name) for name in ("daemon", "ann", "bob")}
    return {**made, "prometheus": authority.sign("prometheus", f"URI:{URI}")}


@pytest.fixture(scope="module")
def settings(authority: Authority, identities: dict[str, Identity]) -> HttpTlsSettings:
    own = identities["daemon"]
    return HttpTlsSettings(
        certificate=str(own.certificate),
        key=str(own.key),
        client_ca=str(authority.file),
        read=["bob", URI],  # type: ignore[arg-type]  # as a file says it
        operate=["ann"],  # type: ignore[arg-type]  # likewise
    )


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def server(daemon: Daemon, settings: HttpTlsSettings, clock: HandClock) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"), elapsed=clock, tls=settings)
    server.start()
    server.commands.serve(daemon, daemon.loop, TOKEN)
    yield server
    server.stop()


class Client:
    """Trusts the authority, and shows a certificate or none."""

    def __init__(self, server: HttpServer, authority: Authority, shown: Identity | None = None) -> None:
        self._port = server.port
        self._context = ssl.create_default_context(cafile=str(authority.file))
        if shown is not None:
            self._context.load_cert_chain(shown.certificate, shown.key)

    def ask(self, method: str, path: str, body: bytes | None = None, token: str = "", **more: str) -> int:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=60, context=self._context)
        headers = {"Content-Type": JSON, **more} | ({"Authorization": SCHEME + token} if token else {})
        try:
            connection.request(method, path, body, headers)
            return connection.getresponse().status
        finally:
            connection.close()


def test_X33_probes_need_no_certificate_and_all_else_needs_one_or_a_token(
    server: HttpServer, authority: Authority, identities: dict[str, Identity], daemon: Daemon
) -> None:
    assert server.address == f"https://127.0.0.1:{server.port}"
    nobody = Client(server, authority)
    assert {nobody.ask("GET", path) for path in PROBES} <= {200, 503}
    assert nobody.ask("GET", "/metrics") == 401
    assert nobody.ask("GET", "/metrics", token=TOKEN) == 200
    assert nobody.ask("POST", "/checkpoints", ORDER) == 401
    assert nobody.ask("POST", "/checkpoints", ORDER, token=TOKEN) == 200
    for name in ("bob", "prometheus"):
        reader = Client(server, authority, identities[name])
        assert reader.ask("GET", "/metrics") == 200
        assert reader.ask("POST", "/checkpoints", ORDER) == 401
    unnamed = Client(server, authority, identities["daemon"])
    assert unnamed.ask("GET", "/metrics") == 401
    ann = Client(server, authority, identities["ann"])
    assert ann.ask("GET", "/status") == 200
    assert ann.ask("POST", "/checkpoints", ORDER) == 200
    assert ann.ask("POST", "/checkpoints", ORDER, Host="orders.streams.svc") == 200
    assert ann.ask("POST", "/checkpoints", ORDER, Origin="https://evil.example") == 403
    assert daemon.checkpoints == 3


def test_X33_an_order_by_certificate_is_written_down_with_its_name(
    server: HttpServer, authority: Authority, identities: dict[str, Identity], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    Client(server, authority, identities["ann"]).ask("POST", "/checkpoints", ORDER)
    assert "command /checkpoints from 127.0.0.1 (ann): done" in caplog.messages


def test_a_certificate_of_another_authority_gets_no_connection(
    server: HttpServer, authority: Authority, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "other", "somebody else").sign("ann")
    with pytest.raises(OSError, match=r"(?i)unknown ca|reset|broken pipe|closed connection"):
        Client(server, authority, stranger).ask("GET", "/livez")


def test_without_client_ca_there_is_tls_and_nobody_is_asked_who_it_is(
    settings: HttpTlsSettings, authority: Authority
) -> None:
    plain = settings.model_copy(update={"client_ca": None, "read": None, "operate": None})
    server = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"), tls=plain)
    server.start()
    try:
        assert Client(server, authority).ask("GET", "/metrics") == 200
        server.read_token = "only-for-those-who-have-it"
        assert Client(server, authority).ask("GET", "/metrics") == 401
        assert Client(server, authority).ask("GET", "/metrics", token=server.read_token) == 200
    finally:
        server.stop()


def test_X33_those_who_never_end_a_handshake_take_no_place_from_a_probe(
    server: HttpServer, authority: Authority
) -> None:
    held = [socket.create_connection(("127.0.0.1", server.port), 60) for _ in range(2 * CONNECTIONS_MAX)]
    try:
        assert Client(server, authority).ask("GET", "/livez") == 200
        assert len(server.places) <= CONNECTIONS_MAX
        for one in held[: CONNECTIONS_MAX // 2]:
            assert one.recv(1) == b"", "the oldest were closed"
    finally:
        for one in held:
            one.close()
    wait_until(lambda: len(server.places) == 0, "all places are free again")


def test_plain_http_on_a_tls_port_gets_no_answer(server: HttpServer, authority: Authority) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.request("GET", "/livez")
        connection.getresponse()
    connection.close()
    assert Client(server, authority).ask("GET", "/livez") == 200


def test_a_replaced_certificate_is_shown_to_new_connections_and_a_broken_one_is_not(
    authority: Authority, identities: dict[str, Identity], tmp_path: Path, clock: HandClock
) -> None:
    files = {name: tmp_path / f"{name}.pem" for name in ("certificate", "key")}

    def install(one: Identity) -> None:
        shutil.copy(one.certificate, files["certificate"])
        shutil.copy(one.key, files["key"])
        clock.now += LOOK_S

    def shown() -> str:
        context = ssl.create_default_context(cafile=str(authority.file))
        with (
            socket.create_connection(("127.0.0.1", own.port), 60) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
        ):
            return min(names_of(connection.getpeercert() or {}))

    install(identities["daemon"])
    tls = HttpTlsSettings(certificate=str(files["certificate"]), key=str(files["key"]))
    own = HttpServer("127.0.0.1", 0, PipelineMetrics("shop", "0.1.0"), elapsed=clock, tls=tls)
    own.start()
    try:
        assert shown() == "daemon"
        install(identities["bob"])
        assert shown() == "bob"
        files["key"].write_text("half a file")
        clock.now += LOOK_S
        assert shown() == "bob"
        install(identities["ann"])
        assert shown() == "ann"
    finally:
        own.stop()


@pytest.mark.parametrize(
    ("option", "content", "said"),
    [
        ("certificate", None, "No such file"),
        ("key", None, "No such file"),
        ("client_ca", None, "No such file"),
        ("certificate", "no PEM", r"http.tls.certificate\) cannot be used: NO_CERTIFICATE_OR_CRL_FOUND"),
        ("certificate", "ann", "must be the daemon's certificate in PEM"),
        ("key", "ann", "must be the key of"),
        ("client_ca", "no PEM", "use PEM certificates"),
    ],
)
def test_files_that_cannot_be_used_are_refused_with_their_word(
    settings: HttpTlsSettings,
    identities: dict[str, Identity],
    tmp_path: Path,
    option: str,
    content: str | None,
    said: str,
) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_text(identities[content].key.read_text() if content in identities else content)
    with pytest.raises(TlsRefused, match=said) as refused:
        make_context(settings.model_copy(update={option: str(file)}))
    assert str(file) in refused.value.message
    assert refused.value.exit_code == 2


def test_X33_a_certificate_does_without_the_token_files_that_the_pipeline_file_names(
    file: Path,
    server: HttpServer,
    authority: Authority,
    identities: dict[str, Identity],
    daemon: Daemon,
    settings: HttpTlsSettings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They are the daemon's, on its machine. One that `--token-file` names is meant."""
    words, there = json.dumps(settings.model_dump(exclude_none=True)), file.with_name("away")
    tokens = f"token_file: {there}/orders, read_token_file: {there}/read"
    file.write_text(file.read_text().replace("http: {", f"http: {{tls: {words}, {tokens}, "))
    reach = [str(file), "--http", server.address, "--ca", str(authority.file)]
    ann = ["--certificate", str(identities["ann"].certificate), "--key", str(identities["ann"].key)]
    for command in ("status", "checkpoint", "savepoint"):
        assert run_command([command, *reach, *ann]) == 0
        capsys.readouterr()
        assert run_command([command, *reach]) == 2
        assert "(a token file) cannot be read" in capsys.readouterr().err
    assert (daemon.checkpoints, daemon.asked) == (1, [None])
    assert run_command(["checkpoint", *reach, *ann, "--token-file", str(there)]) == 2


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(
    settings: HttpTlsSettings, authority: Authority
) -> None:
    locked = authority.sign("locked", password="opensesame")
    with pytest.raises(TlsRefused, match="in PEM, not encrypted"):
        make_context(settings.model_copy(update={"certificate": str(locked.certificate), "key": str(locked.key)}))


def test_commands_reach_a_daemon_over_tls(
    file: Path,
    server: HttpServer,
    authority: Authority,
    identities: dict[str, Identity],
    daemon: Daemon,
    settings: HttpTlsSettings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the token, trusting the daemon's certificate of the file; or with a certificate, as from another machine."""
    words = json.dumps(settings.model_dump(exclude_none=True))
    plain = file.read_text()
    file.write_text(plain.replace("http: {", f"http: {{tls: {words}, "))
    assert run_command(["status", str(file)]) == 0
    assert run_command(["checkpoint", str(file)]) == 0
    assert daemon.checkpoints == 1

    elsewhere = file.with_name("elsewhere.yaml")
    elsewhere.write_text(plain.replace(f"port: {server.port}", "port: 1"))
    options = ["--http", server.address, "--ca", str(authority.file)]

    def as_who(name: str) -> list[str]:
        return [*options, "--certificate", str(identities[name].certificate), "--key", str(identities[name].key)]

    server.commands.serve(daemon, daemon.loop, TOKEN)  # which this user's files do not have
    stranger = Authority(file.with_name("other"), "somebody else").sign("ann")
    capsys.readouterr()
    assert run_command(["status", str(elsewhere), *options]) == 1
    assert "no certificate of http.tls.client_ca that may read" in capsys.readouterr().err
    assert run_command(["status", str(elsewhere), *as_who("bob")]) == 0
    assert run_command(["savepoint", str(elsewhere), *as_who("bob")]) == 1
    assert "no certificate with a name of http.tls.operate" in capsys.readouterr().err
    assert run_command(["savepoint", str(elsewhere), *as_who("ann")]) == 0
    assert daemon.asked == [None]
    assert run_command(["status", str(elsewhere), *options, "--certificate", str(stranger.certificate)]) == 2
    shown = ["--certificate", str(stranger.certificate), "--key", str(stranger.key)]
    assert run_command(["status", str(elsewhere), *options, *shown]) == 1
    assert "check that http.tls.client_ca" in capsys.readouterr().err
    assert run_command(["status", str(elsewhere), "--http", server.address]) == 1
    assert "check that --ca has the authority of its certificate" in capsys.readouterr().err
    assert run_command(["status", str(elsewhere), *options, "--certificate", str(elsewhere)]) == 2
    assert "(--certificate) cannot be used" in capsys.readouterr().err


def test_a_daemon_that_hangs_up_over_tls_has_ended_and_a_certificate_that_it_refuses_is_named(
    file: Path,
    server: HttpServer,
    authority: Authority,
    identities: dict[str, Identity],
    daemon: Daemon,
    tmp_path: Path,
) -> None:
    """Both are a connection that is reset after the handshake; the first was taken for the second."""
    options = ["--http", server.address, "--ca", str(authority.file)]

    def as_who(one: Identity) -> list[str]:
        return [str(file), *options, "--certificate", str(one.certificate), "--key", str(one.key)]

    journal = Journal(LocalStorage(str(tmp_path / "checkpoints")), ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, states=[handle(1)], final=True))
    daemon.close()
    gone = CliRunner().invoke(savepoint, as_who(identities["ann"])).exception
    assert isinstance(gone, DaemonLost)
    assert f"the daemon at {server.address} ended before it responded" in gone.message
    stopped = CliRunner().invoke(stop, as_who(identities["ann"]))
    assert (stopped.exit_code, stopped.output) == (0, "stopped\n")
    stranger = Authority(tmp_path / "other", "somebody else").sign("ann")
    refused = CliRunner().invoke(savepoint, as_who(stranger)).exception
    assert isinstance(refused, DaemonUnreachable)
    assert "check that http.tls.client_ca" in refused.message


@pytest.mark.parametrize("read_token_file", [True, False])
@pytest.mark.parametrize("by_certificate", [True, False])
def test_a_stop_is_followed_with_what_its_order_was_given_with(
    file: Path,
    server: HttpServer,
    authority: Authority,
    identities: dict[str, Identity],
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    *,
    read_token_file: bool,
    by_certificate: bool,
) -> None:
    """As from another machine: the file's own token for reading is not there, and who may give orders may read."""
    words = f"port: 1, read_token_file: {file.parent / 'not-here'}" if read_token_file else "port: 1"
    file.write_text(file.read_text().replace(f"port: {server.port}", words))
    server.read_token = "of those who only read"
    server.commands.serve(daemon, daemon.loop, TOKEN)  # which this user's files do not have
    options = ["--http", server.address, "--ca", str(authority.file)]
    if by_certificate:
        ann = identities["ann"]
        options += ["--certificate", str(ann.certificate), "--key", str(ann.key)]
    else:
        token = file.with_name("token")
        token.write_text(TOKEN)
        token.chmod(0o600)
        options += ["--token-file", str(token)]
    with ending_once_looked_at(daemon, server, monkeypatch):
        result = CliRunner().invoke(stop, [str(file), *options])
    assert (result.exit_code, result.output) == (0, "stopped\n"), result.exception
