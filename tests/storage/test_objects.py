"""Addresses, credentials and errors of object stores: what users get wrong, and that nothing secret is ever said."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.storage.stores import opener_of
from tests.support.object_server import BUCKET, ObjectServer, StoredObject, write_credentials
from tests.support.store_proxy import Asked, Fate, StoreProxy
from tidegate.storage.base import StorageError, StorageOptions, StorageUnsupported, is_lasting
from tidegate.storage.kinds.azure import STORE as AZURE
from tidegate.storage.kinds.gcs import STORE as GOOGLE
from tidegate.storage.kinds.s3 import STORE as S3
from tidegate.storage.objects.credentials import ConnectionString, CredentialsUnreadable, SharedFile
from tidegate.storage.objects.failures import FailureKindOfStore, RetryLimits, judge
from tidegate.storage.objects.storage import ObjectStorage
from tidegate.storage.open import STORES, Opener, open_storage

KEY, SECRET = "THE-ACCESS-KEY", "THE-SECRET-KEY"
HASTY = RetryLimits(request_s=0.2, deadline_s=0.3, bulk_deadline_s=0.3, first_pause_s=0.01)


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with ObjectServer() as one:
        yield one


@pytest.mark.parametrize(
    "address", ["s3://bucket", "s3://bucket/", "s3://my.bucket-1/a/b_c/d=1/", "gs://b-1/x", "az://con/x"]
)
def test_addresses_are_a_bucket_and_a_prefix(address: str) -> None:
    assert STORES[address.partition(":")[0]].check(address) == ""


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("s3://", "names no bucket"),
        ("s3:///x", "names no bucket"),
        ("s3://a", "`a` is not a valid bucket name"),
        ("s3://bucket:9000/x", "`bucket:9000` is not a valid bucket name"),
        ("az://-x/y", "`-x` is not a valid container name"),
        ("s3://bucket/a//b", "separated by single slashes"),
        ("s3://bucket/a/../b", "a prefix has letters"),
        ("s3://bucket/a b", "a prefix has letters"),
        ("s3://bucket/ä", "a prefix has letters"),
        ("s3://bucket/" + "a" * 501, "501 characters, at most 500"),
        (f"s3://{KEY}:{SECRET}@bucket/x", "credentials come from the environment"),
        (f"az://con/x?sig={SECRET}", "credentials come from the environment"),
    ],
)
def test_what_is_wrong_with_an_address_is_reported_without_what_may_be_secret(address: str, problem: str) -> None:
    found = STORES[address.partition(":")[0]].check(address)
    assert problem in found
    assert SECRET not in found
    with pytest.raises(StorageUnsupported) as refused:
        open_storage(address)
    assert problem in refused.value.message
    assert SECRET not in f"{refused.value.message}{refused.value.fields}"


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "obstore":
            raise ImportError(name)
        return whole(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    for address in ("s3://bucket/x", "gs://bucket/x", "az://container/x"):
        with pytest.raises(StorageUnsupported, match=r"pip install 'tidegate\[object-stores\]'") as refused:
            open_storage(address)
        assert (refused.value.exit_code, refused.value.retriable) == (2, False)


def test_options_are_for_the_kind_of_store_of_the_checkpoints(server: ObjectServer, tmp_path: Path) -> None:
    file = str(write_credentials(tmp_path / "file"))
    opener = Opener(f"s3://{BUCKET}/a", StorageOptions(server.endpoint, credentials_file=file))
    opener(f"s3://{BUCKET}/savepoints").put("x", b"one")
    assert opener(f"s3://{BUCKET}/savepoints", create=False).list("") == ["x"]
    opener(str(tmp_path / "directory")).put("x", b"one")
    assert list(server.objects) == ["savepoints/x"]


# -- credentials -------------------------------------------------------------------------------------------------------


def test_a_shared_credentials_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(f"# mine\n[default]\naws_access_key_id={KEY}\naws_secret_access_key = {SECRET}%\n", "utf-8")
    found = SharedFile(str(path))()
    assert (found["access_key_id"], found["secret_access_key"], found["token"]) == (KEY, f"{SECRET}%", None)
    path.write_text(path.read_text("utf-8") + "aws_session_token = t\n[other]\naws_access_key_id=no\n", "utf-8")
    assert SharedFile(str(path))()["token"] == "t"


def test_a_connection_string(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(f"DefaultEndpointsProtocol=https;AccountName=me;AccountKey={SECRET}==;EndpointSuffix=x\n", "utf-8")
    assert ConnectionString(str(path))()["access_key"] == f"{SECRET}=="
    assert ConnectionString(str(path)).find_account() == "me"
    path.write_text("BlobEndpoint=https://x;SharedAccessSignature=?sv=2&sig=abc%3D", "utf-8")
    assert ConnectionString(str(path))()["sas_token"] == "sv=2&sig=abc%3D"
    assert ConnectionString(str(path)).find_account() == ""


@pytest.mark.parametrize("content", [f"{KEY}:{SECRET}", f"[default]\naws_secret_access_key={SECRET}", "", "\xff"])
@pytest.mark.parametrize("kind", [SharedFile, ConnectionString])
def test_what_is_no_credentials_file_is_refused_without_its_content(
    tmp_path: Path, kind: type[SharedFile | ConnectionString], content: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(CredentialsUnreadable) as refused:
        kind(str(path))()
    assert str(path) in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_file_that_is_missing_is_reported_when_the_store_is_opened(server: ObjectServer, tmp_path: Path) -> None:
    for store, address in ((S3, "s3://bucket/x"), (AZURE, "az://container/x"), (GOOGLE, "gs://bucket/x")):
        options = StorageOptions(credentials_file=str(tmp_path / "none"), account="me" if store is AZURE else "")
        with pytest.raises(StorageError, match="No such file") as refused:
            store.open(address, create=True, stays=False, options=options)
        assert is_lasting(refused.value)
    assert server.requests == []


def test_credentials_that_are_replaced_are_taken_up(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datetime as dt

    from tidegate.storage.objects import credentials

    monkeypatch.setattr(credentials, "FRESH_FOR", dt.timedelta(0))
    seen: list[str] = []
    with StoreProxy(server.port) as proxy:

        def see(asked: Any) -> Fate:
            seen.append(dict(asked.headers)["authorization"])
            return Fate.FORWARD

        proxy.rule = see
        file = write_credentials(tmp_path / "file", "FIRST")
        storage = S3.connect(
            "s3://bucket/x", StorageOptions(proxy.endpoint, credentials_file=str(file)), HASTY, look=True
        )
        file.unlink()
        with pytest.raises(StorageError, match=r"cannot write x: the credentials in .* No such file") as missing:
            storage.put("x", b"")
        assert not is_lasting(missing.value), "it may be being replaced"
        write_credentials(file, "SECOND")
        storage.put("x", b"")
    assert "Credential=FIRST/" in seen[0]
    assert "Credential=SECOND/" in seen[-1]


def authorized(storage: ObjectStorage, proxy: StoreProxy) -> str:
    """The access key of a request."""
    seen: list[str] = []

    def see(asked: Asked) -> Fate:
        seen.append(dict(asked.headers)["authorization"])
        return Fate.FORWARD

    proxy.rule = see
    storage.look()
    return seen[0].partition("Credential=")[2].partition("/")[0]


def test_credentials_from_the_environment(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline file's endpoint counts over whatever the environment says."""
    with StoreProxy(server.port) as proxy:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        storage = S3.connect("s3://bucket/x", StorageOptions(proxy.endpoint), HASTY, look=True)
        assert authorized(storage, proxy) == KEY


