"""What the campaigns of joins share: pipeline files, their daemons, load, output, memory of slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tests.support import clients
from tests.support.daemon_process import DaemonProcess
from tidegate.dev.demo.verify import read_topic

if TYPE_CHECKING:
    import confluent_kafka as ck

GATE_OPENS = "orders is no longer on hold"
"""Logged when a lookup's table has caught up and the orders may be read."""


class Record(NamedTuple):
    """A record to write. A value of None is a tombstone."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Job(NamedTuple):
    """A pipeline under test. `settings` are added to the sections of its file, and replace theirs of the same name."""

    name: str
    bootstrap: str
    place: Path
    """The directory for checkpoints, logs and temporary files."""
    settings: Mapping[str, Any]

    def daemon(self, number: int, slots: int, *command: str) -> DaemonProcess:
        """Returns a daemon with this number of slots, not started; `command` replaces `-m tidegate run`."""
        scratch = self.place / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        path = self.place / f"pipeline-{number}.yaml"
        document = {
            "version": 1,
            "name": self.name,
            "kafka": {"bootstrap.servers": self.bootstrap},
            "spark": {"master": f"local[{slots}]"},
            "parallelism": slots,
            "restart": {"initial": "100ms", "max": "2s"},
            "http": {"port": 0},
            **self.settings,
        }
        own = {"directory": f"file://{self.place / 'checkpoints'}", "interval": "1s", "timeout": "120s"}
        document["checkpoints"] = {**own, **self.settings.get("checkpoints", {})}
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
        return DaemonProcess(path, self.place / f"daemon-{number}.log", {"TMPDIR": str(scratch)}, command)


def deliver(bootstrap: str, records: Iterable[Record]) -> int:
    """Writes the records in order per partition and returns their number once all are delivered."""
    return deliver_parts(bootstrap, [records])


def deliver_parts(bootstrap: str, parts: Iterable[Iterable[Record]]) -> int:
    """Writes parts one after the other, each delivered before the next is taken; returns the number of records."""
    failed: list[object] = []
    settings = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "message.timeout.ms": 600_000,
        "queue.buffering.max.messages": 200_000,
        "delivery.report.only.error": True,
        "on_delivery": lambda error, _: failed.append(error) if error is not None else None,
    }
    producer, count = clients.producer(settings), 0
    for part in parts:
        count += produce(producer, part)
        assert producer.flush(300) == 0, "the input was not delivered"
        assert not failed, failed[:1]
    return count


def produce(producer: ck.Producer, records: Iterable[Record]) -> int:
    """Hands the records to a producer and returns their number."""
    count = 0
    for record in records:
        while True:
            try:
                producer.produce(record.topic, record.value, record.key, record.partition, headers=list(record.headers))
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    return count


def read_rows(bootstrap: str, topic: str) -> list[list[dict[str, Any]]]:
    """Reads the committed rows of a topic, per partition in log order."""
    return [[msgspec.json.decode(value) for _, value in part] for part in read_topic(bootstrap, topic)]


def resident_mib(pid: int, what: str = "VmRSS") -> float:
    """Returns the memory of a process, or with `VmHWM` its peak; 0 if the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return 0.0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith(f"{what}:")]
    return int(sizes[0]) / 1024 if sizes else 0.0
