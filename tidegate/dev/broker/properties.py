"""The settings of the development broker: `server.properties` and its log configuration, as values. Pure.

They are chosen for a quick start, a small heap and quick reactions to faults: one partition per internal topic,
timed-out transactions found within 0.5 s, and a restart after SIGKILL that waits 3 s for the dead broker instead of 9.
After a clean stop it does not wait, because controlled shutdown is on by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
