"""One round of the reader after the other, driven by the test in place of its thread: what is asked of the client, how
much is gathered, when the loop is woken, and what ends the reader.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import confluent_kafka as ck
import pytest

from tests.sources.kafka_topics import NEW, source_operator
from tests.sources.scripted import NAME, P0, P1, ScriptedClient, ScriptedTools
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import TopicPartition
from tidegate.kafka.errors import SourceFailed, SourceUnavailable
from tidegate.operators.builtin.kafka_source import ON_LOST_CONTINUE
from tidegate.operators.spec import Planned, Requirement
from tidegate.sources import reader as module
from tidegate.sources.fetching import NO_OFFSET, FetchEvent, MessageFetcher
from tidegate.sources.messages import NO_RECORDS, KafkaMessages
from tidegate.sources.positions import AGAIN_SECONDS, STAYS_SECONDS, Due
from tidegate.sources.reader import (
    FEW_BYTES_PER_SECOND,
    FEW_PER_SECOND,
    GATHERED_BYTES,
    GATHERED_RECORDS,
    MAX_PENDING_BYTES,
    MAX_RECORDS,
    RELEASE_S_MAX,
    ConsumerThread,
    Pending,
    RoundPace,
)
from tidegate.sources.tools import AT_ONCE, LINGER_S, GatherTimes, derive_gather_times, derive_linger_s
from tidegate.threads import HelperThread

UNKNOWN = ck.KafkaError(ck.KafkaError.UNKNOWN_TOPIC_OR_PART)
MIB = 2**20


class Impatient(threading.Condition):
    """Waits for nothing: notes how long it would, and whether there was no need to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[float | None, bool]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """Happens before each look."""

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        assert len(self.waits) < 100, "it goes round for ever"
        self.meanwhile()
        self.waits.append((timeout, bool(predicate())))
        return self.waits[-1][1]


class Stuck(HelperThread):
    """Does not end in time."""

    limit_s = 0.0

    def join(self, timeout_s: float) -> bool:
        self.limit_s = timeout_s
        return False


class Tools(ScriptedTools):
    """With a condition that waits for nothing. Notes the names of threads, and where their errors go."""

    def __init__(self, client: ScriptedClient) -> None:
        super().__init__(client)
        self.helpers: dict[str, Callable[[BaseException], None]] = {}

    def helper(self, name: str, on_error: Callable[[BaseException], None]) -> HelperThread:
        self.helpers[name] = on_error
        return Stuck(name, on_error)

    def condition(self) -> Impatient:
        return Impatient()


class Rounds:
    """A reader of the partition 0 without its thread."""

    def __init__(
        self,
        restored: SourcePositions = NEW,
        parts: Iterable[TopicPartition] = (P0,),
        linger_s: float = LINGER_S,
        gather_times: GatherTimes = AT_ONCE,
        **changes: Any,
    ) -> None:
        self.client: Any = ScriptedClient()
        self.client.stable |= {P0: 9, P1: 5}
        self.tools = Tools(self.client)
        self.tools.linger_s, self.tools.gather_times = linger_s, gather_times
        self.woken = 0
        operator = source_operator("127.0.0.1:9", "orders", **changes)
        self.reader = ConsumerThread(operator, list(parts), restored, "group", self._wake, self.tools)
        self.fetcher = MessageFetcher(self.client)

    def _wake(self) -> None:
        self.woken += 1

    @property
    def condition(self) -> Any:
        return self.reader._changed

    def prepare(self) -> None:
        self.reader._prepare(self.client, self.fetcher)

    def read(self) -> list[bytes | None]:
        """What is pending after one more round."""
        self.reader._read(self.client, self.fetcher)
        return list(self.reader._pending.records.values)

    def pass_time(self, seconds: float) -> None:
        self.tools.set_clock.now += seconds


def records_of(*sizes: int) -> KafkaMessages:
    return KafkaMessages([ck.Message(topic="orders", value=b"x" * size) for size in sizes])


# -- the beginning ---------------------------------------------------------------------------------------------------


