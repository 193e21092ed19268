"""The processes that a daemon starts for Spark: the driver's JVM, and a fork server for slots on its machine (ADR 66).

Starting the JVM does what pyspark's `launch_gateway` does, with two differences. Python imports pyspark while the JVM
starts. And the JVM is in a process group of its own, so that a signal from the terminal reaches only the daemon. What
it prints, also what the Python workers below it print, is logged line by line: known messages of a start at debug
level, anything else as a warning.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import re
import secrets
import shlex
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tidegate.slot.fork_guard import start_server
from tidegate.spark.master import SparkUnavailable
from tidegate.spark.versions import read_spark

logger = logging.getLogger("spark")

POLL_S: Final = 0.01
_NUMBERS: Final = struct.Struct(">ii")
"""The port, and the length of the secret that follows."""
_ADDRESS: Final = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")


class DriverJvm:
    """The process of a driver's JVM. It ends when this process does, because that closes its standard input."""

    def __init__(self, settings: Mapping[str, str], output: int, directory: Path) -> None:
        """Starts it with these settings, which every user can read on its command line.

        `output` receives what it prints, and the private `directory` its address. Raises OSError.
        """
        home = os.environ.get("SPARK_HOME") or read_spark().home
        self._answer = directory / "gateway"
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        kind = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        self.process = subprocess.Popen(
            [f"{home}/bin/spark-submit", *options, *kind],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                "SPARK_HOME": home,  # else a script starts Python to find it
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer),
            },
            process_group=0,
        )

    def connect(self) -> Any:
        """Waits for the JVM and returns py4j's gateway to it. Raises ChildProcessError if the JVM ends."""
        from pyspark.java_gateway import launch_gateway

        try:
            while not self._answer.exists():
                if self.process.poll() is not None:
                    raise ChildProcessError(f"Java ended with code {self.process.returncode} before it was ready")
                time.sleep(POLL_S)
            answer = self._answer.read_bytes()
            port, length = _NUMBERS.unpack_from(answer)
            address = (str(port), answer[_NUMBERS.size :][:length].decode())
        finally:
            self._answer.unlink(missing_ok=True)
        os.environ.update(zip(_ADDRESS, address, strict=True))
        try:
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark has no types
        finally:
            for name in _ADDRESS:
                del os.environ[name]
        gateway.proc = self.process
        return gateway


TAIL_LINES: Final = 20
LINE_BYTES_MAX: Final = 8192
READ_BYTES: Final = 65_536
CHATTER: Final = re.compile(
    r"WARNING: (Using incubator modules|package |A terminally deprecated|A restricted method|sun\.misc\.Unsafe|"
    r"java\.lang\.|Please consider reporting|Use --enable-native|Restricted methods)"
    r"|Using Spark's |Setting (default|Spark) log level|To adjust logging level|NOTE: |Picked up "
)
LATE_WORK: Final = re.compile(r"java\.util\.concurrent\.RejectedExecutionException: .*\[(Shutting down|Terminated), ")
"""Spark's pools are notified of tasks that end while the pools are being closed.

Applies only at the end of a session.
"""
TRACE_PARTS: Final = ("\tat ", "\t... ", "Caused by: ")