def test_everything_from_the_environment(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with StoreProxy(server.port) as proxy:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        assert authorized(S3.connect("s3://bucket/x", StorageOptions(), HASTY, look=True), proxy) == KEY


def test_credentials_of_a_role(server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container in a cluster gets them."""
    given = {"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": "t", "Expiration": "2999-01-01T00:00:00Z"}
    server.objects["role"] = StoredObject(msgspec.json.encode(given), {})
    (tmp_path / "token").write_text("a token", "utf-8")
    with StoreProxy(server.port) as proxy:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{server.endpoint}/{BUCKET}/role")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        storage = S3.connect("s3://bucket/x", StorageOptions(proxy.endpoint), HASTY, look=True)
        assert authorized(storage, proxy) == KEY


@pytest.mark.slow
def test_secrets_are_nowhere_in_requests_to_be_read_messages_or_logs(
    server: ObjectServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    file = write_credentials(tmp_path / "file", KEY, SECRET)
    said: list[str] = []
    with StoreProxy(server.port) as proxy:
        options = StorageOptions(proxy.endpoint, credentials_file=str(file))
        storage = S3.connect("s3://bucket/x", options, HASTY, look=True)
        for fate in (Fate.FAIL, Fate.LOSE, Fate.HANG, Fate.DENY, Fate.CUT):
            proxy.rule = lambda asked, fate=fate: fate  # type: ignore[misc]  # an argument that only binds
            for call in (lambda: storage.put("x", b""), lambda: storage.get("x"), lambda: storage.list("")):
                try:
                    call()
                except StorageError as error:
                    said.append(f"{error.message} {error.fields} {error!r}")
    assert len(said) > 10
    text = " ".join([*said, caplog.text, repr(storage), storage.location])
    assert SECRET not in text
    assert KEY not in text


# -- errors ------------------------------------------------------------------------------------------------------------


def test_no_connection_is_reported_with_what_to_check(tmp_path: Path) -> None:
    file = str(write_credentials(tmp_path / "file"))
    for endpoint, cause in (("http://127.0.0.1:1", "tcp connect error"), ("http://nobody.invalid:1", "dns error")):
        storage = S3.connect("s3://bucket/x", StorageOptions(endpoint, credentials_file=file), HASTY, look=False)
        with pytest.raises(StorageError, match=rf"no connection \({cause}\).*check the store, the network") as caught:
            storage.put("x", b"")
        assert not is_lasting(caught.value)


def test_certificates_that_are_none(tmp_path: Path) -> None:
    file = str(write_credentials(tmp_path / "file"))
    (tmp_path / "ca").write_text("no certificate", "utf-8")
    for name, problem in (("ca", "no certificates in PEM"), ("none", "No such file")):
        options = StorageOptions("https://127.0.0.1:1", credentials_file=file, ca=str(tmp_path / name))
        with pytest.raises(StorageError, match=problem) as caught:
            S3.open("s3://bucket/x", create=True, stays=False, options=options)
        assert is_lasting(caught.value)


def test_opening_asks_for_something_unless_it_is_only_to_be_read(server: ObjectServer, tmp_path: Path) -> None:
    opened = opener_of(server.endpoint, tmp_path, "s3://nowhere/x")
    with pytest.raises(StorageError, match="NoSuchBucket"):
        opened()
    assert len(server.requests) == 1
    opened(create=False)
    assert len(server.requests) == 1


def test_a_signed_address_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(f"AccountName=me;SharedAccessSignature=sv=2024&sig={SECRET}%3D", "utf-8")
    options = StorageOptions("http://127.0.0.1:1/me", credentials_file=str(file))
    storage = AZURE.connect("az://container/x", options, HASTY, look=False)
    for call in (lambda: storage.put("x", b""), lambda: storage.list(""), lambda: storage.delete_all(["x", "y"])):
        with pytest.raises(StorageError, match="no connection") as caught:
            call()
        assert SECRET not in f"{caught.value.message} {caught.value.fields} {caught.value!r}"


STATUS = "Generic S3 error: Error performing PUT http://store/b/x in 5ms - Server returned non-2xx status code: {}: {}"
ANSWER = "<Error><Code>{}</Code><Message>{}.</Message><AWSAccessKeyId>" + KEY + "</AWSAccessKeyId></Error>"


@pytest.mark.parametrize(
    ("status", "code", "kind", "remedy"),
    [
        ("403 Forbidden", "SignatureDoesNotMatch", FailureKindOfStore.LASTING, "check the credentials"),
        ("403 Forbidden", "RequestTimeTooSkewed", FailureKindOfStore.LASTING, "set the clock"),
        ("403 Forbidden", "AccessDenied", FailureKindOfStore.LASTING, "read, write, delete and list"),
        ("301 Moved Permanently", "PermanentRedirect", FailureKindOfStore.LASTING, "checkpoints.storage.region"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", FailureKindOfStore.LASTING, "checkpoints.storage.region"),
        ("400 Bad Request", "RequestTimeout", FailureKindOfStore.PASSING, "starting again is safe"),
        ("400 Bad Request", "InvalidRequest", FailureKindOfStore.LASTING, "check the address"),
        ("404 Not Found", "NoSuchBucket", FailureKindOfStore.LASTING, "create it"),
        ("404 Not Found", "ContainerNotFound", FailureKindOfStore.LASTING, "create it"),
        ("404 Not Found", "NoSuchKey", FailureKindOfStore.ABSENT, ""),
        ("409 Conflict", "OperationAborted", FailureKindOfStore.PASSING, "starting again is safe"),
        ("429 Too Many Requests", "", FailureKindOfStore.PASSING, "starting again is safe"),
        ("500 Internal Server Error", "InternalError", FailureKindOfStore.PASSING, "starting again is safe"),
        ("501 Not Implemented", "NotImplemented", FailureKindOfStore.LASTING, "choose another one"),
        ("503 Slow Down", "SlowDown", FailureKindOfStore.PASSING, "starting again is safe"),
    ],
)
def test_what_an_answer_means(status: str, code: str, kind: FailureKindOfStore, remedy: str) -> None:
    found = judge(Exception(STATUS.format(status, ANSWER.format(code, "in words") if code else "")))
    assert (found.kind, found.reason.split()[0]) == (kind, status.split(maxsplit=1)[0])
    assert remedy in found.remedy
    assert found.reason.endswith(f"{code}: in words" if code else status)
    assert KEY not in found.reason


def test_a_machine_without_a_role_has_no_credentials() -> None:
    asked = "Error performing PUT http://169.254.169.254/latest/api/token in 1ms - "
    for rest in ("Server returned non-2xx status code: 403 Forbidden: no", "HTTP error: error sending request"):
        details = "\n\nDebug source:\nGeneric { inner: Http( HttpError {\n kind: Connect, tcp connect error } ) }"
        assert "credentials_file" in judge(Exception(f"Generic S3 error: {asked}{rest}{details}")).remedy


def test_an_address_of_azure_without_an_account_says_where_one_is_named() -> None:
    found = judge(Exception("Generic MicrosoftAzure error: Account must be specified"))
    assert (found.kind, found.reason) == (FailureKindOfStore.LASTING, "no storage account is named")
    assert all(word in found.remedy for word in ("`account`", "AZURE_STORAGE_ACCOUNT_NAME", "`--of FILE`"))