def test_the_client_reads_committed_records_only_and_never_decides_where() -> None:
    one = Rounds(kafka={"isolation.level": "read_uncommitted", "bootstrap.servers": "b"})
    one.reader._open()
    owned = {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "group.id": "group",
    }
    assert {name: one.tools.config[name] for name in owned} == owned
    assert one.tools.config["bootstrap.servers"] == "b"
    one.tools.on_error(UNKNOWN)
    assert one.reader._outage.last == UNKNOWN.str(), "what the client reports is known"


def refuse(*_: object) -> Any:
    raise ck.KafkaException(ck.KafkaError(ck.KafkaError._INVALID_ARG))


def test_settings_without_files_that_the_client_refuses_are_tried_once() -> None:
    one = Rounds()
    tools: Any = one.tools
    tools.consumer = refuse
    with pytest.raises(SourceFailed, match=r"^source orders: the Kafka client rejects its settings"):
        one.reader._open()
    assert one.condition.waits == []


def test_a_reader_that_is_closed_while_files_are_replaced_waits_no_longer() -> None:
    one = Rounds(kafka={"ssl.key.location": "/no/key.pem"})
    tools: Any = one.tools
    tools.consumer = refuse
    one.condition.meanwhile = lambda: setattr(one.reader._waits, "stopping", len(one.condition.waits) == 1)
    with pytest.raises(SourceFailed):
        one.reader._open()
    assert one.condition.waits == [(module._RETRY_SECONDS, False), (module._RETRY_SECONDS, True)]


def test_partitions_that_no_checkpoint_knows_are_read_from_where_their_logs_begin() -> None:
    one = Rounds(SourcePositions(NAME, ((P0, 7),)), (P0, P1), until="never")
    one.client.first[P1] = 3
    one.prepare()
    assert one.client.assigned == {P0: 7, P1: 3}
    assert one.client.asked == [P1]
    found = one.reader.initial()
    assert found is not None
    assert (found.next_offsets, found.end_offsets) == ({P0: 7, P1: 3}, {})
    assert one.woken == 1


def test_a_partition_that_has_come_after_the_end_of_a_bounded_read_is_no_part_of_it() -> None:
    one = Rounds(SourcePositions(NAME, ((P0, 7),), ((P0, 9),)), (P0, P1), until="latest")
    one.client.first[P1] = 3
    one.prepare()
    found = one.reader.initial()
    assert found is not None
    assert (found.next_offsets, found.end_offsets) == ({P0: 7, P1: 3}, {P0: 9, P1: 3})


def test_brokers_that_are_away_at_the_beginning_are_asked_again() -> None:
    one = Rounds()
    one.client.away = True

    def wait() -> None:
        one.pass_time(60.0)
        one.client.away = len(one.condition.waits) < 2

    one.condition.meanwhile = wait
    one.prepare()
    assert one.condition.waits == [(module._RETRY_SECONDS, False)] * 3
    assert one.client.assigned == {P0: 0}


def test_brokers_that_say_nothing_in_time_are_named() -> None:
    one = Rounds()
    words = r"^source orders: no answer from 127.0.0.1:9 in 3 s \(no error was reported\); check the address"
    with pytest.raises(SourceUnavailable, match=words) as failure:
        one.reader.wait_initial(3.0)
    assert one.condition.waits == [(3.0, False)]
    assert failure.value.fields == {"source": "orders"}
    one.prepare()
    assert one.reader.wait_initial(3.0).next_offsets == {P0: 0}
    assert one.condition.waits[1:] == [(3.0, True)], "they are known"
    one.reader._fail(SourceUnavailable("away"))
    with pytest.raises(SourceUnavailable, match="away"):
        one.reader.wait_initial(3.0)
    assert one.condition.waits[2:] == [(3.0, True)]


def test_a_reader_that_is_closed_while_brokers_are_away_waits_no_longer() -> None:
    one = Rounds()
    one.client.away = True
    one.condition.meanwhile = lambda: setattr(one.reader._waits, "stopping", True)
    one.prepare()
    assert one.condition.waits == [(module._RETRY_SECONDS, True)]
    assert one.client.assigned == {}


