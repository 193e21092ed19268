"""How a writer opens where brokers have just started, and know of nothing yet; and while its files are replaced."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from tests.support.certificates import Authority
from tests.support.records import records_of
from tidegate.ids import ProducerId, TransactionalId
from tidegate.kafka.diagnosis import Obstacle
from tidegate.kafka.errors import BrokerUnavailable, LoginRefusedLater, SinkFailed, SinkRefused
from tidegate.kafka.facts import CoordinatorState, TopicLimits, TransactionDescription
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.tls import RENEWAL_S
from tidegate.kafka.tools import KafkaTools
from tidegate.kafka.writer import CALL_TIMEOUT_S, INSPECT_S, OPEN_TIMEOUT_S, UNKNOWN_TOPIC_S, TransactionWriter


class Tools(KafkaTools):
    """Producers whose broker learns of its topics later, and a clock that only sleep and waiting move."""

    def __init__(self, unknown_s: float = 0.0, code: int = ck.KafkaError.UNKNOWN_TOPIC_OR_PART) -> None:
        self.now = 0.0
        self.unknown_s = unknown_s
        self.code = code
        self.clock: Any = self
        self.trouble: ck.KafkaError | None = None
        """What the broker says to everything, until `troubled_s`."""
        self.troubled_s = math.inf
        self.obstacle: Obstacle | None = None
        """What an inspection of the way to the broker finds."""
        self.stuck = 0
        """So many producers wait for their id in vain."""
        self.made: list[dict[str, Any]] = []
        """What each producer was made with."""
        self.queued = 0
        self.purged: list[dict[str, bool]] = []
        self.begun = 0
        self.partitions = 2
        self.produced: list[tuple[bytes | None, int]] = []
        """Value and partition."""
        self.listed: list[str | None] = []
        """Topics that were asked for; None: all."""

    def monotonic(self) -> float:
        return 1000.0 + self.now

    def now_ms(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def producer(self, config: Any) -> Any:
        self.made.append(config)
        return self

    def __len__(self) -> int:
        return self.queued

    def list_topics(self, topic: str | None = None, *, timeout: float) -> Any:
        if self.trouble is not None and self.now < self.troubled_s:
            raise ck.KafkaException(self.trouble)
        self.listed.append(topic)
        error = ck.KafkaError(self.code) if self.now < self.unknown_s else None
        found = {} if error else dict.fromkeys(range(self.partitions), 1)
        return SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions=found)})

    def find_obstacle(self, kafka: Any) -> Obstacle | None:
        return self.obstacle

    def produce(self, topic: str, **record: Any) -> None:
        assert topic == "orders"
        self.produced.append((record["value"], record["partition"]))

    def init_transactions(self, timeout: float) -> None:
        if len(self.made) <= self.stuck:
            self.now += timeout
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._TIMED_OUT, "waited", False, True))

    def begin_transaction(self) -> None:
        self.begun += 1

    def purge(self, **how: bool) -> None:
        self.purged.append(how)


class Coordinator:
    """Knows of an id, or says nothing about it; keeps how long it may take."""

    def __init__(self, known: TransactionDescription | BrokerUnavailable | None) -> None:
        self.known = known
        self.asked: list[tuple[str, float]] = []

    def describe(self, transactional_id: str, timeout_s: float) -> TransactionDescription | None:
        self.asked.append((transactional_id, timeout_s))
        if isinstance(self.known, BrokerUnavailable):
            raise self.known
        return self.known


ID = TransactionalId("p.out.0.1-j.0")
ONGOING = TransactionDescription(CoordinatorState.ONGOING, ProducerId(7, 3), 60_000, 0, frozenset())


def never() -> bool:
    return False


def make(tools: Tools, identity: TransactionalId | None = None) -> TransactionWriter:
    return TransactionWriter("out", {"orders": TopicLimits()}, derive_producer_properties({}, identity, 60_000), tools)


def begun(
    tools: Tools, known: TransactionDescription | BrokerUnavailable | None, **how: Any
) -> tuple[TransactionWriter, Any]:
    """A writer with a transaction, and whom it asked about it."""
    coordinator: Any = Coordinator(known)
    writer = make(tools, ID)
    writer.open(coordinator, how.get("stopping", never))
    return writer, coordinator


def opened(unknown_s: float, code: int = ck.KafkaError.UNKNOWN_TOPIC_OR_PART) -> TransactionWriter:
    writer = make(Tools(unknown_s, code))
    writer.open(None, never)
    return writer


def test_a_writer_that_was_never_opened_has_written_nothing_and_can_be_given_up() -> None:
    writer = make(Tools())
    assert (writer.transactional_id, make(Tools(), ID).transactional_id) == ("", ID)
    assert (writer.produced, writer.delivery_errors, writer.first_error, writer.refused) == (0, 0, "", False)
    writer.discard()


def test_a_transaction_begins_once_its_id_is_initialised_and_its_producer_known() -> None:
    tools = Tools()
    writer, coordinator = begun(tools, ONGOING)
    assert (writer.producer, writer.partitions, tools.begun) == (ProducerId(7, 3), {"orders": 2}, 1)
    assert coordinator.asked == [(ID, OPEN_TIMEOUT_S)]
    assert tools.listed == ["orders"] * 2, "without the second one the initialisation may wait for a timer"
    (config,) = tools.made
    assert config["delivery.report.only.error"] is True, "a report of each record would cost as much as the record"
    with pytest.raises(SinkFailed, match="is unknown right after its initialisation"):
        begun(Tools(), None)


def test_a_producer_that_waits_for_its_id_in_vain_is_replaced_by_another() -> None:
    """One whose broker was killed waits on. What it has in its queue is given up without waiting."""
    tools = Tools()
    tools.stuck, tools.queued = 1, 3
    _, coordinator = begun(tools, ONGOING)
    assert OPEN_TIMEOUT_S / 2 < tools.now < OPEN_TIMEOUT_S / 2 + 2 * CALL_TIMEOUT_S
    assert (len(tools.made), tools.purged, tools.begun) == (2, [{"blocking": False}], 1)
    ((_, timeout_s),) = coordinator.asked
    assert timeout_s == pytest.approx(OPEN_TIMEOUT_S - tools.now), "as long as the opening may still take"


@pytest.mark.parametrize(
    ("known", "told"),
    [(ONGOING, "Ongoing, with epoch 3"), (None, "nothing"), (BrokerUnavailable("it is away"), "it is away")],
)
def test_an_id_that_cannot_be_initialised_is_reported_with_what_its_coordinator_knows(
    known: TransactionDescription | BrokerUnavailable | None, told: str
) -> None:
    tools = Tools()
    tools.stuck = 99
    with pytest.raises(SinkFailed, match=rf"_TIMED_OUT.*{told}$"):
        begun(tools, known)
    assert len(tools.made) == 2
    assert OPEN_TIMEOUT_S < tools.now < OPEN_TIMEOUT_S + 2 * CALL_TIMEOUT_S


@pytest.mark.parametrize(
    ("at_s", "producers", "told"),
    [
        (0.0, 1, "the sink is closed"),
        (OPEN_TIMEOUT_S / 2, 1, r"\(_TIMED_OUT\)$"),
        (OPEN_TIMEOUT_S * 0.75, 2, r"\(_TIMED_OUT\)$"),
    ],
)
def test_an_opening_that_is_stopped_asks_nobody_else(at_s: float, producers: int, told: str) -> None:
    tools = Tools()
    tools.stuck = 99
    with pytest.raises(SinkFailed, match=told):
        begun(tools, ONGOING, stopping=lambda: tools.now >= at_s)
    assert len(tools.made) == producers
    assert at_s <= tools.now <= at_s + 2 * CALL_TIMEOUT_S


PASSING = {
    "not connected": ck.KafkaError(ck.KafkaError._TRANSPORT),
    "no answer": ck.KafkaError(ck.KafkaError._TIMED_OUT),
    "all down": ck.KafkaError(ck.KafkaError._ALL_BROKERS_DOWN),
    "no address": ck.KafkaError(ck.KafkaError._RESOLVE),
    "by its own word": ck.KafkaError(ck.KafkaError.LEADER_NOT_AVAILABLE, "electing", False, True),
}


@pytest.mark.parametrize("trouble", PASSING.values(), ids=PASSING)
def test_what_a_restart_of_a_broker_brings_is_waited_out(trouble: ck.KafkaError) -> None:
    tools = Tools()
    tools.trouble, tools.troubled_s = trouble, 30.0
    writer = make(tools)
    writer.open(None, never)
    assert writer.partitions == {"orders": 2}
    tools = Tools()
    tools.trouble = trouble
    with pytest.raises(SinkFailed, match=trouble.name()):
        make(tools).open(None, lambda: tools.now > 5.0)
    assert 5.0 < tools.now < 6.0, "stopped"
    tools = Tools()
    tools.trouble = trouble
    with pytest.raises(SinkFailed, match=trouble.name()):
        make(tools).open(None, never)
    assert OPEN_TIMEOUT_S < tools.now < OPEN_TIMEOUT_S + 1.0


def test_a_login_that_is_refused_is_not_repeated_until_the_deadline() -> None:
    tools = Tools()
    tools.trouble = ck.KafkaError(ck.KafkaError._TRANSPORT)
    tools.obstacle = Obstacle("it does not answer", "wait", "bootstrap.servers", final=False)
    with pytest.raises(SinkFailed, match="_TRANSPORT"):
        make(tools).open(None, never)
    tools = Tools()
    tools.trouble = ck.KafkaError(ck.KafkaError._TRANSPORT)
    tools.obstacle = Obstacle("it refuses the user `ann`", "correct `sasl.password`", "sasl.username", final=True)
    with pytest.raises(LoginRefusedLater, match=r"sink out: it refuses the user `ann`; correct `sasl\.password`"):
        make(tools).open(None, never)
    assert tools.now < INSPECT_S + 1.0


def test_what_no_restart_brings_is_told_at_once() -> None:
    tools = Tools()
    tools.trouble = ck.KafkaError(ck.KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(SinkRefused, match="grant WRITE and READ on the topic"):
        make(tools).open(None, never)
    assert tools.now == 0.0
    tools.trouble = ck.KafkaError(ck.KafkaError._FATAL, "broken", True)
    with pytest.raises(SinkFailed, match="broken"):
        begun(tools, ONGOING)
    assert (tools.now, len(tools.made)) == (0.0, 2), "one each"


def test_a_producer_that_is_given_up_is_destroyed() -> None:
    """It has threads and memory of its own, and what it has in its queue is not written any more."""
    tools = Tools()
    writer = make(tools)
    writer.open(None, never)
    tools.queued = 3
    assert (writer.queued, writer.room) == (3, writer._queue_max - 3)
    writer.discard()
    assert (writer.queued, tools.purged) == (0, [{"blocking": False}])


def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again() -> None:
    """A broker that has just started: the pipeline stopped for good, with code 4."""
    assert opened(3.0).partitions == {"orders": 2}


def test_a_topic_that_stays_unknown_is_refused() -> None:
    with pytest.raises(SinkRefused, match=r"topic orders: .*create it"):
        opened(1000.0)


def test_a_topic_that_is_forbidden_is_refused_at_once() -> None:
    with pytest.raises(SinkRefused, match="topic orders"):
        opened(1.0, ck.KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Renewing(KafkaTools):
    """Real producers, and a clock that only sleep moves: when it is `at_s`, the second file is replaced, too."""

    def __init__(self, at_s: float, key: Path, by: Path) -> None:
        self.now = 0.0
        self.at_s = at_s
        self.key, self.by = key, by
        self.clock: Any = self

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.at_s:
            shutil.copy(self.by, self.key)


def renewed(directory: Path, at_s: float) -> None:
    """Make a producer whose certificate was replaced, and whose key is not yet."""
    authority = Authority(directory / "authority")
    former, later = authority.sign("former"), authority.sign("later")
    certificate, key = directory / "me.pem", directory / "me-key.pem"
    shutil.copy(later.certificate, certificate)
    shutil.copy(former.key, key)
    user = {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
    }
    tools = Renewing(at_s, key, later.key)
    properties = derive_producer_properties(user, None, 60_000)
    TransactionWriter("out", {"orders": TopicLimits()}, properties, tools)._make_producer(lambda: False)


def test_files_that_are_being_replaced_are_waited_for(tmp_path: Path) -> None:
    """A certificate and its key are two files: in between no producer is made, and the pipeline stopped for good."""
    renewed(tmp_path, RENEWAL_S / 2)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkRefused, match=r"rejects its settings: .*ssl\.key"):
        renewed(tmp_path, RENEWAL_S * 2)


def test_a_partition_that_is_newer_than_the_producer_is_looked_up_before_a_record_goes_there() -> None:
    """The client would refuse it, and looks at its topics every five minutes by itself."""
    tools = Tools()
    writer = make(tools)
    writer.open(None, never)
    asked = len(tools.listed)
    tools.partitions = 4
    assert writer.write(records_of([b"a", b"b"], partitions=[1, None]), 0) == 2
    assert len(tools.listed) == asked, "nothing is new here"
    assert writer.write(records_of([b"c", b"d"], partitions=[3, 2]), 0) == 2
    assert tools.listed[asked:] == ["orders"]
    assert tools.produced == [(b"a", 1), (b"b", -1), (b"c", 3), (b"d", 2)]


def test_a_partition_that_never_comes_is_not_waited_for_without_end() -> None:
    tools = Tools()
    writer = make(tools)
    writer.open(None, never)
    writer.write(records_of([b"a"], partitions=[2]), 0)
    assert UNKNOWN_TOPIC_S <= tools.now < UNKNOWN_TOPIC_S + 1


def test_a_row_that_names_no_partition_goes_where_its_key_belongs() -> None:
    tools = Tools()
    writer = make(tools)
    writer.open(None, never)
    writer.write(records_of([b"a", b"b", b"c"], partitions=[0, None, 1]), 0)
    writer.write(records_of([b"d"], timestamps_ms=[None]), 0)
    assert tools.produced == [(b"a", 0), (b"b", -1), (b"c", 1), (b"d", -1)]


class Refusing(Tools):
    def producer(self, config: Any) -> Any:
        raise ck.KafkaException(ck.KafkaError(ck.KafkaError._INVALID_ARG, "no such property"))


def test_settings_that_name_no_files_are_refused_at_once() -> None:
    tools = Refusing()
    with pytest.raises(SinkRefused, match=r"rejects its settings: .*no such property"):
        make(tools).open(None, never)
    assert tools.now == 0.0
