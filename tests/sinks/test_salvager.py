"""The consumer that reads lost records again, with properties of the pipeline's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import confluent_kafka as ck
import pytest

from tidegate.ids import Attempt, CheckpointId
from tidegate.kafka.errors import KafkaRefused
from tidegate.kafka.tls import RENEWAL_S
from tidegate.kafka.tools import Consumer, KafkaTools
from tidegate.sinks.salvage import SalvageOrder
from tidegate.sinks.salvager import Salvager

ORDER = SalvageOrder("shop", "", Attempt(2), CheckpointId(9), 60_000, ())


class PatientClock:
    """Passes by sleeping only; after so long, what is waited for has come."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Tools(KafkaTools):
    """The real client, which refuses everything until the files are whole again."""

    def __init__(self, whole_at_s: float = 0.0) -> None:
        self.clock: Any = PatientClock()
        self._whole_at_s = whole_at_s

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        if self.clock.now_s < self._whole_at_s:
            raise ck.KafkaException(ck.KafkaError(ck.KafkaError._INVALID_ARG, "ssl.ca.location failed"))
        return super().consumer({name: value for name, value in config.items() if not name.startswith("ssl.")})


def open_consumer(kafka: Mapping[str, str], tools: Tools) -> None:
    servers = {"bootstrap.servers": "127.0.0.1:1"}
    Salvager(cast("Any", None), {**servers, **kafka}, {}, ORDER, tools)._open_consumer().close()


def test_a_prefetch_that_is_smaller_than_ours_is_left_alone() -> None:
    """With ours in its place the client asked for more room for answers than the pipeline gives."""
    open_consumer({"receive.message.max.bytes": "4000000", "queued.max.messages.kbytes": "2048"}, Tools())


def test_files_that_are_being_replaced_are_waited_for() -> None:
    tools = Tools(whole_at_s=RENEWAL_S / 2)
    open_consumer({"ssl.ca.location": "/certificates/ca.pem"}, tools)
    assert tools.clock.now_s >= RENEWAL_S / 2


@pytest.mark.parametrize("kafka", [{}, {"ssl.ca.location": "/certificates/ca.pem"}])
def test_settings_that_no_client_takes_are_refused_with_the_reason(kafka: dict[str, str]) -> None:
    with pytest.raises(KafkaRefused, match=r"settings in `kafka:`: .*ssl\.ca\.location failed"):
        open_consumer(kafka, Tools(whole_at_s=1000.0))
