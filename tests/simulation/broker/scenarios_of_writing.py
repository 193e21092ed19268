"""Scenarios: what a writer reports of records that are refused, late or too many."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from tests.simulation.broker.scenario import Value, refused, scenario
from tests.simulation.broker.scripted_port import Fate
from tests.simulation.broker.stages import FLUSH_S, SMALL_BATCHES, Stage
from tests.support.records import records_of
from tidegate.errors import TidegateError
from tidegate.formats.records import OutputRecords
from tidegate.kafka.writer import TransactionWriter

HOUR_MS = 3_600_000


def _rows(values: Sequence[bytes], key: bytes | None = b"k", times_ms: list[int | None] | None = None) -> OutputRecords:
    return records_of(values, None if key is None else [key] * len(values), times_ms)


def _named(call: Callable[[], object]) -> tuple[str, str]:
    """Code of the error that a call raises, and the name that Kafka's client has for it."""
    try:
        call()
    except TidegateError as error:
        found = re.search(r"\((_?[A-Z][A-Z_]+)\)", error.message)
        return error.code, found[1] if found else error.message
    return "no error", ""


def _write_all(writer: TransactionWriter, rows: OutputRecords) -> None:
    """And let it be delivered. Raises SinkFailed, KafkaRefused."""
    assert writer.write(rows, 0) == len(rows)
    writer.flush(FLUSH_S, lambda: False)
    writer.poll()


def _refused(stage: Stage, settings: Mapping[str, str], rows: OutputRecords) -> Value:
    """Good records, refused ones, and again good ones: what is reported, reported again, and in the log."""
    topic = stage.topic(settings=settings)
    writer = stage.writer("a", topic)
    _write_all(writer, _rows([b"1", b"2"]))
    first = _named(lambda: _write_all(writer, rows))
    again = _named(lambda: _write_all(writer, _rows([b"3"])))
    proof = refused(lambda: stage.committable(writer))
    (part,) = stage.parts(topic)
    return first, again, writer.refused, writer.delivery_errors, proof, stage.offsets(part)[2]


_TOO_LARGE = ("sink-refused", "MSG_SIZE_TOO_LARGE")
_TOO_LATE = ("sink-refused", "INVALID_TIMESTAMP")
_INVALID = ("sink-refused", "INVALID_RECORD")


@scenario((_TOO_LARGE, _TOO_LARGE, True, 1, "sink-refused", 2))
def a_record_is_too_large_for_the_topic(stage: Stage) -> Value:
    return _refused(stage, {"max.message.bytes": "2000"}, _rows([b"x" * 3000]))


@scenario((_TOO_LATE, _TOO_LATE, True, 2, "sink-refused", 2))
def a_record_is_too_late_for_the_topic(stage: Stage) -> Value:
    """One of a batch, and all of it are refused."""
    times_ms: list[int | None] = [stage.clock.now_ms(), stage.clock.now_ms() + 2 * HOUR_MS]
    return _refused(stage, {"message.timestamp.after.max.ms": str(HOUR_MS)}, _rows([b"8", b"9"], times_ms=times_ms))


@scenario((_INVALID, _INVALID, True, 1, "sink-refused", 2))
def a_compacted_topic_takes_no_record_without_a_key(stage: Stage) -> Value:
    return _refused(stage, {"cleanup.policy": "compact"}, _rows([b"9"], key=None))


@scenario((_TOO_LARGE, _TOO_LARGE, False, 0, {0: [1, 2]}))
def a_record_is_too_large_for_the_client(stage: Stage) -> Value:
    """It is not even queued, and the others are delivered."""
    topic = stage.topic()
    writer = stage.writer("a", topic, kafka={"message.max.bytes": "2000"})
    _write_all(writer, _rows([b"1"]))
    large = _named(lambda: writer.write(_rows([b"x" * 3000]), 0))
    late = _named(lambda: writer.write(_rows([b"x" * 3000], times_ms=[None]), 0))
    _write_all(writer, _rows([b"2"]))
    return large, late, writer.refused, writer.delivery_errors, stage.visible(topic, committed=False)


@scenario((("sink-failed", "_MSG_TIMED_OUT"), "sink-failed", False, 0))
def records_are_not_taken_in_time(stage: Stage) -> Value:
    topic = stage.topic()
    writer = stage.writer("a", topic, kafka={**SMALL_BATCHES, "message.timeout.ms": "1500"})
    stage.hurt_requests("produce", [Fate.REFUSE] * 1000)
    try:
        first = _named(lambda: _write_all(writer, _rows([b"x" * 1000] * 10)))
    finally:
        stage.hurt_requests("produce", [])
    again = refused(lambda: _write_all(writer, _rows([b"1"])))
    (part,) = stage.parts(topic)
    return first, again, writer.refused, stage.offsets(part)[2]


@scenario((5, 8, 0, 0, {0: [0, 1, 2, 3, 4, 5, 6, 7]}))
def a_queue_is_full(stage: Stage) -> Value:
    topic = stage.topic()
    writer = stage.writer("a", topic, kafka={"queue.buffering.max.messages": "5", "linger.ms": "10000"})
    rows = _rows([b"%d" % number for number in range(8)])
    writer.poll()  # what the client has to say, a line of its log for instance, takes room as a record does
    taken = writer.write(rows, 0)
    room = writer.room
    writer.flush(FLUSH_S, lambda: False)
    return taken, writer.write(rows, taken), room, writer.flush(FLUSH_S, lambda: False), stage.visible(topic, False)


@scenario(("sink-failed", "sink-failed", {}))
def a_fenced_producer_has_much_to_send(stage: Stage) -> Value:
    topic = stage.topic()
    writer = stage.writer("a", topic, kafka=SMALL_BATCHES)
    stage.client.fence(stage.tid("a"))
    first = refused(lambda: _write_all(writer, _rows([b"x" * 1000] * 50)))
    return first, refused(lambda: _write_all(writer, _rows([b"1"]))), stage.visible(topic, False)


@scenario(("sink-refused", "UNKNOWN_TOPIC"))
def a_topic_to_write_to_does_not_exist(stage: Stage) -> Value:
    code, text = _named(lambda: stage.writer("a", f"no-{stage.topic()}"))
    return code, "UNKNOWN_TOPIC" if "nknown topic" in text else text


@scenario(((0, 2), [], {0: [1, 2]}))
def records_of_a_plain_producer_are_seen_at_once(stage: Stage) -> Value:
    """At-least-once: no transaction, no proof."""
    topic = stage.topic()
    writer = stage.plain_writer(topic)
    _write_all(writer, _rows([b"1", b"2"]))
    (part,) = stage.parts(topic)
    return stage.offsets(part)[0::2], stage.client.open_transactions([part]), stage.visible(topic)