class JvmOutput:
    """The read end of the pipe. `writer()` provides the descriptor for the JVM's stdout and stderr, once."""

    def __init__(self) -> None:
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._ending = False
        self._hushed = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def writer(self) -> Iterator[int]:
        """Opens the pipe while the JVM is started; the write end is then closed, so that the JVM's exit ends it."""
        read, write = os.pipe()
        self._thread = threading.Thread(target=self._run, args=(read,), name="jvm-output", daemon=True)
        self._thread.start()
        try:
            yield write
        finally:
            os.close(write)

    @property
    def tail(self) -> str:
        """The last unexpected lines; may be empty."""
        return "\n".join(self._tail)

    def session_ends(self) -> None:
        """Treats work that is too late for Spark's pools, with its stack trace, as a known message from now on."""
        self._ending = True

    def wait_end(self, timeout_s: float) -> None:
        """Waits until all output of an ended JVM has been read."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self, read: int) -> None:
        rest = b""
        while chunk := os.read(read, READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._tell(line)
            if len(rest) > LINE_BYTES_MAX:
                self._tell(rest)
                rest = b""
        self._tell(rest)
        os.close(read)

    def _tell(self, line: bytes) -> None:
        text = line[:LINE_BYTES_MAX].decode(errors="replace").rstrip()
        if not text:
            return
        if self._is_chatter(text):
            logger.debug("%s", text)
            return
        self._tail.append(text)
        logger.warning("%s", text)

    def _is_chatter(self, text: str) -> bool:
        if not text.startswith(TRACE_PARTS):
            self._hushed = self._ending and LATE_WORK.match(text) is not None
        return self._hushed or CHATTER.match(text) is not None


def link_home(directory: Path) -> Path:
    """Creates a SPARK_HOME for one `local-cluster`: links to all of the installed Spark except `work`. Raises OSError.

    Its workers write the output of executors, and any files they leave, below `SPARK_HOME/work`; no Spark setting names
    another directory. The installed Spark may belong to another user, is shared by all daemons, and never cleaned up.

    A JVM accepts its class archive for jars behind a link as well (seen with Java 17 and 25).
    """
    home = directory / "spark-home"
    home.mkdir()
    for entry in Path(read_spark().home).absolute().iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


ALIAS: Final = "tidegate"
KEYTOOL_S_MAX: Final = 60.0
_STORE: Final = "channel.p12"


def make_key(java: Path, jvm: Any, directory: Path) -> str:
    """Creates the key of a daemon (`slot/channel_sockets.py`) as PEM text, certificate first, with Spark's Java.

    `jvm` is py4j's; `directory` is private. Raises SparkUnavailable.
    """
    store, password = directory / _STORE, secrets.token_hex(16)
    command = [
        *(str(java.resolve().parent / "keytool"), "-genkeypair", "-alias", ALIAS, "-dname", f"CN={ALIAS}"),
        *("-keyalg", "EC", "-groupname", "secp256r1", "-startdate", "-1d", "-validity", "3650"),
        *("-storetype", "PKCS12", "-keystore", str(store), "-storepass:env", "STORE_PASSWORD"),
    ]
    environ = {**os.environ, "STORE_PASSWORD": password}
    try:
        made = subprocess.run(
            command, capture_output=True, text=True, env=environ, timeout=KEYTOOL_S_MAX, check=False, errors="replace"
        )
        if made.returncode != 0:
            raise SparkUnavailable(
                f"no key for encrypted connections: {command[0]}: {made.stdout}{made.stderr}".strip()
            )
        return _read_out(jvm, store, password)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(
            f"no key for encrypted connections: {error}; use a Java with keytool, or see runtime.encryption"
        ) from error
    finally:
        store.unlink(missing_ok=True)


def _read_out(jvm: Any, store: Path, password: str) -> str:
    characters = jvm.java.io.CharArrayWriter()
    characters.write(password)
    keys = jvm.java.security.KeyStore.getInstance("PKCS12")
    stream = jvm.java.io.FileInputStream(str(store))
    keys.load(stream, characters.toCharArray())
    stream.close()
    certificate = ssl.DER_cert_to_PEM_cert(bytes(keys.getCertificate(ALIAS).getEncoded()))
    # py4j's reflection cannot access the key's own class, but it can access the output of a factory.
    plain = jvm.java.lang.Class.forName("java.security.spec.PKCS8EncodedKeySpec")
    factory = jvm.java.security.KeyFactory.getInstance("EC")
    private = factory.getKeySpec(keys.getKey(ALIAS, characters.toCharArray()), plain)
    key = base64.encodebytes(bytes(private.getEncoded())).decode()
    return f"{certificate}-----BEGIN PRIVATE KEY-----\n{key}-----END PRIVATE KEY-----\n"


class EarlyServer:
    """A process that only imports modules, until Spark takes it over. It ends with this process, or with `close`."""

    def __init__(self) -> None:
        self.address = f"tidegate-{secrets.token_hex(8)}"
        """The address for `fork_guard.EARLY_SERVER`."""
        self._process: subprocess.Popen[bytes] | None = None
        # Spark's workers run with both variables.
        environment = {"PYTHONHASHSEED": "0", **os.environ, "PYTHONSAFEPATH": "1"}
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as listening:  # otherwise a guard starts one
            listening.bind(f"\0{self.address}")
            listening.listen()
            self._process = start_server(listening, subprocess.DEVNULL, environment)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def early_server() -> Iterator[EarlyServer]:
    """Starts a server and ends it."""
    server = EarlyServer()
    try:
        yield server
    finally:
        server.close()
