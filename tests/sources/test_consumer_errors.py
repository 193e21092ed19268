"""What a partition that cannot be read at one place makes of its source."""

from __future__ import annotations

import confluent_kafka as ck
import pytest

from tests.sources.scripted import P0, P1
from tests.support.clocks import SetClock
from tidegate.kafka.errors import SourceFailed, SourceUnavailable
from tidegate.sources.consumer_errors import AGAIN_SECONDS, LASTING_SECONDS, RepeatedErrors
from tidegate.sources.fetching import NO_OFFSET

DISK = ck.KafkaError(ck.KafkaError.UNKNOWN, "Fetch from broker 1 failed: Unknown broker error")
GZIP = ck.KafkaError(ck.KafkaError._BAD_COMPRESSION, "Decompression (codec 0x1) failed")
CORRUPT = ck.KafkaError(ck.KafkaError.INVALID_MSG, "Broker: Invalid message")
LASTING = (DISK, GZIP, CORRUPT)
BACKOFF = "fetch.error.backoff.ms"


class Repeating:
    """Errors, one after the other."""

    def __init__(self, **kafka: str) -> None:
        self.clock = SetClock()
        self.errors = RepeatedErrors("orders", kafka, self.clock)

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


def told_when_it_lasts(error: ck.KafkaError, caplog: pytest.LogCaptureFixture) -> str:
    """Not a second before."""
    one = Repeating()
    one.last(error, LASTING_SECONDS - 1)
    assert told(caplog) == []
    one.clock.now += 1.0
    one.last(error, 0.0)
    (line,) = told(caplog)
    return line


def levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records]


def test_an_error_that_waiting_may_cure_is_told_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    line = told_when_it_lasts(DISK, caplog)
    assert line == (
        f"source orders: nothing was read from orders[0] for 30 s, at offset 17: {DISK.str()}; reading is retried "
        "until it succeeds"
    )
    assert levels(caplog) == ["WARNING"]


@pytest.mark.parametrize("error", [GZIP, CORRUPT])
def test_a_damaged_batch_is_an_error_with_its_place_and_stops_nothing(
    caplog: pytest.LogCaptureFixture, error: ck.KafkaError
) -> None:
    line = told_when_it_lasts(error, caplog)
    assert line.startswith(
        f"source orders: orders[0]: the batch at offset 17 could not be read for 30 s: {error.str()}; this "
        "partition is blocked, all others continue; make an intact replica the leader. Or take a checkpoint that "
        "reaches the batch (`tidegate checkpoint`), delete the records"
    )
    assert levels(caplog) == ["ERROR"]


@pytest.mark.parametrize("error", LASTING)
def test_what_lasts_is_told_again_every_ten_minutes(caplog: pytest.LogCaptureFixture, error: ck.KafkaError) -> None:
    one = Repeating()
    one.last(error, LASTING_SECONDS + 2 * AGAIN_SECONDS - 1)
    assert len(told(caplog)) == 2
    one.clock.now += 1.0
    one.last(error, 0.0)
    assert [text.count(" for 30 s") for text in told(caplog)] == [1, 0, 0]
    assert " for 1230 s" in told(caplog)[2]


def test_every_place_is_told_and_partitions_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    one = Repeating()
    one.last(DISK)
    one.errors.on_error(P1, 17, DISK)
    one.last(DISK, offset=NO_OFFSET)
    one.last(GZIP, offset=18)
    one.last(GZIP, LASTING_SECONDS - 1, offset=19)
    assert [text.split(": ", 1)[1][:58] for text in told(caplog)] == [
        "nothing was read from orders[0] for 30 s, at offset 17: Fe",
        "nothing was read from orders[0] for 30 s, at its position:",
        "orders[0]: the batch at offset 18 could not be read for 30",
    ]


def test_errors_of_several_kinds_at_one_place_have_lasted_together(caplog: pytest.LogCaptureFixture) -> None:
    one = Repeating()
    for _ in range(16):
        one.last(DISK, 0.0)
        one.clock.now += 1.0
        one.last(CORRUPT, 0.0)
        one.clock.now += 1.0
    assert levels(caplog) == ["WARNING"]


@pytest.mark.parametrize("error", LASTING)
@pytest.mark.parametrize(("kafka", "apart"), [({}, 60.5), ({BACKOFF: "0"}, 60.0), ({BACKOFF: "300000"}, 360.0)])
def test_an_idle_partition_that_fails_now_and_then_has_not_failed_all_the_time(
    caplog: pytest.LogCaptureFixture, error: ck.KafkaError, kafka: dict[str, str], apart: float
) -> None:
    """The client's own pause between two tries is none."""
    one = Repeating(**kafka)
    for _ in range(10):
        one.errors.on_error(P0, 17, error)
        one.clock.now += apart + 0.1
    assert told(caplog) == []
    one.errors.on_error(P0, 17, error)
    one.clock.now += apart
    one.errors.on_error(P0, 17, error)
    assert len(told(caplog)) == 1


def test_a_batch_that_the_client_does_not_know_stops_the_source_at_once_and_is_not_to_be_deleted() -> None:
    """It would be passed over."""
    error = ck.KafkaError(ck.KafkaError._NOT_IMPLEMENTED, "Unsupported Message(Set) MagicByte 3")
    with pytest.raises(SourceFailed, match=r"^source orders: orders\[0\]: the batch at offset 17 cannot be") as failure:
        Repeating().last(error, 0.0)
    assert failure.value.fields == {"partition": "orders[0]", "offset": 17}
    text = str(failure.value)
    assert "MagicByte 3; the client library (librdkafka" in text
    assert "gzip, snappy, lz4 and zstd. Update it, or have the records written again with one of these" in text
    assert "kafka-delete-records" not in text


def test_a_batch_of_another_checksum_is_read_again_by_another_attempt() -> None:
    """By this one it would be passed over."""
    error = ck.KafkaError(ck.KafkaError._BAD_MSG, "MessageSet failed CRC32C check")
    words = r"^source orders: orders\[0\]: the batch at offset 17 is damaged: MessageSet"
    with pytest.raises(SourceUnavailable, match=words) as failure:
        Repeating().last(error, 0.0)
    assert failure.value.fields == {"partition": "orders[0]", "offset": 17}
