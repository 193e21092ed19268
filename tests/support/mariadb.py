"""The distribution's MariaDB on loopback, with a binary log and a data directory of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

from tests.support.postgres import ServerMissing, other_user
from tests.waiting import wait_until
from tidegate.dev.broker.server import reserve_ports

SETTINGS: Final = {
    "bind-address": "127.0.0.1",
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "default-time-zone": "+00:00",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "64M",
}
END_S: Final = 30.0
ASK_S: Final = 60.0


def find_server() -> str:
    """Returns the path of the server program. Raises ServerMissing."""
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    if found is None:
        raise ServerMissing("no MariaDB server is installed: install the package `mariadb-server` of the distribution")
    return found


class MariaDB:
    """A server as a context manager. The database is `shop`, user and password are `debezium`."""

    def __init__(self) -> None:
        self._server = find_server()
        self.directory = Path(tempfile.mkdtemp(prefix="tidegate-mariadb-"))
        (self.port,) = reserve_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._as = [f"--user={other_user().pw_name}"] if os.geteuid() == 0 else []

    def __enter__(self) -> Self:
        data = self.directory / "data"
        if self._as:
            shutil.chown(self.directory, other_user().pw_name)
        environ = {**os.environ, "TMPDIR": str(self.directory)}
        install = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={data}",
            "--auth-root-authentication-method=normal",
        ]
        subprocess.run([*install, *self._as, "--skip-test-db"], check=True, capture_output=True, cwd="/", env=environ)
        command = [self._server, "--no-defaults", f"--datadir={data}", f"--port={self.port}", *self._as]
        command += [f"--socket={self.directory}/socket", *(f"--{name}={value}" for name, value in SETTINGS.items())]
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environ,
            )
        try:
            wait_until(self._answers, f"MariaDB answers ({self.directory})", ASK_S)
            self.run(
                "CREATE DATABASE shop CHARACTER SET utf8mb4",
                "CREATE USER debezium@'127.0.0.1' IDENTIFIED BY 'debezium'",
                "GRANT ALL ON *.* TO debezium@'127.0.0.1'",
                database="",
            )
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
        return self._sql("SELECT version()", "shop").strip().partition("-")[0]

    def run(self, *statements: str, database: str = "shop") -> None:
        """Runs statements one after the other."""
        self._sql("\n".join(f"{one};" for one in statements), database)

    def rows(self, query: str) -> list[str]:
        """Returns the rows of a query whose only column is JSON."""
        return self._sql(query, "shop").splitlines()

    def _sql(self, text: str, database: str) -> str:
        command = ["mariadb", "--no-defaults", "-uroot", f"--socket={self.directory}/socket", "-N", "-B", "-r"]
        command += ["--default-character-set=utf8mb4", *([database] if database else [])]
        ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=ASK_S, check=False)
        assert ran.returncode == 0, ran.stderr[-2000:]
        return ran.stdout

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "server.log").read_text("utf-8")[-2000:]
        with contextlib.suppress(AssertionError):
            self._sql("SELECT 1", "")
            return True
        return False

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        self._process.kill()
        self._process.wait()
