"""What a partition that cannot be read at one place makes of its source."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

from tests.sources.scripted import P0, P1, SetClock
from tidegate.sources.errors import SourceFailed, SourceUnavailable
from tidegate.sources.fetching import NO_OFFSET
from tidegate.sources.repeated import APART_SECONDS, LASTING_SECONDS, RepeatedErrors

DISK = ck.KafkaError(ck.KafkaError.UNKNOWN, "Fetch from broker 1 failed: Unknown broker error")
DAMAGED = (ck.KafkaError._BAD_COMPRESSION, ck.KafkaError.INVALID_MSG)


class Repeating:
    """Errors, one after the other."""

    def __init__(self) -> None:
        self.clock = SetClock()
        self.errors = RepeatedErrors("orders", self.clock)

    def last(self, error: ck.KafkaError, seconds: float = LASTING_SECONDS, offset: int = 17) -> None:
        """The same from now on, with both ends."""
        until = self.clock.now + seconds
        while True:
            self.errors.on_error(P0, offset, error)
            if self.clock.now >= until:
                return
            self.clock.now = min(until, self.clock.now + 1.0)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_an_error_that_waiting_may_cure_is_told_once_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    one = Repeating()
    one.last(DISK, LASTING_SECONDS - 1)
    assert told(caplog) == []
    one.clock.now += 1.0
    one.last(DISK, 1000.0)
    (line,) = told(caplog)
    assert line == (
        f"source orders: nothing was read of orders[0] for 30 s, at offset 17: {DISK.str()}; it is tried again until "
        "it succeeds"
    )


def test_every_place_is_told_and_partitions_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    one = Repeating()
    one.last(DISK)
    one.errors.on_error(P1, 17, DISK)
    one.last(DISK, offset=NO_OFFSET)
    assert [text.split(": ")[1] for text in told(caplog)] == [
        "nothing was read of orders[0] for 30 s, at offset 17",
        "nothing was read of orders[0] for 30 s, at its position",
    ]


def test_an_idle_partition_that_fails_now_and_then_has_not_failed_all_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Repeating()
    for _ in range(10):
        one.errors.on_error(P0, 17, DISK)
        one.errors.on_error(P0, 17, ck.KafkaError(ck.KafkaError.INVALID_MSG))
        one.clock.now += APART_SECONDS + 1
    assert told(caplog) == []


@pytest.mark.parametrize("code", DAMAGED)
def test_a_batch_that_was_damaged_on_its_way_is_read_again(code: int) -> None:
    one = Repeating()
    one.last(ck.KafkaError(code), LASTING_SECONDS - 1)
    one.last(ck.KafkaError(code), LASTING_SECONDS - 1, offset=18)


@pytest.mark.parametrize("code", DAMAGED)
def test_a_batch_that_is_damaged_in_the_log_stops_the_source(code: int) -> None:
    error = ck.KafkaError(code, "it is damaged")
    words = r"^source orders: orders\[0\]: the batch at offset 17 cannot be read: it is damaged; make a replica the"
    with pytest.raises(SourceFailed, match=words) as failure:
        Repeating().last(error)
    assert failure.value.fields == {"partition": "orders[0]", "offset": 17}


def test_a_batch_that_the_client_does_not_know_stops_the_source_at_once() -> None:
    """It would be passed over."""
    error = ck.KafkaError(ck.KafkaError._NOT_IMPLEMENTED, "Unsupported Message(Set) MagicByte 3")
    with pytest.raises(SourceFailed, match=r"the batch at offset 17 cannot be read: Unsupported"):
        Repeating().last(error, 0.0)


def test_a_batch_of_another_checksum_is_read_again_by_another_attempt() -> None:
    """By this one it would be passed over."""
    error = ck.KafkaError(ck.KafkaError._BAD_MSG, "MessageSet failed CRC32C check")
    words = r"^source orders: orders\[0\]: the batch at offset 17 is damaged: MessageSet"
    with pytest.raises(SourceUnavailable, match=words) as failure:
        Repeating().last(error, 0.0)
    assert failure.value.fields == {"partition": "orders[0]", "offset": 17}
