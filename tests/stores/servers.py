"""Real stores on this machine: built by Go and npm into a directory that is kept, each ended with its block.

`versitygw` speaks S3 over files, `azurite` is Azure's emulator. `rclone serve s3` ignores conditional writes: it must
be refused. What a build takes from outside is named with its version; Go and npm check what they fetch.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import http.client
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.storage.stores import NamedStore
from tests.support.object_server import BUCKET, write_credentials
from tests.waiting import wait_until
from tidegate.dev.broker.server import reserve_ports
from tidegate.storage.base import StorageOptions

VERSITYGW: Final = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
RCLONE: Final = "github.com/rclone/rclone@v1.75.0"
AZURITE: Final = "azurite@3.37.0"
KEY, SECRET = "the-key", "the-secret-of-the-store"
ACCOUNT: Final = "devstoreaccount1"
ACCOUNT_KEY: Final = base64.b64encode(b"the key of the emulator's account").decode()
START_S: Final = 120.0


def build(directory: Path) -> None:
    """Whatever is not there yet. Fails where Go or npm is missing: without real stores nothing is shown."""
    for program in ("go", "npm"):
        assert shutil.which(program), f"`make stores` builds real stores: install {program}"
    directory.mkdir(parents=True, exist_ok=True)
    for package in (VERSITYGW, RCLONE):
        if not (directory / package.split("@")[0].rpartition("/")[2]).exists():
            print(f"building {package}", flush=True)
            subprocess.run(["go", "install", package], check=True, env={**os.environ, "GOBIN": str(directory)})
    if not (directory / "node_modules" / ".bin" / "azurite-blob").exists():  # npm makes it last
        print(f"installing {AZURITE}", flush=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(directory), AZURITE]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class Server:
    """A process that listens on one port of this machine; it may be killed and started again."""

    def __init__(self, command: Sequence[str], port: int, log: Path, environ: dict[str, str] | None = None) -> None:
        self.port = port
        self._command = [*command]
        self._log = log
        self._environ = {**os.environ, **(environ or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Server:
        """Until it answers."""
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out, env=self._environ)
        wait_until(self._answers, f"{self._command[0]} answers (see {self._log})", START_S)
        return self

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text("utf-8", errors="replace")[-2000:]
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True


@contextmanager
def _running(server: Server) -> Iterator[Server]:
    try:
        yield server.start()
    finally:
        server.kill()


@contextmanager
def versitygw(programs: Path, place: Path) -> Iterator[Server]:
    """With an empty bucket; its files are below `place`, and stay when it is killed."""
    [port] = reserve_ports(1)
    (place / "data" / BUCKET).mkdir(parents=True, exist_ok=True)
    login = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    command = [str(programs / "versitygw"), "--port", f"127.0.0.1:{port}", "--quiet", "posix", str(place / "data")]
    with _running(Server(command, port, place / "versitygw.log", login)) as server:
        yield server


@contextmanager
def rclone(programs: Path, place: Path) -> Iterator[Server]:
    """It takes any login."""
    [port] = reserve_ports(1)
    (place / "rclone" / BUCKET).mkdir(parents=True)
    command = [str(programs / "rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}", str(place / "rclone")]
    with _running(Server(command, port, place / "rclone.log")) as server:
        yield server


@contextmanager
def azurite(programs: Path, place: Path) -> Iterator[Server]:
    """With an empty container."""
    [port] = reserve_ports(1)
    program = programs / "node_modules" / ".bin" / "azurite-blob"
    command = [str(program), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    environ = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}
    with _running(Server(command, port, place / "azurite.log", environ)) as server:
        _create_container(port)
        yield server


def name_s3(name: str, port: int, place: Path) -> NamedStore:
    """For the suite."""
    file = write_credentials(place / "s3.credentials", KEY, SECRET)
    return NamedStore(
        name,
        f"s3://{BUCKET}/{name}",
        StorageOptions(f"http://127.0.0.1:{port}", region="us-east-1", credentials_file=str(file)),
    )


def name_azure(port: int, place: Path) -> NamedStore:
    """For the suite."""
    file = place / "azure.credentials"
    file.write_text(f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};\n", "utf-8")
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    return NamedStore("azurite", f"az://{BUCKET}/all", StorageOptions(endpoint, credentials_file=str(file)))


def _create_container(port: int) -> None:
    """Its own request: the client of the storage never makes one."""
    date = dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    named = f"x-ms-date:{date}\nx-ms-version:2021-12-02"
    signed = "PUT" + "\n" * 12 + f"{named}\n/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {name: value for name, _, value in (line.partition(":") for line in named.split("\n"))}
    headers |= {"Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}", "Content-Length": "0"}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("PUT", f"/{ACCOUNT}/{BUCKET}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == 201, (answer.status, answer.read())
    finally:
        connection.close()
