"""The distribution's PostgreSQL on loopback, with logical replication and a data directory of its own.

It refuses to run as root, so root starts it as another user.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tests.waiting import wait_until
from tidegate.dev.broker.server import reserve_ports

SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "fsync": "off",
    "timezone": "UTC",
    "lc_monetary": "C",
}
USERS: Final = ("postgres", "nobody")
END_S: Final = 30.0
ASK_S: Final = 60.0


class ServerMissing(Exception):
    """No server is installed on this machine."""


def find_programs() -> Path:
    """Returns the directory of `initdb`, `postgres` and `psql` of the newest installed version.

    Raises ServerMissing.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if found:
        return found[-1].parent
    server = shutil.which("postgres")
    if server is None:
        raise ServerMissing("no PostgreSQL server is installed: install the package `postgresql` of the distribution")
    return Path(server).resolve().parent


class Postgres:
    """A server as a context manager. Database and user are `postgres`, without a password."""

    def __init__(self) -> None:
        self._programs = find_programs()
        self.directory = Path(tempfile.mkdtemp(prefix="tidegate-postgres-"))
        (self.port,) = reserve_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        data = self.directory / "data"
        if os.geteuid() == 0:
            shutil.chown(self.directory, other_user().pw_name)
        subprocess.run(
            self._command("initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"),
            check=True,
            capture_output=True,
            cwd="/",
        )
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = self._command("postgres", "-D", str(data), "-p", str(self.port), *options)
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        try:
            wait_until(self._answers, f"PostgreSQL answers ({self.directory})", ASK_S)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def version(self) -> str:
        """The version that the server reports."""
        return self.rows("SHOW server_version")[0][0].partition(" ")[0]

    def run(self, *statements: str) -> None:
        """Runs statements, each in a transaction of its own unless `BEGIN` and `COMMIT` group them."""
        self._psql("\n".join(f"{one};" for one in statements))

    def rows(self, query: str) -> list[list[str]]:
        """Returns the rows of a query as strings; NULL is an empty one."""
        return list(csv.reader(io.StringIO(self._psql(query, "--csv", "--tuples-only"))))

    def _psql(self, text: str, *options: str) -> str:
        command = [str(self._programs / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]
        command += ["-p", str(self.port), "-U", "postgres", *options]
        ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=ASK_S, check=False)
        assert ran.returncode == 0, ran.stderr[-2000:]
        return ran.stdout

    def _command(self, program: str, *arguments: str) -> Sequence[str]:
        command = [str(self._programs / program), *arguments]
        before = ["setpriv", "--pdeathsig=INT"]
        if os.geteuid() == 0:
            user = other_user()
            before += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        return [*before, *command]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "server.log").read_text("utf-8")[-2000:]
        with contextlib.suppress(AssertionError):
            self._psql("SELECT 1")
            return True
        return False

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)  # fast shutdown: ends connections
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._process.kill()
        self._process.wait()


def other_user() -> pwd.struct_passwd:
    """Returns the user as which root starts servers that refuse to run as root. Raises ServerMissing."""
    for name in USERS:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ServerMissing(f"there is no user {' or '.join(USERS)} to run PostgreSQL as: it refuses to run as root")
