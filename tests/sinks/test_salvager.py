"""Records of lost transactions are found, and read by a client with properties of the pipeline's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import confluent_kafka as ck
import msgspec
import pytest

from tests.sinks.leaping import LeapingClock
from tests.sinks.test_salvage import committable, lost
from tidegate.committable import Committable, WrittenRange
from tidegate.ids import Attempt, CheckpointId, ProducerId, TopicPartition, TransactionalId
from tidegate.kafka.errors import KafkaRefused, SinkRefused, TransactionLost
from tidegate.kafka.facts import LoggedRange, TopicLimits
from tidegate.kafka.tls import RENEWAL_S
from tidegate.kafka.tools import KafkaConsumer, KafkaTools
from tidegate.sinks.salvage import Group, SalvageOrder
from tidegate.sinks.salvager import Salvager

ORDER = SalvageOrder("shop", "j", Attempt(2), CheckpointId(9), CheckpointId(6), 60_000, ())


class Tools(KafkaTools):
    """The real client, which refuses everything until the files are whole again."""

    def __init__(self, whole_at_s: float = 0.0) -> None:
        self.clock = LeapingClock(speed=1)
        self._whole_at_s = whole_at_s

    def consumer(self, config: Mapping[str, Any]) -> KafkaConsumer:
        if self.clock.monotonic() < self._whole_at_s:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._INVALID_ARG, "ssl.ca.location failed"))
        return super().consumer({name: value for name, value in config.items() if not name.startswith("ssl.")})


class Logs:
    """What is left of each lost transaction, by producer and partition."""

    def __init__(self, left: Mapping[tuple[int, int], list[LoggedRange]]) -> None:
        self._left = left
        self.limits = TopicLimits()

    def topic_limits(self, _topic: str) -> TopicLimits:
        return self.limits

    def data_ranges(self, written: WrittenRange, producer: ProducerId, _timeout_s: float) -> list[LoggedRange]:
        return self._left.get((producer.id, written.partition.partition), [])


class RefusingWriter:
    """Its broker refuses everything, maybe for timestamps."""

    def __init__(self, *, stamps: bool) -> None:
        self.transactional_id, self.producer, self.produced = TransactionalId("p.totals.0.2-j.900"), ProducerId(7, 0), 0
        self.delivery_errors, self.first_error, self.refused = 1, "so it is (INVALID_RECORD)", True
        self.stamps_refused = stamps
        self.discarded = 0

    def open(self, _client: object, _stopping: object) -> None:
        """Nothing to do."""

    def repeat(self, _message: object) -> None:
        self.produced += 1

    def flush(self, _timeout_s: float, _stopping: object) -> int:
        return 0

    def discard(self) -> None:
        self.discarded += 1


def open_consumer(kafka: Mapping[str, str], tools: Tools) -> None:
    servers = {"bootstrap.servers": "127.0.0.1:1"}
    Salvager(cast("Any", None), {**servers, **kafka}, {}, ORDER, tools)._open_consumer().close()


def test_a_prefetch_that_is_smaller_than_ours_is_left_alone() -> None:
    """With ours in its place the client asked for more room for answers than the pipeline gives."""
    open_consumer({"receive.message.max.bytes": "4000000", "queued.max.messages.kbytes": "2048"}, Tools())


def test_files_that_are_being_replaced_are_waited_for() -> None:
    tools = Tools(whole_at_s=RENEWAL_S / 2)
    open_consumer({"ssl.ca.location": "/certificates/ca.pem"}, tools)
    assert tools.clock.monotonic() >= RENEWAL_S / 2


@pytest.mark.parametrize("kafka", [{}, {"ssl.ca.location": "/certificates/ca.pem"}])
def test_settings_that_no_client_takes_are_refused_with_the_reason(kafka: dict[str, str]) -> None:
    with pytest.raises(KafkaRefused, match=r"settings in `kafka:`: .*ssl\.ca\.location failed"):
        open_consumer(kafka, Tools(whole_at_s=1000.0))


@pytest.mark.parametrize("accept_gone", [None, 5, 6])
def test_what_is_left_is_written_again_where_somebody_accepts_that_the_rest_is_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, accept_gone: CheckpointId | None
) -> None:
    """Each start was refused, whatever one did: the directory was of no use any more."""
    written: list[tuple[str, dict[int, int]]] = []

    def write(_salvager: Salvager, group: Group, found: dict[TopicPartition, list[LoggedRange]]) -> Committable:
        counts = {part.partition: sum(one.records for one in ranges) for part, ranges in found.items()}
        written.append((group.topic, counts))
        return group.lost[0].committable

    monkeypatch.setattr(Salvager, "_write", write)
    ones = (committable(4, (0, 1)), committable(5, (0,)), committable(6, (0,), topic="gone"))
    order = msgspec.structs.replace(ORDER, lost=tuple(map(lost, ones)))
    client = Logs({(4, 1): [LoggedRange(12, 15, 3)], (5, 0): [LoggedRange(10, 15, 5)]})
    salvager = Salvager(cast("Any", client), {}, {}, order, Tools(), accept_gone=accept_gone)
    if accept_gone != ORDER.listed_by:
        for look in (salvager.check, salvager.prepare):
            with pytest.raises(TransactionLost, match=r"has 0 of its 5 records.*start with --accept-gone 6, "):
                look()
        assert written == []
        return
    assert len(salvager.prepare()) == 1
    assert written == [("out", {0: 5, 1: 3})]
    assert "5 of 5 records of p.totals.0.1-j.4 in out[0], which are gone" in caplog.text
    assert "2 of 5 records of p.totals.0.1-j.4 in out[1], which are gone" in caplog.text
    assert "5 of 5 records of p.totals.0.1-j.6 in gone[0], which are gone" in caplog.text


@pytest.mark.parametrize(
    ("limits", "stamps", "told"),
    [
        (TopicLimits(1_000_000, before_ms=3_600_000), True, r"older than 1h \(.*back to 3600000 once"),
        (TopicLimits(), True, "older than it allows .*back to its former value once"),  # not visible to this user
        (TopicLimits(1_000_000, compacted=True), True, ""),
        (TopicLimits(1_000_000, before_ms=3_600_000), False, ""),
    ],
)
def test_records_that_have_become_too_old_for_their_topic_are_told_with_what_lets_them_in(
    monkeypatch: pytest.MonkeyPatch, limits: TopicLimits, stamps: bool, told: str
) -> None:
    """They are decided: to leave them out with `where`, as records of a running pipeline, comes too late."""
    writer = RefusingWriter(stamps=stamps)

    class Writing(Tools):
        def writer(self, sink: str, topics: Mapping[str, TopicLimits], properties: Mapping[str, str]) -> Any:
            assert topics == {"out": limits}
            return writer

    def read(*_where: object) -> list[ck.Message]:
        stamped = [(ck.TIMESTAMP_NOT_AVAILABLE, -1), *((ck.TIMESTAMP_CREATE_TIME, at) for at in (2000, 1000, 3000))]
        return [ck.Message(timestamp=one) for one in stamped]

    monkeypatch.setattr(Salvager, "_read", read)
    order = msgspec.structs.replace(ORDER, lost=(lost(committable(4)),))
    client = Logs({(4, 0): [LoggedRange(10, 15, 5)]})
    client.limits = limits
    salvager = Salvager(cast("Any", client), {}, {}, order, (tools := Writing()))
    tools.clock.sleep(10_000)
    with pytest.raises(TransactionLost if told else SinkRefused) as refused:
        salvager.prepare()
    if told:
        assert re.search(told, refused.value.message)
        assert "topic out accepts no record" in refused.value.message
        assert "the oldest of these is of 1970-01-01T00:00:01.000Z" in refused.value.message
        assert "`where`" not in refused.value.message
    assert (writer.produced, writer.discarded) == (4, 1)
