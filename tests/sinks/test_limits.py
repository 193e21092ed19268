"""What a topic takes is known when a sink opens, at the very byte, as a real broker has it (X11, X12)."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

import msgspec
import polars as pl
import pytest

from tests.formats.routed import encode_routed, headers_column
from tests.sinks.driving import Cluster, DrivenSink, permit, sink_operator
from tests.support.records import records_of
from tidegate.datatypes import BIGINT, BINARY
from tidegate.formats.dead_letters import DEAD_LETTER_BYTES_MIN
from tidegate.formats.record_limits import RecordLimits
from tidegate.formats.record_parts import RecordParts
from tidegate.formats.records import OutputRecords, RecordEncoder
from tidegate.kafka.errors import SinkFailed, SinkRefused
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.topic_settings import derive_topic_limits
from tidegate.operators.builtin.dead_letters import make_sink
from tidegate.sinks.limits import ARRIVAL_MS, CLIENT_OVERHEAD_BYTES, derive_record_limits, refuse_keyless

HOUR_MS = 3_600_000
NOW = 1_800_000_000_000


def test_limits_of_a_topic_follow_from_its_settings() -> None:
    settings = {
        "max.message.bytes": "2000",
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": str((1 << 63) - 1),
        "message.timestamp.after.max.ms": "3600000",
        "cleanup.policy": "compact,delete",
        "compression.type": "zstd",
    }
    assert derive_topic_limits(settings) == TopicLimits(2000, None, HOUR_MS, True, "zstd")
    assert derive_topic_limits({**settings, "message.timestamp.type": "LogAppendTime"}).after_ms is None
    assert derive_topic_limits({}) == TopicLimits()


def test_limits_of_time_are_of_stamps_that_the_producer_makes() -> None:
    settings = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "2000"}
    stamped = derive_topic_limits({**settings, "message.timestamp.type": "LogAppendTime"})
    assert (derive_topic_limits(settings).before_ms, derive_topic_limits(settings).after_ms) == (1000, 2000)
    assert (stamped.before_ms, stamped.after_ms) == (None, None)


@pytest.mark.parametrize(
    ("own", "before_ms", "after_ms"),
    [
        ({}, 86_400_000, 86_400_000),  # Kafka up to 3.5
        (dict.fromkeys(("before", "after"), str((1 << 63) - 1)), 86_400_000, 86_400_000),  # 3.6 to 3.9
        ({"before": "1000", "after": str((1 << 63) - 1)}, 1000, 86_400_000),
    ],
)
def test_brokers_before_4_0_have_one_limit_of_time_both_ways(
    own: Mapping[str, str], before_ms: int, after_ms: int
) -> None:
    settings = {f"message.timestamp.{name}.max.ms": value for name, value in own.items()}
    found = derive_topic_limits({**settings, "message.timestamp.difference.max.ms": "86400000"})
    assert (found.before_ms, found.after_ms) == (before_ms, after_ms)
    unlimited = derive_topic_limits({"message.timestamp.difference.max.ms": str((1 << 63) - 1)})
    assert (unlimited.before_ms, unlimited.after_ms) == (None, None)


@pytest.mark.parametrize(
    ("kafka", "codec", "expected"),
    [
        ({}, "producer", ""),
        ({"compression.type": "zstd"}, "producer", "zstd"),
        ({"compression.codec": "gzip"}, "gzip", "gzip"),
        ({"compression.type": "lz4"}, "uncompressed", ""),
        ({"compression.type": "none"}, "producer", ""),
    ],
)
def test_compression_counts_where_the_broker_leaves_it(kafka: Mapping[str, str], codec: str, expected: str) -> None:
    assert derive_record_limits("out", kafka, TopicLimits(codec=codec), NOW).codec == expected


def test_limits_of_a_record_are_those_of_the_topic_and_of_the_client_by_now() -> None:
    found = derive_record_limits(
        "out", {"message.max.bytes": "5000"}, TopicLimits(2000, 10 * HOUR_MS, HOUR_MS, True), NOW
    )
    assert found == RecordLimits(
        topic="out",
        record_bytes=5000 - CLIENT_OVERHEAD_BYTES,
        batch_bytes=2000,
        now_ms=NOW,
        earliest_ms=NOW - 10 * HOUR_MS + ARRIVAL_MS,
        latest_ms=NOW + HOUR_MS,
        needs_key=True,
    )


def test_X11_a_sink_without_key_is_refused_by_a_compacted_topic_before_it_skips_every_record() -> None:
    compacted = TopicLimits(compacted=True)
    refuse_keyless(sink_operator("", "out"), "out", TopicLimits())
    refuse_keyless(msgspec.structs.replace(sink_operator("", "out"), key="customer"), "out", compacted)
    with pytest.raises(SinkRefused, match="set `key` of the sink"):
        refuse_keyless(sink_operator("", "out"), "out", compacted)


def test_a_topic_that_cannot_take_every_dead_letter_is_refused() -> None:
    letters = make_sink("dead", "p", None, {})
    refuse_keyless(letters, "dead", TopicLimits(batch_bytes=DEAD_LETTER_BYTES_MIN))
    for limits in (TopicLimits(compacted=True), TopicLimits(batch_bytes=DEAD_LETTER_BYTES_MIN - 1)):
        with pytest.raises(SinkRefused, match="dead_letters: topic dead"):
            refuse_keyless(letters, "dead", limits)


def limits_of(driven: DrivenSink) -> RecordLimits:
    driven.turn_until(lambda: driven.sink.room > 0, "the topic's limits are known")
    (topic,) = driven.sink._operator.topics
    return driven.sink.record_limits(topic)


def commit(cluster: Cluster, driven: DrivenSink, encoded: OutputRecords, checkpoint: int = 1) -> int:
    """How many records were written and committed."""
    driven.write(encoded)
    prepared = driven.prepared(checkpoint)
    cluster.committer.commit(permit(prepared.committables, checkpoint))
    return sum(part.records for one in prepared.committables for part in one.written)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_X12_the_broker_takes_every_record_that_is_let_through_up_to_the_very_byte(
    cluster_tv2: Cluster, codec: str
) -> None:
    """Small records next to the largest, noise and text: what is not called bad is written, also in batches."""
    chance = random.Random(11)
    topic = cluster_tv2.topic(1, {"max.message.bytes": "20000"})
    driven = cluster_tv2.sink(topic, kafka={"compression.type": codec})
    limits = limits_of(driven)
    noise = [chance.randbytes(size) for _ in range(60) for size in (1, 300, 9_000, 19_926, 19_927, 19_928, 19_929)]
    text = [b"".join(b"%d " % chance.randrange(999) for _ in range(count)) for count in range(4_000, 14_000, 500)]
    values = [*noise, *text]
    encoded = RecordEncoder("raw", [("value", BINARY)]).encode(pl.DataFrame({"value": values}), limits)
    assert len(encoded) + len(encoded.failures) == len(values)
    bad = {len(values[failure.row]) for failure in encoded.failures if failure.row < len(noise)}
    assert bad == {19_929}
    assert commit(cluster_tv2, driven, encoded) == len(encoded)
    if codec != "none":
        assert any(len(value or b"") > 20_000 for value in encoded.values.to_list())


@pytest.mark.slow
def test_X12_the_client_takes_every_record_that_is_let_through_up_to_the_very_byte(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic(1, {"max.message.bytes": "5000000"})
    driven = cluster_tv2.sink(topic, kafka={"message.max.bytes": "100000"})
    frame = pl.DataFrame({"value": [b"x" * 99_964, b"x" * 99_965], "k": [b"", b""]})
    encoded = RecordEncoder("raw", [("value", BINARY)], RecordParts(key="k")).encode(frame, limits_of(driven))
    assert [failure.row for failure in encoded.failures] == [1]
    assert commit(cluster_tv2, driven, encoded) == 1


@pytest.mark.slow
def test_X12_headers_are_counted_as_broker_and_client_count_them(
    cluster_tv2: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of records from well below the limit to well above it the largest that is let through is just taken."""
    topic = cluster_tv2.topic(1, {"max.message.bytes": "20000"})
    driven = cluster_tv2.sink(topic)
    limits = limits_of(driven)
    values = [b"x" * size for size in range(19_000, 20_000)]
    headers = headers_column([[("name", b"y" * 300), ("none", None)]] * len(values))
    encoded = encode_routed(monkeypatch, pl.DataFrame([pl.Series("value", values), headers]), limits)
    largest = max(len(value or b"") for value in encoded.values.to_list())
    assert (len(encoded), len(encoded.failures)) == (largest - 18_999, 19_999 - largest)
    assert commit(cluster_tv2, driven, encoded) == len(encoded)
    unlimited = RecordLimits(topic, 1_000_000)
    one_more = encode_routed(
        monkeypatch, pl.DataFrame([pl.Series("value", [b"x" * (largest + 1)]), headers[:1]]), unlimited
    )
    with pytest.raises(SinkRefused, match="MSG_SIZE"):
        commit(cluster_tv2, driven, one_more, 2)


