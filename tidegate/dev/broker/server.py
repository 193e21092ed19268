"""The development broker as an object: start, stop, kill, pause, restart; ports and data are kept.

One broker and its controller run in one JVM, on 127.0.0.1 only. The broker never outlives the process that started it
(`launch`).
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from tidegate.dev.broker.artifacts import KAFKA_VERSION, fetch_jars
from tidegate.errors import TidegateError
from tidegate.spark.class_archive import ClassArchive
from tidegate.spark.java import find_java

if TYPE_CHECKING:  # the library is imported where it is used
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in their __all__


_API_VERSIONS = b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x04wait"
"""An ApiVersions request, version 0, client id `wait`. Any broker answers it, but only once it serves requests."""
PORTS_FILE = "ports.json"
START_S = 120.0
_FORMAT_S_MAX = 120
_POLL_S = 0.02
_FENCED = "currently fenced"
"""Text of a transient refusal: a broker that did not run for some seconds rejoins with its next heartbeat."""
_TAIL_CHARACTERS = 2000


class Ports(msgspec.Struct, frozen=True):
    """Ports of one broker directory, which stay the same over restarts."""

    client: int
    controller: int


class DevelopmentBroker:
    """A real single-node Kafka in a directory of its own.

    `directory` holds data, settings, ports and logs. A second object on the same directory (after the first has
    stopped) continues with its ports and data. `port` 0 picks a free one. `transaction_version` 1 or 2 is the cluster
    feature of that name (None: Kafka's default) and takes effect when the directory is first used. `properties` are
    added to `server.properties`. `heap_mib` limits the Java heap. `cluster_id` lets several brokers form one cluster
    (None: a new one). `jvm_options` replace the options that load the class archive. `jars` are those of a Kafka other
    than the pinned one. As a context manager, the object starts and stops the broker.
    """

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        transaction_version: int | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        heap_mib: int = 256,
        cluster_id: str | None = None,
        jvm_options: Sequence[str] | None = None,
        jars: Sequence[Path] | None = None,
    ) -> None:
        if "," in str(directory):
            raise BrokerFailed(
                f"{directory}: Kafka treats a comma in a data path as a separator; use a directory without a comma"
            )
        self.directory = directory.absolute()
        self.transaction_version = transaction_version
        self.properties = dict(properties or {})
        self.heap_mib = heap_mib
        self.cluster_id = cluster_id
        self._jvm_options = jvm_options
        self._jars = jars
        self._ports = self._resolve_ports(port)
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def is_new(directory: Path) -> bool:
        """Returns whether no broker has ever been started in this directory."""
        return not (directory / PORTS_FILE).is_file()

    @property
    def bootstrap(self) -> str:
        """The address for clients, `127.0.0.1:PORT`."""
        return f"127.0.0.1:{self._ports.client}"

    @property
    def pid(self) -> int | None:
        """Process id of the running JVM, or None."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def log(self) -> Path:
        """Kafka's own log with warnings and errors."""
        return self.directory / "server.log"

    def start(self, timeout_s: float = START_S) -> Self:
        """Formats the directory if it is new, starts the broker and waits until it serves requests.

        Does nothing if it is already running. Raises BrokerFailed (a port is in use, or Kafka ended or does not answer;
        with the end of its output), ArtifactsUnavailable and JavaMissing.
        """
        if self.pid is not None:
            return self
        for port in (self._ports.client, self._ports.controller):
            if not is_free(port):  # otherwise the other program would answer until Kafka notices
                raise BrokerFailed(f"port {port} of 127.0.0.1 is in use; choose another one with --port", port=port)
        jars = fetch_jars() if self._jars is None else list(self._jars)
        self._write_files()
        self._format(jars)
        command = [*self._java(jars), "kafka.Kafka", str(self.directory / "server.properties")]
        self._process = _spawner().submit(self._spawn, command).result()
        try:
            self.wait_ready(timeout_s)
        except BrokerFailed:
            self.kill()
            raise
        return self

    def stop(self, timeout_s: float = 15) -> None:
        """Stops the broker cleanly (SIGTERM), and by force after `timeout_s`. A paused broker is resumed first."""
        if self.pid is None:
            return
        self.resume()
        self._signal(signal.SIGTERM)
        if not _wait(lambda: self.pid is None, timeout_s):
            self.kill()
        self._reap()

    def kill(self) -> None:
        """Ends the broker as a crash would (SIGKILL), and waits until it has ended."""
        self._signal(signal.SIGKILL)
        self._reap()

    def restart(self, timeout_s: float = START_S) -> None:
        """Stops the broker cleanly and restarts it with the same ports and data."""
        self.stop()
        self.start(timeout_s)

    def pause(self) -> None:
        """Freezes the broker (SIGSTOP): connections stay open and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Ends a pause (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def wait_ready(self, timeout_s: float = START_S) -> None:
        """Waits until the listener answers ApiVersions.

        Raises BrokerFailed if the broker ended or the timeout is over.
        """
        if _wait(lambda: self.pid is None or self._answers(), timeout_s) and self.pid is not None:
            return
        what = "does not answer" if self.pid is not None else "ended while starting"
        raise BrokerFailed(f"the broker at {self.bootstrap} {what}: {self._tail()}", directory=str(self.directory))

    def explain_end(self) -> str:
        """Returns what is known about an unexpected end: exit status or signal, and the end of the output."""
        status = None if self._process is None else self._process.poll()
        return f"exit status {status} (negative: killed by that signal); {self._tail()}"

    def create_topics(
        self, topics: Mapping[str, int], config: Mapping[str, str] | None = None, *, existing_ok: bool = False
    ) -> None:
        """Creates topics with the given numbers of partitions and waits until every partition has a leader."""
        create_topics(self.bootstrap, topics, config, existing_ok=existing_ok)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _resolve_ports(self, port: int) -> Ports:
        """Returns the directory's previous ports, otherwise new ones. A given port takes precedence."""
        known = self.directory / PORTS_FILE
        if known.is_file():
            ports = msgspec.json.decode(known.read_bytes(), type=Ports)
            if port in (0, ports.client):
                return ports
            return Ports(port, ports.controller)
        client, controller = reserve_ports(2)
        return Ports(port or client, controller)

    def _write_files(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / PORTS_FILE).write_bytes(msgspec.json.encode(self._ports))
        (self.directory / "log4j2.properties").write_text(LOG4J2, encoding="utf-8")
        settings = derive_properties(
            self.directory / "data", self._ports.client, self._ports.controller, self.properties
        )
        (self.directory / "server.properties").write_text(render_properties(settings), encoding="utf-8")

    def _java(self, jars: list[Path]) -> list[str]:
        """Returns the JVM's command line, optimised for a small and quick start rather than for long-term speed."""
        java = find_java()
        archive = broker_archive(java, jars).options if self._jvm_options is None else self._jvm_options
        flags = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", f"-Xmx{self.heap_mib}m"]
        flags += ["-Djava.awt.headless=true", f"-Dtidegate.broker.log={self.log}"]
        flags += [f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"]
        return [str(java), *archive, *flags, "-cp", ":".join(str(jar) for jar in jars)]

    def _format(self, jars: list[Path]) -> None:
        """Writes the cluster id and features into a new data directory."""
        if (self.directory / "data" / "meta.properties").exists():
            return
        command = [*self._java(jars), "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        command += ["-t", self.cluster_id or make_cluster_id(), "-c", str(self.directory / "server.properties")]
        if self.transaction_version is not None:
            command += ["--feature", f"transaction.version={self.transaction_version}"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_S_MAX, check=False)
        if ran.returncode != 0:
            said = (ran.stdout + ran.stderr)[-_TAIL_CHARACTERS:]
            raise BrokerFailed(f"{self.directory} could not be formatted for Kafka: {said}")

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Starts the JVM. Runs in the thread whose end would end the broker."""
        launch = [sys.executable, "-I", "-S", str(Path(__file__).parent / "launch.py"), str(os.getpid())]
        with (self.directory / "output.log").open("wb") as output:
            return subprocess.Popen(
                [*launch, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C in the terminal is for the command, which stops the broker cleanly
            )

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._ports.client), 1) as connection:
            connection.settimeout(2)
            connection.sendall(len(_API_VERSIONS).to_bytes(4, "big") + _API_VERSIONS)
            return len(connection.recv(8)) == 8  # length and correlation id
        return False

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None and self._process is not None:
            self._process.send_signal(number)

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _tail(self) -> str:
        """Returns the end of the JVM's output and of Kafka's log."""
        files = [self.directory / "output.log", self.log]
        texts = [file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()]
        return "\n".join(texts)[-_TAIL_CHARACTERS:] or "it printed nothing"


def broker_archive(java: Path, jars: Sequence[Path]) -> ClassArchive:
    """Returns the class archive of brokers from these jars."""
    return ClassArchive(java, f"Kafka-{KAFKA_VERSION}", str(jars[0].parent))


def make_cluster_id() -> str:
    """Returns a new id, so that a pipeline notices a different broker. It has 22 characters, as Kafka writes a UUID."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
        if not made.startswith("-"):  # the formatting tool would parse it as an option
            return made


def create_topics(
    bootstrap: str,
    topics: Mapping[str, int],
    config: Mapping[str, str] | None = None,
    *,
    existing_ok: bool = False,
    timeout_s: float = 60,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Creates topics at any broker and waits until every partition has a leader.

    `topics` maps names to partition counts. `properties` are those of the client, for a broker that requires a login.
    With `existing_ok` an existing topic is left unchanged. Raises BrokerFailed if a topic already exists, the broker
    refuses, or a partition has no leader within `timeout_s`.
    """
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in their __all__

    if not topics:
        return
    deadline = time.monotonic() + timeout_s
    admin = AdminClient({**(properties or {}), "bootstrap.servers": bootstrap, "log_level": 0})
    left = {name: NewTopic(name, num_partitions=count, config=dict(config or {})) for name, count in topics.items()}
    refused: dict[str, KafkaException] = {}

    def is_settled() -> bool:
        """Returns whether all topics are created or one is permanently refused."""
        refused.clear()
        refused.update(_create(admin, list(left.values()), timeout_s, existing_ok=existing_ok))
        for name in left.keys() - refused.keys():
            del left[name]
        return not refused or not all(map(_is_transient, refused.values()))

    _wait(is_settled, timeout_s)
    for name in sorted(refused, key=lambda name: _is_transient(refused[name])):
        reason = refused[name].args[0].str()
        raise BrokerFailed(f"topic {name} was not created at {bootstrap}: {reason}") from refused[name]
    _wait_for_leaders(admin, topics, deadline)


def _create(
    admin: AdminClient, wanted: list[NewTopic], timeout_s: float, *, existing_ok: bool
) -> dict[str, KafkaException]:
    """Returns the refusals by topic, in the order of `wanted`."""
    from confluent_kafka import KafkaError, KafkaException

    refused: dict[str, KafkaException] = {}
    for name, future in admin.create_topics(wanted, operation_timeout=timeout_s, request_timeout=timeout_s).items():
        try:
            future.result(timeout_s)
        except KafkaException as refusal:
            if not (existing_ok and refusal.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS):
                refused[name] = refusal
    return refused


def _is_transient(refusal: KafkaException) -> bool:
    return _FENCED in refusal.args[0].str()


def _wait_for_leaders(admin: AdminClient, topics: Mapping[str, int], deadline_s: float) -> None:
    for name, count in topics.items():
        if not _wait(partial(_are_led, admin, name, count), deadline_s - time.monotonic()):
            raise BrokerFailed(f"topic {name} did not get {count} partitions with leaders in time")


def _wait(condition: Callable[[], bool], timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_S)
    return True


def _are_led(admin: AdminClient, topic: str, count: int) -> bool:
    partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return sum(partition.leader >= 0 for partition in partitions.values()) >= count


@cache
def _spawner() -> ThreadPoolExecutor:
    """Returns the only thread that starts brokers. It ends with the process, and so do the brokers (see `launch`)."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidegate-broker-spawner")


_FIRST = 15_000
_EPHEMERAL_FIRST_DEFAULT = 32_768
_TRIES_MAX = 200


class BrokerFailed(TidegateError):
    """The broker could not be formatted or started, or it ended unexpectedly."""

    code = "broker-failed"
    exit_code = 1
    retriable = False


reserved: list[int] = []
"""Descriptors of sockets that stay bound but never listen until the process ends. Other processes that look for a free
port skip these ports, even while their broker is down.
"""


def reserve_ports(count: int) -> list[int]:
    """Returns `count` different free ports of 127.0.0.1 and reserves them for brokers of this process.

    The ports are below the range that the kernel uses for outgoing connections. Otherwise a broker that restarts on its
    old port would occasionally find it in use by a client. Raises BrokerFailed.
    """
    found: list[int] = []
    last = _read_ephemeral_first() - 1
    for _ in range(_TRIES_MAX):
        port = _FIRST + secrets.randbelow(max(1, last - _FIRST))
        if _reserve(port):
            found.append(port)
        if len(found) == count:
            return found
    raise BrokerFailed(
        f"no {count} free ports between {_FIRST} and {last} in {_TRIES_MAX} tries; choose one with --port"
    )


def _reserve(port: int) -> bool:
    """Reserves a port if it is free.

    The socket binds without SO_REUSEADDR, which fails if the port is in use, and then sets it to share the port with a
    broker.
    """
    held = socket.socket()
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        return False
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.append(held.detach())
    return True


def is_free(port: int) -> bool:
    """Returns whether a broker could listen on this port of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _read_ephemeral_first() -> int:
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not setting.is_file():
        return _EPHEMERAL_FIRST_DEFAULT
    return max(_FIRST + 1000, int(setting.read_text(encoding="ascii").split()[0]))


# -- its settings ------------------------------------------------------------------------------------------------------
# They are chosen for a quick start, a small heap and quick reactions to faults: one partition per internal topic,
# timed-out transactions found within 0.5 s, and a restart after SIGKILL that waits 3 s for the dead broker instead of
# 9. After a clean stop it does not wait, because controlled shutdown is on by default.

LOG4J2 = """status = error
appender.f.type = RollingFile
appender.f.name = F
appender.f.fileName = ${sys:tidegate.broker.log}
appender.f.filePattern = ${sys:tidegate.broker.log}.%i
appender.f.layout.type = PatternLayout
appender.f.layout.pattern = [%d] %p %m (%c{1})%n
appender.f.policies.type = Policies
appender.f.policies.size.type = SizeBasedTriggeringPolicy
appender.f.policies.size.size = 16MB
appender.f.strategy.type = DefaultRolloverStrategy
appender.f.strategy.max = 2
rootLogger.level = warn
rootLogger.appenderRef.f.ref = F
"""
"""Writes warnings and errors to one file of bounded size."""

_FIXED: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    "auto.create.topics.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.cleaner.enable": "false",
    "num.network.threads": "1",
    "num.io.threads": "4",
    "num.recovery.threads.per.data.dir": "1",
    "background.threads": "2",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "metadata.max.idle.interval.ms": "5000",  # otherwise a record every 500 ms: a third of an idle broker's cost
    "log.segment.bytes": str(16 * 1024 * 1024),
    "log.index.size.max.bytes": str(1024 * 1024),
    "queued.max.requests": "100",
}


def derive_properties(data: Path, port: int, controller_port: int, extra: Mapping[str, str]) -> dict[str, str]:
    """Returns all settings of one broker that listens on 127.0.0.1 only. `extra` overrides the defaults.

    The quorum is named by address (static voters), so that a formatted directory does not depend on its ports.
    """
    client = f"PLAINTEXT://127.0.0.1:{port}"
    return {
        **_FIXED,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"{client},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": client,
        "log.dirs": str(data),
        **extra,
    }


def render_properties(properties: Mapping[str, str]) -> str:
    """Renders `server.properties` in ASCII, because Java reads this format as Latin-1."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in sorted(properties.items()))


def _escape(value: str) -> str:
    """Doubles backslashes and escapes non-ASCII characters as UTF-16 units, as the format requires."""
    units = value.replace("\\", "\\\\").encode("utf-16-be", "surrogatepass")
    numbers = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    return "".join(chr(number) if number < 0x80 else f"\\u{number:04x}" for number in numbers)
