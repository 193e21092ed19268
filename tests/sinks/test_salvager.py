"""Records of lost transactions are found, and read by a client with properties of the pipeline's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import confluent_kafka as ck
import msgspec
import pytest

from tests.sinks.leaping import LeapingClock
from tests.sinks.test_salvage import committable, lost
from tidegate.coordinator.types import Committable, WrittenRange
from tidegate.ids import Attempt, CheckpointId, Producer, TopicPartition
from tidegate.kafka.errors import KafkaRefused, TransactionLost
from tidegate.kafka.facts import LoggedRange
from tidegate.kafka.tls import RENEWAL_S
from tidegate.kafka.tools import Consumer, KafkaTools
from tidegate.sinks.salvage import Group, SalvageOrder
from tidegate.sinks.salvager import Salvager

ORDER = SalvageOrder("shop", "", Attempt(2), CheckpointId(9), CheckpointId(6), 60_000, ())


class Tools(KafkaTools):
    """The real client, which refuses everything until the files are whole again."""

    def __init__(self, whole_at_s: float = 0.0) -> None:
        self.clock = LeapingClock(speed=1)
        self._whole_at_s = whole_at_s

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        if self.clock.monotonic() < self._whole_at_s:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._INVALID_ARG, "ssl.ca.location failed"))
        return super().consumer({name: value for name, value in config.items() if not name.startswith("ssl.")})


class Logs:
    """What is left of each lost transaction, by producer and partition."""

    def __init__(self, left: Mapping[tuple[int, int], list[LoggedRange]]) -> None:
        self._left = left

    def data_ranges(self, written: WrittenRange, producer: Producer, _timeout_s: float) -> list[LoggedRange]:
        return self._left.get((producer.id, written.partition.partition), [])


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
            with pytest.raises(TransactionLost, match=r"holds 0 of its 5 records.*start with --accept-gone 6, "):
                look()
        assert written == []
        return
    assert len(salvager.prepare()) == 1
    assert written == [("out", {0: 5, 1: 3})]
    assert "5 of 5 records of p.totals.0.1.4 in out[0], which are gone" in caplog.text
    assert "2 of 5 records of p.totals.0.1.4 in out[1], which are gone" in caplog.text
    assert "5 of 5 records of p.totals.0.1.6 in gone[0], which are gone" in caplog.text