@pytest.mark.slow
def test_X11_timestamps_and_keys_that_are_let_through_are_taken(cluster_tv2: Cluster) -> None:
    config = {"message.timestamp.before.max.ms": "100000", "message.timestamp.after.max.ms": "50000"}
    topic = cluster_tv2.topic(1, {**config, "cleanup.policy": "compact"})
    driven = cluster_tv2.sink(topic, key="k")
    limits = limits_of(driven)
    now = time.time_ns() // 1_000_000
    offsets = [0, 49_000, -80_000, 61_000, -101_000]
    frame = pl.DataFrame({"n": range(6), "k": [b"k"] * 5 + [None], "at": [*(now + offset for offset in offsets), now]})
    encoded = RecordEncoder("json", [("n", BIGINT)], RecordParts(key="k", timestamp="at")).encode(frame, limits)
    kinds = [(failure.row, failure.kind) for failure in encoded.failures]
    assert kinds == [(3, "TIMESTAMP_OUT_OF_RANGE"), (4, "TIMESTAMP_OUT_OF_RANGE"), (5, "NO_KEY")]
    assert commit(cluster_tv2, driven, encoded) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("at_edge", "expected"), [(True, SinkFailed), (False, SinkRefused)])
def test_X11_a_timestamp_that_is_refused_near_a_limit_costs_an_attempt_and_not_the_pipeline(
    cluster_tv2: Cluster, at_edge: bool, expected: type[Exception]
) -> None:
    """The clocks of slot and broker may differ; the next attempt is later, and judges the record again."""
    topic = cluster_tv2.topic(1, {"message.timestamp.after.max.ms": "50000"})
    driven = cluster_tv2.sink(topic)
    limits_of(driven)
    late = time.time_ns() // 1_000_000 + 100_000
    with pytest.raises(expected, match="INVALID_TIMESTAMP"):
        commit(cluster_tv2, driven, records_of([b"1"], None, [late], at_edge=at_edge))


@pytest.mark.slow
def test_limits_are_known_without_transactions_too(cluster_tv2: Cluster) -> None:
    topic = cluster_tv2.topic(1, {"max.message.bytes": "2000"})
    assert limits_of(cluster_tv2.sink(topic, exactly_once=False)).batch_bytes == 2000