def test_a_topic_that_was_just_made_is_waited_for_and_one_that_is_not_there_is_named() -> None:
    one = Rounds()
    tries = []

    def bounds(*_: object, **__: object) -> tuple[int, int]:
        tries.append(one.tools.set_clock.now)
        raise ck.KafkaException(UNKNOWN)

    one.client.get_watermark_offsets = bounds
    one.condition.meanwhile = lambda: one.pass_time(2.0)
    with pytest.raises(SourceFailed, match=r"^source orders: topic orders does not exist at the brokers"):
        one.prepare()
    assert tries == [100.0, 102.0, 104.0, 106.0]


# -- room, and what is handed over -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "size_bytes", "mean_bytes", "room"),
    [
        ([], 0, 256, MAX_RECORDS),
        ([1, 1], 2, 256, MAX_RECORDS - 2),
        ([], 0, MIB, MAX_PENDING_BYTES // MIB + 1),
        ([1], MAX_PENDING_BYTES - MIB, MIB, 2),
        ([1], MAX_PENDING_BYTES - 1, MIB, 1),
        ([1], MAX_PENDING_BYTES, MIB, 0),
    ],
)
def test_there_is_room_for_so_many_records_and_about_so_many_bytes(
    sizes: list[int], size_bytes: int, mean_bytes: int, room: int
) -> None:
    pace = RoundPace()
    pace.note(1, mean_bytes, 0.0)
    assert pace.room(Pending(records_of(*sizes), {}, size_bytes)) == room


def test_no_more_is_read_than_there_is_room_for_and_the_room_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RECORDS", 3)
    one = Rounds()
    one.client.put(P0, b"a", b"b")
    assert one.read() == [b"a", b"b"]
    one.client.put(P0, b"c", b"d")
    one.condition.waits.clear()
    assert one.read() == [b"a", b"b", b"c"], "there was room for one"
    assert one.condition.waits[0][1], "which is enough"
    one.condition.waits.clear()
    assert one.read() == [b"a", b"b", b"c"]
    ((seconds, had_room),) = one.condition.waits
    assert not had_room
    assert seconds is not None, "whoever pauses a partition, or replaces certificates, is heard meanwhile"
    assert one.reader.take(1) is not None
    assert one.read() == [b"b", b"c", b"d"]


def test_a_reader_that_is_to_end_reads_no_more() -> None:
    one = Rounds()
    one.reader._waits.stopping = True
    one.client.put(P0, b"a")
    assert one.read() == []
    assert [met for _, met in one.condition.waits] == [True]


def test_the_loop_is_woken_by_the_first_of_what_it_has_to_look_at() -> None:
    one = Rounds()
    one.reader._hand_over(NO_RECORDS, {})
    assert one.woken == 0
    one.reader._hand_over(records_of(100, 300), {})
    assert one.woken == 1
    one.reader._hand_over(records_of(50), {P0: 3})
    assert one.woken == 1, "it was woken, and has not looked yet"
    taken = one.reader.take(10)
    assert taken is not None
    assert (taken.records.sizes, taken.size_bytes, taken.ends) == ([100, 300, 50], 450, {P0: 3})
    one.reader._hand_over(NO_RECORDS, {P0: 4})
    assert one.woken == 2


def test_room_is_by_the_size_of_the_records_that_came_last() -> None:
    one = Rounds()
    one.reader._hand_over(records_of(MIB, MIB), {})
    assert one.reader.take(10) is not None
    assert one.reader._pace.room(Pending()) == MAX_PENDING_BYTES // MIB + 1


def test_small_rounds_are_handed_over_once_per_linger() -> None:
    pace = RoundPace(0.04)
    pace.note(1, 100, 10.0)
    assert pace.linger_seconds(10.0) == pytest.approx(0.04)
    assert pace.linger_seconds(10.01) == pytest.approx(0.03)
    assert pace.linger_seconds(10.029) == pytest.approx(0.011)
    assert pace.linger_seconds(10.031) == 0.0, "one more wake-up for nearly nothing"


def test_the_first_record_after_a_pause_is_not_held_back() -> None:
    pace = RoundPace(0.04)
    assert pace.linger_seconds(0.0) == 0.0
    pace.note(1, 100, 10.0)
    assert pace.linger_seconds(10.04) == pytest.approx(0.0)
    assert pace.linger_seconds(3600.0) == 0.0


