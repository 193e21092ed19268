"""Twelve situations, each made for real: the daemon names the cause within a deadline, shows nothing before it, and
nothing any more once it is over. A healthy pipeline with a backlog shows nothing for its whole run.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from typing_extensions import override

from tests.night.diagnosis_steps import POISON
from tests.night.proxy import ruled
from tests.night.story import Night, Result
from tests.support import clients
from tests.support.campaign import Job, Record, deliver, produce
from tests.support.daemon_process import DaemonProcess
from tests.support.kafka_proxy import PRODUCE, KafkaProxy, Request, Verdict, proxied_broker
from tests.support.lost_markers import lose_markers
from tests.support.object_server import BUCKET, ObjectServer, write_credentials
from tests.support.processes import kill
from tests.support.registry import FakeRegistry
from tests.support.stepping_daemon import set_step
from tests.support.store_proxy import Asked, Fate, StoreProxy
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.kafka.transactions import TransactionClient

PARTITIONS: Final = 4
SLOTS: Final = 2
RATE: Final = 300
NAMED_S: Final = 150.0
"""Within this time the cause is named: the slowest needs a lag of 15 s that has not shrunk for 30 s."""
OVER_S: Final = 240.0
HEALTHY_S: Final = 120.0
BACKLOG: Final = 100_000
SLOW_REQUEST_S: Final = 4.0
SLOW_PRODUCE_S: Final = 6.0
STORE_BYTES_PER_S: Final = 16 << 20
"""Of each request. What takes long at this rate is large."""
HOARDED: Final = 240
"""Keys with a megabyte each."""
SCHEMA: Final = {"id": "bigint", "key": "string", "at": "timestamp"}
TIMED: Final = {
    "format": "json",
    "schema": SCHEMA,
    "event_time": "at",
    "watermark": {"idle": "never"},
}
FOREIGN: Final = TransactionalId("another-application")

Make = Callable[[int], Record]


def run(night: Night) -> Result:
    """See the module."""
    with proxied_broker(night.place / "broker") as (broker, proxy):
        for name, situation in SITUATIONS.items():
            night.least(name)
            with _Stage(night, name, broker, proxy) as stage:
                try:
                    situation(stage)
                except Exception as wrong:  # noqa: BLE001 - a problem of the story; the next situation is played
                    night.problem(f"{name}: {type(wrong).__name__}: {wrong}")
                else:
                    night.count(name)
    return night.close()


class _Store(StoreProxy):
    """An object store with a limited rate for each request."""

    bytes_per_s = 0

    @override
    def decide(self, asked: Asked) -> Fate:
        if self.bytes_per_s:
            self.wait(len(asked.body) / self.bytes_per_s)
        return super().decide(asked)


class _Stage:
    """One situation: a pipeline of its own with topics of its own, its load, and what its daemon shows."""

    def __init__(self, night: Night, name: str, broker: DevelopmentBroker, proxy: KafkaProxy) -> None:
        self.night, self.broker, self.proxy = night, broker, proxy
        self.name = name.replace(" ", "-")
        self.place = night.place / self.name
        self.place.mkdir()
        shutil.copy(Path(__file__).with_name("diagnosis_steps.py"), self.place / "steps.py")
        self.stack = ExitStack()
        self.input, self.other, self.output = (f"{self.name}-{what}" for what in ("in", "other", "out"))
        broker.create_topics(dict.fromkeys((self.input, self.other, self.output), PARTITIONS))
        self.shown: set[str] = set()
        self._daemon: DaemonProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stack.close()

    @property
    def daemon(self) -> DaemonProcess:
        """The daemon that was started."""
        assert self._daemon is not None
        return self._daemon

    def start(
        self, *command: str, steps: Any = None, slots: int = SLOTS, well: bool = True, **settings: Any
    ) -> DaemonProcess:
        """Starts a daemon and waits until it has completed checkpoints and, if it is `well`, shows nothing."""
        default_steps = [{"name": "totals", "from": "events", "key": "key", "aggregate": {"rows": "count(*)"}}]
        steps = steps or default_steps
        document = {
            "sources": {"events": {"topic": self.input, "format": "json", "schema": SCHEMA, "start": "earliest"}},
            "steps": steps,
            "sinks": {"out": {"from": steps[-1]["name"], "topic": self.output, "format": "json"}},
            **settings,
        }
        self._daemon = Job(self.name, self.broker.bootstrap, self.place, document).daemon(0, slots, *command)
        self.stack.callback(self._daemon.destroy)
        self._daemon.start().wait_running()
        self._daemon.wait_checkpoints(2)
        assert not well or self.diagnoses() == [], f"shown before anything is wrong: {self.shown}"
        return self._daemon

    def diagnoses(self) -> list[dict[str, Any]]:
        """What the daemon shows now."""
        self.daemon.assert_alive()
        found: Any = self.daemon.status()["diagnoses"]
        self.shown |= {one["code"] for one in found}
        return list(found)

    def expect(self, code: str, **fields: Any) -> dict[str, Any]:
        """Waits until the cause is shown, first of all, and nothing else of its kind next to it."""
        began, found = time.monotonic(), list[dict[str, Any]]()

        def named() -> bool:
            found[:] = self.diagnoses()
            return bool(found) and found[0]["code"] == code

        try:
            wait_until(named, f"{code} is shown", NAMED_S)
        except AssertionError as late:
            raise AssertionError(f"{late}; shown: {found}; so far {self.shown}") from late
        seconds = time.monotonic() - began
        wrong = {name: found[0][name] for name, value in fields.items() if value not in (found[0][name], ...)}
        assert not wrong, f"{code} has {wrong} instead of {fields}: {found[0]}"
        assert found[0]["sentence"], found
        assert found[0]["remedy"], found
        self.night.count(f"seconds until {self.name} was named", seconds)
        others = self.shown - {code}
        print(f"{self.name}: after {seconds:.0f} s {found[0]}; also shown before: {others or 'nothing'}", flush=True)
        return found[0]

    def expect_nothing(self) -> None:
        """Waits until nothing is shown any more."""
        found = list[dict[str, Any]]()

        def over() -> bool:
            found[:] = self.diagnoses()
            return not found

        try:
            wait_until(over, "nothing is shown any more", OVER_S)
        except AssertionError as late:
            raise AssertionError(f"{late}; shown: {found}") from late

    def load(self, make: Make | None = None, rate: int = RATE) -> threading.Event:
        """Writes records from now on, `rate` a second, until the event is set."""
        ended = threading.Event()
        thread = threading.Thread(target=self._write, args=(make or self.record, rate, ended), daemon=True)
        thread.start()
        self.stack.callback(thread.join, 60.0)
        self.stack.callback(ended.set)
        return ended

    def _write(self, make: Make, rate: int, ended: threading.Event) -> None:
        producer = clients.producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5})
        number = 0
        while not ended.wait(0.2):
            for _ in range(max(1, rate // 5)):
                produce(producer, [make(number)])
                number += 1
            producer.poll(0)

    def record(self, number: int) -> Record:
        """An ordinary record: any partition, a thousand keys, now."""
        return self.make(number, f"k{number % 1000}", int(time.time() * 1000), number % PARTITIONS)

    def make(self, number: int, key: str, at_ms: int, partition: int, topic: str = "") -> Record:
        """Makes a record."""
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        value = msgspec.json.encode({"id": number, "key": key, "at": at})
        return Record(topic or self.input, partition, key.encode(), value)

    def python(self, what: str, **more: Any) -> dict[str, Any]:
        """Makes the settings of a step in Python."""
        output = {"id": "bigint", "key": "string"}
        return {"name": "user", "from": "events", "python": f"steps:{what}", "output": output, **more}

    @contextmanager
    def object_store(self) -> Iterator[tuple[_Store, dict[str, Any]]]:
        """Yields an object store that can be slow, and the settings of checkpoints that are kept in it."""
        with ObjectServer() as server, _Store(server.port) as store:
            credentials = write_credentials(self.place / "credentials")
            storage = {"endpoint": store.endpoint, "region": "us-east-1", "credentials_file": str(credentials)}
            yield store, {"directory": f"s3://{BUCKET}/{self.name}", "storage": storage}


def _stay_healthy(stage: _Stage) -> None:
    """A backlog that is worked off, then a steady load, then none."""
    deliver(stage.broker.bootstrap, map(stage.record, range(BACKLOG)))
    stage.load()
    stage.start()
    end = time.monotonic() + HEALTHY_S
    while time.monotonic() < end:
        assert (found := stage.diagnoses()) == [], f"shown in a healthy pipeline: {found}"
        threading.Event().wait(0.5)


def _kill(stage: _Stage) -> None:
    stage.load()
    stage.start()
    assert kill(stage.daemon.slots()[0])
    found = stage.expect("restarted")
    assert found["severity"] == "notice", found
    stage.expect_nothing()


def _slow_disk(stage: _Stage) -> None:
    with stage.object_store() as (store, checkpoints):
        stage.load()
        stage.start(checkpoints=checkpoints)
        store.delay_s = SLOW_REQUEST_S
        stage.expect("storage-slow")
        store.delay_s = 0.0
        stage.expect_nothing()
        stage.stack.close()


def _skewed_key(stage: _Stage) -> None:
    """A row takes 4 ms: 100 rows a second of many keys are little work, and 350 more of one key are too much."""
    stage.load(rate=100)
    stage.start(steps=[stage.python("Slow", key="key")])
    ended = stage.load(lambda number: stage.make(number, "hot", 0, number % PARTITIONS), rate=350)
    found = stage.expect("slot-skewed", step="user", slot=...)
    assert "key" in found["remedy"], found
    ended.set()
    stage.expect_nothing()


def _silent_partition(stage: _Stage) -> None:
    silent = threading.Event()

    def make(number: int) -> Record:
        partition = number % (PARTITIONS - 1 if silent.is_set() else PARTITIONS)
        return stage.make(number, f"k{number % 10}", int(time.time() * 1000), partition)

    stage.load(make)
    window = {"name": "windows", "from": "events", "key": "key", "window": {"tumbling": "1s"}}
    stage.start(
        sources={"events": {"topic": stage.input, **TIMED}}, steps=[{**window, "aggregate": {"rows": "count(*)"}}]
    )
    silent.set()
    found = stage.expect("watermark-stalled", step="events")
    assert found["evidence"]["partition"] == f"{stage.input}[{PARTITIONS - 1}]", found
    silent.clear()
    stage.expect_nothing()


def _broker_unavailable(stage: _Stage) -> None:
    stage.load()
    stage.start()
    stage.broker.pause()
    try:
        stage.expect("brokers-unavailable", cluster="kafka")
        threading.Event().wait(20.0)
        assert [one["code"] for one in stage.diagnoses()] == ["brokers-unavailable"], stage.diagnoses()
    finally:
        stage.broker.resume()
    stage.expect_nothing()


def _poison_record(stage: _Stage) -> None:
    stage.load()
    stage.start(steps=[stage.python("die_of_poison")], restart={"initial": "100ms", "max": "1s"})
    deliver(stage.broker.bootstrap, [stage.make(-1, POISON, 0, 0)])
    found = stage.expect("restart-loop")
    assert found["evidence"]["failures"] >= 3, found
    assert "user" in found["sentence"], found


def _big_state(stage: _Stage) -> None:
    with stage.object_store() as (store, checkpoints):
        stage.start(steps=[stage.python("Hoarder", key="key")], checkpoints=checkpoints)
        store.bytes_per_s = STORE_BYTES_PER_S
        stage.load(lambda number: stage.make(number, f"k{number % HOARDED}", 0, number % PARTITIONS), rate=50)
        stage.expect("state-large", slot=...)
        stage.stack.close()


def _registry_unavailable(stage: _Stage) -> None:
    import fastavro  # only here: the other situations need no Avro

    def encode(schema_id: int, number: int) -> bytes:
        import io

        out = io.BytesIO(schema_id.to_bytes(5, "big"))
        out.seek(5)
        fastavro.schemaless_writer(out, AVRO, {"id": number, "key": "k"})
        return out.getvalue()

    with FakeRegistry() as registry:
        text = msgspec.json.encode(AVRO).decode()
        first = registry.add(f"{stage.input}-value", text)
        stage.load(lambda number: Record(stage.input, number % PARTITIONS, b"k", encode(first, number)))
        source = {"topic": stage.input, "format": "avro", "schema": {"registry": f"{stage.input}-value"}}
        stage.start(
            sources={"events": {**source, "start": "earliest"}}, registry={"url": registry.url, "timeout": "2s"}
        )
        registry.trouble = registry.hang
        second = registry.add(f"{stage.input}-value", text.replace('"Event"', '"Event","doc":"another"'))
        assert second != first
        deliver(stage.broker.bootstrap, [Record(stage.input, 0, b"k", encode(second, 1))])
        stage.expect("registry-unavailable")
        registry.trouble = None
        stage.expect_nothing()
        stage.stack.close()


def _full_sink(stage: _Stage) -> None:
    def rule(request: Request) -> Verdict:
        if request.api_key == PRODUCE and stage.output.encode() in request.frame:
            stage.proxy.hurt += 1
            threading.Event().wait(SLOW_PRODUCE_S)
        return Verdict.FORWARD

    stage.load()
    stage.start()
    with ruled(stage.proxy, rule):
        stage.expect("sink-slow", step="out", cluster="kafka")
    stage.expect_nothing()


def _hold(stage: _Stage) -> None:
    now = int(time.time() * 1000)
    both = threading.Event()
    both.set()

    def make(number: int) -> Record:
        """Orders and payments by turns; payments stop, and order time runs a second per record."""
        payment = number % 2 == 1 and both.is_set()
        at = now + number * 1000
        return stage.make(number, f"k{number}", at, number // 2 % PARTITIONS, stage.other if payment else stage.input)

    join = {"order": "events", "payment": "payments"}
    stage.load(make, rate=20)
    stage.start(
        sources={"events": {"topic": stage.input, **TIMED}, "payments": {"topic": stage.other, **TIMED}},
        steps=[
            {
                "name": "settled",
                "join": join,
                "on": {"key": "key"},
                "within": {"before": "1m", "after": "1m"},
                "select": {"id": "order.id", "paid": "payment.id"},
            }
        ],
    )
    both.clear()
    stage.expect("source-on-hold", step="events")
    both.set()
    stage.expect_nothing()


def _old_transaction(stage: _Stage) -> None:
    """Of another application: its marker was lost in a crash of Kafka, and it blocks readers of the output."""
    part = TopicPartition(stage.output, 0)
    producer = clients.producer({"bootstrap.servers": stage.broker.bootstrap, "transactional.id": FOREIGN})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(part.topic, b"{}", partition=part.partition)
    producer.commit_transaction(30)
    client = TransactionClient({"bootstrap.servers": stage.broker.bootstrap})
    try:
        described = client.describe(FOREIGN)
    finally:
        client.close()
    assert described is not None
    stage.broker.kill()
    assert lose_markers(stage.broker, [part], {described.producer}) == 1, "the planned fault did not happen"
    stage.broker.start()
    stage.load()
    stage.start(well=False)
    found = stage.expect("readers-blocked", cluster="kafka")
    assert FOREIGN in found["sentence"], found


def _clock(stage: _Stage) -> None:
    step = stage.place / "step"
    set_step(step, 0.0)
    stage.load()
    stage.start("-m", "tests.support.stepping_daemon", str(step))
    set_step(step, -3600.0)
    found = stage.expect("clock-set")
    assert round(found["evidence"]["step_seconds"]) == -3600, found
    threading.Event().wait(30.0)
    assert {one["code"] for one in stage.diagnoses()} == {"clock-set"}, stage.diagnoses()


AVRO: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "id", "type": "long"}, {"name": "key", "type": "string"}],
}
SITUATIONS: Final[dict[str, Callable[[_Stage], None]]] = {
    "healthy": _stay_healthy,
    "kill": _kill,
    "slow disk": _slow_disk,
    "skewed key": _skewed_key,
    "silent partition": _silent_partition,
    "broker unavailable": _broker_unavailable,
    "poison record": _poison_record,
    "big state": _big_state,
    "registry unavailable": _registry_unavailable,
    "full sink": _full_sink,
    "hold": _hold,
    "old transaction": _old_transaction,
    "clock": _clock,
}