@pytest.mark.parametrize(
    ("records", "size_bytes", "plenty"),
    [
        (FEW_PER_SECOND // 25, 1, True),
        (FEW_PER_SECOND // 25 - 1, 1, False),
        (1, FEW_BYTES_PER_SECOND // 25 + 1, True),
        (1, FEW_BYTES_PER_SECOND // 25 - 1, False),
    ],
)
def test_a_backlog_is_not_held_back_be_it_of_many_or_of_large_records(
    records: int, size_bytes: int, plenty: bool
) -> None:
    pace = RoundPace(0.04)
    pace.note(records, size_bytes, 10.0)
    assert (pace.linger_seconds(10.0) == 0.0) is plenty


@pytest.mark.parametrize(
    ("interval_ms", "linger_s"), [(10, 0.005), (100, 0.005), (400, 0.02), (1000, 0.05), (60_000, 0.05)]
)
def test_records_wait_for_a_small_part_of_the_checkpoint_interval(interval_ms: int, linger_s: float) -> None:
    assert derive_linger_s(interval_ms, exactly_once=True) == linger_s
    assert derive_linger_s(interval_ms, exactly_once=False) == LINGER_S, "where results are visible at once"


@pytest.mark.parametrize(
    ("interval_ms", "first_s", "later_s"), [(10, 0.002, 0.01), (100, 0.02, 0.1), (1000, 0.2, 0.2), (60_000, 0.2, 0.2)]
)
def test_the_first_records_gather_for_a_fifth_of_the_interval(interval_ms: int, first_s: float, later_s: float) -> None:
    assert derive_gather_times(interval_ms, exactly_once=True) == (first_s, later_s)
    assert derive_gather_times(interval_ms, exactly_once=False) == AT_ONCE, "where results are visible at once"


def gathering(**changes: Any) -> Rounds:
    """A reader that has read two records, of 50 bytes, at two times."""
    one = Rounds(**{"until": "never", "gather_times": GatherTimes(0.2, 0.5), **changes})
    one.reader._hand_over(records_of(20), {})
    one.pass_time(0.125)
    one.reader._hand_over(records_of(30), {})
    return one


def test_the_loop_is_woken_for_records_once_they_have_gathered() -> None:
    one = gathering()
    assert (one.reader.take(10), one.woken) == (None, 0)
    assert one.reader._wake_if_due() == pytest.approx(0.075)
    one.pass_time(0.0751)
    one.reader._wake_if_due()
    one.reader._wake_if_due()
    assert one.woken == 1
    taken = one.reader.take(1)
    assert taken is not None
    assert taken.records.sizes == [20]
    taken = one.reader.take(1)
    assert taken is not None, "the rest of them gathers no longer"
    assert taken.records.sizes == [30]
    one.reader._hand_over(records_of(5), {})
    assert (one.reader.take(10), one.woken) == (None, 1)


def test_only_the_first_batch_behind_a_barrier_gathers_for_the_shorter_time() -> None:
    one = gathering()
    one.pass_time(0.0751)
    assert one.reader.take(10) is not None
    one.reader._hand_over(records_of(5), {})
    assert one.reader._wake_if_due() == pytest.approx(0.5)
    one.reader.release()
    assert one.reader.take(10) is not None
    one.reader._hand_over(records_of(5), {})
    assert one.reader._wake_if_due() == pytest.approx(0.2)


def test_a_barrier_releases_what_gathers() -> None:
    one = gathering()
    assert one.reader.release()
    assert not one.reader.release(), "it is released"
    taken = one.reader.take(10)
    assert taken is not None
    assert taken.records.sizes == [20, 30]
    assert not one.reader.release(), "there is nothing"


def test_a_barrier_also_takes_what_waits_in_the_client_for_others() -> None:
    one = gathering()

    def trigger() -> None:
        one.condition.meanwhile = read
        assert one.reader.release()

    def read() -> None:
        one.condition.meanwhile = lambda: None
        one.reader._hand_over(records_of(5), {})

    one.condition.meanwhile = trigger
    one.reader._linger()
    waits = [seconds for seconds, met in one.condition.waits if met]
    assert waits == [RELEASE_S_MAX, pytest.approx(LINGER_S)], "for the reader, which then waits no longer"
    taken = one.reader.take(10)
    assert taken is not None
    assert taken.records.sizes == [20, 30, 5]


def test_a_barrier_does_not_wait_for_a_reader_that_fails() -> None:
    one = gathering()
    one.reader._waits.lingering = True
    one.condition.meanwhile = lambda: one.reader._fail(SourceFailed("gone", source=NAME))
    one.reader.release()
    assert one.condition.waits == [(RELEASE_S_MAX, True)]


@pytest.mark.parametrize("sizes", [[1] * GATHERED_RECORDS, [GATHERED_BYTES]])
def test_plenty_does_not_gather(sizes: list[int]) -> None:
    one = gathering()
    one.reader._hand_over(records_of(*sizes), {})
    assert one.woken == 1
    assert one.reader.take(MAX_RECORDS) is not None


def test_records_in_front_of_a_failure_do_not_gather() -> None:
    one = gathering()
    one.reader._fail(SourceFailed("gone", source=NAME))
    assert one.woken == 1
    assert one.reader.take(10) is not None
    with pytest.raises(SourceFailed):
        one.reader.take(10)


@pytest.mark.parametrize(
    "changes",
    [
        {"until": "latest"},
        {"planned": Planned(carries=(Requirement.EVENT_TIME,))},
        {"planned": Planned(catches_up=True)},
    ],
)
def test_where_ends_of_partitions_matter_records_do_not_gather(changes: dict[str, Any]) -> None:
    one = gathering(**changes)
    assert one.woken == 1
    assert one.reader.take(10) is not None


def test_records_gather_at_the_broker_but_at_the_end_of_a_bounded_read() -> None:
    waits = {}
    for until in ("never", "latest"):
        one = Rounds(until=until, linger_s=0.04)
        one.reader._open()
        waits[until] = one.tools.config["fetch.wait.max.ms"]
        one.reader._hand_over(records_of(1), {})
        waits[f"{until} here"] = round(one.reader._pace.linger_seconds(one.tools.clock.monotonic()), 3)
    assert waits == {"never": "40", "never here": 0.04, "latest": "20", "latest here": LINGER_S}


def test_a_question_whether_a_partition_is_caught_up_waits_for_no_fetch_and_no_linger() -> None:
    """The broker answers the requests of a connection one after the other."""
    one = Rounds(until="never", linger_s=0.04, planned=Planned(carries=(Requirement.EVENT_TIME,)))
    one.reader._open()
    assert one.tools.config["fetch.wait.max.ms"] == "20"
    one.reader._hand_over(records_of(1), {})
    one.reader._linger()
    one.reader.ask({P0: Due(9, 1)})
    one.reader._linger()
    assert [met for _, met in one.condition.waits] == [False, True]


def test_after_a_small_round_records_are_gathered_for_a_moment() -> None:
    one = Rounds()
    one.reader._linger()
    assert one.condition.waits == [], "the first one is not held back"
    one.reader._hand_over(records_of(1), {})
    one.pass_time(LINGER_S / 4)
    one.reader._linger()
    ((seconds, _),) = one.condition.waits
    assert seconds == pytest.approx(LINGER_S * 3 / 4)
    one.reader._waits.stopping = True
    one.reader._linger()
    assert one.condition.waits[1][1], "but not by one that is to end"


def test_the_loop_is_woken_for_a_partition_that_is_caught_up() -> None:
    one = Rounds()
    one.reader.watch({P0: 9})
    one.pass_time(STAYS_SECONDS)
    one.reader._find_caught_up(one.client)
    assert one.reader._pending.caught_up == {P0: Due(9)}
    assert one.woken == 1


def test_brokers_that_are_away_are_asked_again_whether_a_partition_is_caught_up() -> None:
    one = Rounds()
    one.reader.watch({P0: 9})
    one.client.away = True
    one.pass_time(STAYS_SECONDS)
    one.reader._find_caught_up(one.client)
    assert (one.reader._pending.caught_up, one.woken) == ({}, 0)
    assert "away" in one.reader._outage.last
    one.client.away = False
    one.pass_time(AGAIN_SECONDS)
    one.reader._find_caught_up(one.client)
    assert one.reader._pending.caught_up == {P0: Due(9)}


# -- partitions that are added ---------------------------------------------------------------------------------------


def metadata_of(topics: Mapping[str, Iterable[int]], error: ck.KafkaError | None = None) -> Any:
    """What a broker knows of topics."""
    return SimpleNamespace(
        topics={name: SimpleNamespace(error=error, partitions=set(numbers)) for name, numbers in topics.items()}
    )


def test_an_added_partition_is_read_from_its_first_offset_as_soon_as_the_broker_knows_it() -> None:
    one = Rounds()
    known: set[int] = {0}
    assigned: list[tuple[str, int, int]] = []
    one.client.list_topics = lambda name, timeout: metadata_of({name: known})
    one.client.incremental_assign = lambda parts: assigned.extend((p.topic, p.partition, p.offset) for p in parts)
    one.reader.add([P1])
    for _ in range(2):
        one.read()
        one.pass_time(module._RETRY_SECONDS)
        assert assigned == []
    known.add(1)
    one.read()
    one.pass_time(module._RETRY_SECONDS)
    one.read()
    assert assigned == [("orders", 1, 0)]


def test_a_broker_that_does_not_know_the_topic_of_an_added_partition_is_asked_again_after_a_moment() -> None:
    one = Rounds()
    asked: list[str] = []

    def list_topics(name: str, timeout: float) -> Any:
        asked.append(name)
        if len(asked) == 1:
            raise ck.KafkaException(UNKNOWN)
        return metadata_of({name: ()}, UNKNOWN)

    one.client.list_topics = list_topics
    one.client.incremental_assign = lambda parts: None
    one.reader.add([P1])
    for round_number in range(1, 4):
        for _ in range(2):
            one.reader._assign_added(one.client, one.fetcher)
        assert asked == ["orders"] * round_number
        one.pass_time(module._RETRY_SECONDS)
    assert one.reader._outage.last == UNKNOWN.str()


def test_a_topic_that_may_not_be_read_is_named_among_those_of_the_source() -> None:
    one = Rounds(topics=("orders", "returns"))
    forbidden = ck.KafkaError(ck.KafkaError.TOPIC_AUTHORIZATION_FAILED)
    one.client.list_topics = lambda name, timeout: metadata_of({name: ()}, forbidden if name == "returns" else None)
    one.client.incremental_assign = lambda parts: None
    one.reader.add([P1, TopicPartition("returns", 0)])
    with pytest.raises(SourceFailed, match=r"^source orders: topic returns: .*; grant READ and DESCRIBE"):
        one.read()


# -- what ends a reader ----------------------------------------------------------------------------------------------


def test_a_topic_that_one_broker_does_not_know_is_waited_for() -> None:
    """Whether it is gone is the daemon's to find out."""
    one = Rounds()
    one.client.put(P0, b"a")
    for _ in range(100):
        assert one.reader._errors.take_events(one.client, [FetchEvent(P0, 0, UNKNOWN)]) == {}
        one.pass_time(1.0)
    assert one.reader._outage.last == UNKNOWN.str()
    assert one.read() == [b"a"]


BAD_BATCH = ck.KafkaError(ck.KafkaError._BAD_COMPRESSION)


def test_a_batch_that_stays_damaged_holds_its_partition_only(caplog: pytest.LogCaptureFixture) -> None:
    one = Rounds(parts=(P0, P1), kafka={"fetch.error.backoff.ms": "100000"})
    one.client.put(P0, b"a")
    for _ in range(3):
        one.client.fail(P0, 1, BAD_BATCH.code())
        one.client.put(P1, b"b")
        one.read()
        one.pass_time(100.0)
    assert list(one.reader._pending.records.values) == [b"a", b"b", b"b", b"b"]
    assert [record.levelname for record in caplog.records] == ["ERROR"], "the client tries again so seldom"
    assert "orders[0]: the batch at offset 1 could not be read for 100 s" in caplog.text


def test_what_came_before_a_batch_that_would_be_passed_over_is_handed_over() -> None:
    one = Rounds(parts=(P0, P1))
    one.client.put(P0, b"a")
    one.client.put(P1, b"b")
    one.client.fail(P0, 1, ck.KafkaError._NOT_IMPLEMENTED)
    one.client.put(P0, b"passed over, and then this")
    with pytest.raises(SourceFailed, match=r"^source orders: orders\[0\]: the batch at offset 1 cannot be read: "):
        one.read()
    assert list(one.reader._pending.records.values) == [b"a", b"b"]


def test_an_error_of_no_partition_is_of_no_place(caplog: pytest.LogCaptureFixture) -> None:
    one = Rounds()
    for _ in range(100):
        one.reader._errors.take_events(one.client, [FetchEvent(TopicPartition("", 0), NO_OFFSET, BAD_BATCH)])
        one.pass_time(0.5)
    assert " read " not in caplog.text


def test_a_reader_that_does_not_end_is_waited_for_so_long_and_named(caplog: pytest.LogCaptureFixture) -> None:
    one = Rounds()
    one.reader.close(7.0)
    thread: Any = one.reader._thread
    assert thread.limit_s == 7.0
    assert [record.getMessage() for record in caplog.records] == [
        "source orders: its reader did not end within 7 s, and is abandoned"
    ]


def test_what_nobody_foresaw_is_told_with_the_name_of_the_source() -> None:
    one = Rounds()
    one.tools.helpers["source-orders"](ZeroDivisionError("by zero"))
    with pytest.raises(SourceUnavailable, match=r"^source orders: ZeroDivisionError: by zero$") as failure:
        one.reader.initial()
    assert failure.value.fields == {"source": "orders"}


@pytest.mark.parametrize(
    ("offset", "on_lost_input", "error", "words"),
    [
        (4, "fail", SourceFailed, r"offset 4 is gone, .* \[4, 6\); restore the data, or accept"),
        (4, ON_LOST_CONTINUE, SourceUnavailable, r"offset 4 is gone, .* \[4, 6\); on_lost_input is continue: the next"),
        (10, "fail", SourceFailed, r"offset 10 is past the end of the log \(6 to 9\)"),
        (10, ON_LOST_CONTINUE, SourceFailed, r"offset 10 is past the end of the log \(6 to 9\)"),
        (6, ON_LOST_CONTINUE, SourceFailed, r"offset 6 was past the end of the log, which is 6 to 9 now: it was"),
    ],
)
def test_lost_input_stops_the_source_unless_the_file_says_to_continue(
    offset: int, on_lost_input: str, error: type[Exception], words: str
) -> None:
    one = Rounds(on_lost_input=on_lost_input)
    one.client.first[P0] = 6
    lost = FetchEvent(P0, offset, ck.KafkaError(ck.KafkaError._AUTO_OFFSET_RESET))
    with pytest.raises(error, match=rf"^source orders: orders\[0\]: {words}"):
        one.reader._errors.take_events(one.client, [lost])


CUT_OFF = "Partition log truncation detected at offset 700: broker end offset is 600. Reset to INVALID.: "
NO_EPOCH = "No epoch found less or equal to offset 4: broker end offset is -1: "


@pytest.mark.parametrize("on_lost_input", ["fail", ON_LOST_CONTINUE])
@pytest.mark.parametrize(("offset", "words"), [(NO_OFFSET, CUT_OFF), (4, NO_EPOCH)])
def test_a_log_that_was_cut_off_stops_the_source_and_is_no_lost_input(
    offset: int, words: str, on_lost_input: str
) -> None:
    """Nobody can say what is missing, and its bounds say nothing: it may have grown again."""
    one = Rounds(on_lost_input=on_lost_input)
    one.client.first[P0] = 6
    words += ck.KafkaError(ck.KafkaError._LOG_TRUNCATION).str()
    cut = FetchEvent(P0, offset, ck.KafkaError(ck.KafkaError._AUTO_OFFSET_RESET, words))
    told = re.escape("source orders: orders[0]: its log was truncated before the position of this source: ")
    with pytest.raises(SourceFailed, match=f"^{told}.*{re.escape(words)}"):
        one.reader._errors.take_events(one.client, [cut])
    assert one.client.asked == []
