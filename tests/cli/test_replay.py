"""What letters are written again with."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Self, cast

import confluent_kafka as ck
import msgspec
import pytest

from tests.support import clients
from tidegate.cli import replay
from tidegate.cli.replay import OWN, derive_replay_properties
from tidegate.clock import SYSTEM_CLOCK
from tidegate.formats import dead_letters as letters
from tidegate.formats.dead_letters.letter import DeadLetter, read_dead_letter
from tidegate.ids import MAIN_CLUSTER
from tidegate.kafka.facts import TopicFacts, TopicLimits
from tidegate.plan.replays import Route
from tidegate.sinks.naming import replay_id
from tidegate.sources.dead_letter_topic import DeadLettersRefused, dead_letter_of
from tidegate.sources.topic_reader import CLIENT_LOG


def test_the_queue_has_room_for_the_largest_record() -> None:
    """With a `queue.buffering.max.kbytes` of the pipeline's that was smaller a replay never ended."""
    assert 1024 * int(OWN["queue.buffering.max.kbytes"]) >= int(OWN["message.max.bytes"])


@pytest.mark.parametrize("name", ["socket.timeout.ms", "message.timeout.ms", "delivery.timeout.ms"])
@pytest.mark.parametrize(("given_ms", "used_ms"), [("120000", "60000"), ("30000", "30000")])
def test_a_producer_is_made_with_times_beyond_the_limit_of_its_transactions(
    name: str, given_ms: str, used_ms: str
) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1", name: given_ms}
    properties = derive_replay_properties(kafka, replay_id("shop"))
    assert properties[name] == used_ms
    clients.producer({**properties})


def test_a_replay_makes_no_topic() -> None:
    properties = derive_replay_properties({"bootstrap.servers": "none"}, replay_id("shop"))
    producer = clients.producer({**properties, "test.mock.num.brokers": 1})
    assert producer.list_topics("nowhere", timeout=10).topics["nowhere"].error is not None
    assert not producer.list_topics(timeout=10).topics


class Client:
    """Knows one topic."""

    limits = TopicLimits()

    def __init__(self, kafka: Mapping[str, str]) -> None:
        pass

    def topics(self, names: list[str], timeout_s: float) -> dict[str, TopicFacts]:
        return {name: TopicFacts("id", 1) for name in names if name == "orders"}

    def topic_limits(self, topic: str, timeout_s: float) -> TopicLimits:
        return self.limits

    def close(self) -> None:
        pass


def record_of(letter: DeadLetter, to: str) -> replay.ReplayRecord:
    return replay._derive_record(letter, "dead", to, Route())


def test_a_topic_that_is_not_there_is_refused_by_a_dry_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said how many records would be written, and the replay itself was refused."""
    monkeypatch.setattr(replay, "TransactionClient", Client)
    letter = read_dead_letter(0, 3, None, None, b"v", [(letters.KIND, b"X"), (letters.HEADERS, b"0")])
    assert letter is not None
    with replay._Fitting(cast("Any", SimpleNamespace(topic="dead", kafka={}))) as fitting:
        assert not fitting.refuses(record_of(letter, "orders"))
        with pytest.raises(DeadLettersRefused, match="topic ordres does not exist; choose another with --to"):
            fitting.refuses(record_of(letter, "ordres"))


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("limits", "age_ms", "key", "reason"),
    [
        (
            TopicLimits(before_ms=7 * DAY_MS),
            8 * DAY_MS,
            None,
            "too old for the topic (message.timestamp.before.max.ms, before Kafka 4.0 ",
        ),
        (TopicLimits(before_ms=7 * DAY_MS), 6 * DAY_MS, None, ""),
        (TopicLimits(before_ms=7 * DAY_MS), None, None, ""),  # it gets the time of the replay
        (TopicLimits(after_ms=DAY_MS), -2 * DAY_MS, None, "too new for the topic (message.timestamp.after.max"),
        (TopicLimits(compacted=True), 0, None, "without a key, and the topic is compacted"),
        (TopicLimits(compacted=True), 0, b"k", ""),
        (TopicLimits(batch_bytes=100), 0, None, "too large for the topic (max.message.bytes)"),
    ],
)
def test_a_record_that_the_topic_does_not_take_is_known_before_it_is_written(
    limits: TopicLimits, age_ms: int | None, key: bytes | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka refused it in its transaction, and up to 499 others with it: no replay came past it."""
    monkeypatch.setattr(replay, "TransactionClient", Client)
    monkeypatch.setattr(Client, "limits", limits)
    headers = [(letters.KIND, b"X"), (letters.HEADERS, b"0")]
    if age_ms is not None:
        headers.append((letters.TIMESTAMP, str(SYSTEM_CLOCK.now_ms() - age_ms).encode()))
    letter = read_dead_letter(0, 3, None, key, b"v" * 50, headers)
    assert letter is not None
    with replay._Fitting(cast("Any", SimpleNamespace(topic="dead", kafka={}))) as fitting:
        assert fitting.refuses(record_of(letter, "orders")).startswith(reason)
        assert bool(fitting.refuses(record_of(letter, "orders"))) == bool(reason)


class Broker:
    """The dead-letter topic, what is produced to other topics, and the producer; transactions always succeed."""

    topic = "dead"
    cluster = MAIN_CLUSTER
    kafka: Mapping[str, str] = {}

    def __init__(self, *letters_of: ck.Message) -> None:
        self.dead = list(letters_of)
        self.produced: list[tuple[str, bytes | None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def bounds(self, *, settled: bool) -> dict[int, tuple[int, int]]:
        return {0: (0, len(self.dead))}

    def read(self, bounds: Mapping[int, tuple[int, int]]) -> Iterator[ck.Message]:
        yield from self.dead[: bounds[0][1]]

    def letters(self, bounds: Mapping[int, tuple[int, int]]) -> Iterator[DeadLetter]:
        yield from filter(None, map(dead_letter_of, self.read(bounds)))

    def produce(self, *, topic: str, value: bytes | None, headers: Any, **_: Any) -> None:
        if topic == self.topic:
            self.dead.append(ck.Message(topic, 0, len(self.dead), value=value, headers=headers))
        else:
            self.produced.append((topic, value))

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=[0])})

    def flush(self, *_: object) -> int:
        return 0

    def begin_transaction(self, *_: object) -> None:
        """As `init_transactions`, `poll` and `commit_transaction`: nothing to be done."""

    init_transactions = commit_transaction = poll = begin_transaction


def dead_letter(offset: int, source_offset: int | None, value: bytes, *more: tuple[str, bytes]) -> ck.Message:
    place = [] if source_offset is None else [(letters.OFFSET, str(source_offset).encode()), (letters.PARTITION, b"0")]
    about = [(letters.KIND, b"X"), (letters.TOPIC, b"orders"), (letters.BYTES, letters.ORIGINAL.encode())]
    headers: Any = [(letters.HEADERS, b"0"), *about, *place, *more]
    return ck.Message(topic="dead", partition=0, offset=offset, value=value, headers=headers)


def replayed(broker: Broker, monkeypatch: pytest.MonkeyPatch, *chosen: int, to: str | None = None) -> replay.Replayed:
    """Of the letters at these offsets; of all without. A dry run before it has to count the same."""
    monkeypatch.setattr(replay, "TransactionClient", Client)
    monkeypatch.setattr(replay, "DeadLetterTopic", lambda _: broker)
    monkeypatch.setattr(replay, "find_place", lambda _: None)
    monkeypatch.setattr(ck, "Producer", lambda *_, **__: broker)
    settings = cast("Any", SimpleNamespace(name="shop", kafka={}))
    order = replay.ReplayOrder(lambda one: not chosen or one.offset in chosen, to)
    counted = replay.replay(settings, order._replace(dry_run=True))
    produced = list(broker.produced)
    done = replay.replay(settings, order)
    assert counted == done
    assert broker.produced[: len(produced)] == produced
    assert len(broker.produced) == len(produced) + done.written
    return done


@pytest.mark.parametrize("letters_max", [500, 1])
def test_a_record_with_several_letters_is_written_once(letters_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`explode` gives each bad element of a record its letter: the record came three times, and its good rows, too."""
    monkeypatch.setattr(replay, "DEAD_LETTERS_MAX", letters_max)
    places = [(7, b"a"), (7, b"a"), (8, b"b"), (7, b"a")]
    broker = Broker(*(dead_letter(at, place, value) for at, (place, value) in enumerate(places)))
    assert replayed(broker, monkeypatch) == replay.Replayed(written=2, joined=2)
    assert broker.produced == [("orders", b"a"), ("orders", b"b")]
    assert replayed(broker, monkeypatch) == replay.Replayed(marked=4)
    assert len(broker.produced) == 2


def test_a_record_that_was_written_for_another_letter_is_not_written_by_a_later_replay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(dead_letter(0, 7, b"a"), dead_letter(1, 7, b"a"))
    assert replayed(broker, monkeypatch, 1) == replay.Replayed(written=1)
    assert replayed(broker, monkeypatch, 0) == replay.Replayed(joined=1)
    assert replayed(broker, monkeypatch) == replay.Replayed(marked=2)
    assert broker.produced == [("orders", b"a")]


def test_a_record_that_was_written_elsewhere_is_written_for_another_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(dead_letter(0, 7, b"a"), dead_letter(1, 7, b"a"))
    monkeypatch.setattr(Client, "topics", lambda _, names, __: {name: TopicFacts("id", 1) for name in names})
    assert replayed(broker, monkeypatch, 0, to="mended") == replay.Replayed(written=1)
    assert replayed(broker, monkeypatch) == replay.Replayed(written=1, marked=1)
    assert broker.produced == [("mended", b"a"), ("orders", b"a")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (dead_letter(0, None, b"a"), dead_letter(1, None, b"a")),  # nobody knows whether they are one record
        (dead_letter(0, 7, b"a"), dead_letter(1, 7, b"b")),  # the topic was deleted and created again
        (dead_letter(0, 7, b"a", (letters.TIMESTAMP, b"1")), dead_letter(1, 7, b"a", (letters.TIMESTAMP, b"2"))),
    ],
)
def test_letters_that_may_be_of_two_records_are_both_written(
    one: ck.Message, other: ck.Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker(one, other)
    assert replayed(broker, monkeypatch) == replay.Replayed(written=2)
    assert len(broker.produced) == 2


def test_a_record_of_another_cluster_is_written_to_no_topic_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it one with the record at the same place in the cluster of the letters."""
    of_us = dead_letter(1, 7, b"a", (letters.CLUSTER, b"us"))
    broker = Broker(dead_letter(0, 7, b"a"), of_us)
    done = replayed(broker, monkeypatch)
    ((reason, places),) = done.refused.items()
    assert reason.startswith("orders is in cluster us, the dead letters are in kafka, and no transaction spans both")
    assert (done.written, places) == (1, ["dead[0]@1"])
    monkeypatch.setattr(Client, "topics", lambda _, names, __: {name: TopicFacts("id", 1) for name in names})
    assert replayed(broker, monkeypatch, 1, to="mended") == replay.Replayed(written=1)


def holding(letter: DeadLetter, target: str) -> str:
    """Another source has what failed in `decoded`; what was written to another topic is in nothing."""
    return {"orders": "", "share": "sink copy"}.get(letter.step, "state of total") if target == "orders" else ""


STEPS = {name: (letters.STEP, name.encode()) for name in ("orders", "share", "price")}


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Letters 0 and 3 of a source, 1 and 2 of steps; what is written again ends in an error unless it is expected."""
    steps = ("orders", "share", "price", "orders")
    broker = Broker(*(dead_letter(at, 7 + at, b"a", STEPS[step]) for at, step in enumerate(steps)))
    monkeypatch.setattr(replay, "TransactionClient", Client)
    monkeypatch.setattr(replay, "DeadLetterTopic", lambda _: broker)
    monkeypatch.setattr(replay, "find_place", lambda _: None)
    monkeypatch.setattr(ck, "Producer", lambda *_, **__: broker)
    return broker


SHOP = cast("Any", SimpleNamespace(name="shop", kafka={}, dead_letters=SimpleNamespace(retry_topic=None)))


def test_a_replay_is_refused_whole_where_it_would_repeat_what_others_have(refusing: Broker) -> None:
    """Three of the orders were counted and copied twice."""
    with pytest.raises(DeadLettersRefused) as refused:
        replay.replay(SHOP, replay.ReplayOrder(lambda _: True, holding=holding))
    assert refused.value.message.splitlines() == [
        "nothing was written: records of 2 letters may be in other sinks or states already, and would be there twice",
        "  failed in share, and may be in sink copy (letters dead[0]@1)",
        "  failed in price, and may be in state of total (letters dead[0]@2)",
        (
            "2 other records can be written without repetition: select them with --step, --kind, or --partition and "
            "--offset"
        ),
        "--whole-record writes all of them, and they are processed again",
        "with `retry_topic` in `dead_letters`, a replay continues at the step that failed",
    ]
    assert (refusing.produced, len(refusing.dead)) == ([], 4)


def test_a_dry_run_counts_what_a_replay_is_refused_for(refusing: Broker) -> None:
    done = replay.replay(SHOP, replay.ReplayOrder(lambda _: True, holding=holding, dry_run=True))
    assert (done.written, refusing.produced) == (2, [])
    assert done.repeating == {("share", "sink copy"): ["dead[0]@1"], ("price", "state of total"): ["dead[0]@2"]}


@pytest.mark.parametrize(
    ("order", "written"),
    [
        (replay.ReplayOrder(lambda one: one.step == "orders", holding=holding), 2),
        (replay.ReplayOrder(lambda _: True), 4),  # --whole-record
        (replay.ReplayOrder(lambda _: True, "elsewhere", holding), 4),
    ],
)
def test_what_repeats_nothing_or_is_repeated_knowingly_is_written(
    order: replay.ReplayOrder, written: int, refusing: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "topics", lambda _, names, __: {name: TopicFacts("id", 1) for name in names})
    assert replay.replay(SHOP, order) == replay.Replayed(written=written)
    assert len(refusing.produced) == written


def route(letter: DeadLetter) -> Route:
    """Rows of `share` return to it, and those of `price` fit no more."""
    obstacles = {"orders": Route(), "share": Route("again"), "price": Route("again", "`price` needs `x`")}
    return obstacles[letter.step]


def test_a_letter_of_a_step_goes_to_the_retry_topic_with_all_that_it_has(
    refusing: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letters of the source are written to its topic as ever; the one that fits nothing keeps none of them back."""
    monkeypatch.setattr(Client, "topics", lambda _, names, __: {name: TopicFacts("id", 1) for name in names})
    order = replay.ReplayOrder(lambda _: True, holding=holding, route=route)
    counted = replay.replay(SHOP, order._replace(dry_run=True))
    done = replay.replay(SHOP, order)
    refused = {"`price` needs `x`": ["dead[0]@2"]}
    assert done == counted == replay.Replayed(written=2, resumed=1, refused=refused)
    assert sorted(refusing.produced) == [("again", b"a"), ("orders", b"a"), ("orders", b"a")]
    letter = dead_letter_of(refusing.dead[1])
    assert letter is not None
    record = replay._derive_record(letter, "dead", None, route(letter))
    assert (record.timestamp_ms, record.partition) == (0, 0), "a time of the record could be beyond the retention"
    again = read_dead_letter(0, 0, None, record.key, record.value, record.headers)
    assert again is not None
    assert record.headers[-1] == (letters.REPLAYED_FROM, b"dead[0]@1")
    assert again == msgspec.structs.replace(letter, partition=0, offset=0, written_ms=None, reason=again.reason)
    assert replay.replay(SHOP, order).marked == 3


def test_a_row_is_not_retried_after_its_whole_record_was_written_again(
    refusing: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step has had the row again by then, whatever became of it."""
    refusing.dead[2:] = [dead_letter(2, 8, b"a", STEPS["share"])]
    monkeypatch.setattr(Client, "topics", lambda _, names, __: {name: TopicFacts("id", 1) for name in names})
    assert replay.replay(SHOP, replay.ReplayOrder(lambda one: one.offset == 1)).written == 1
    done = replay.replay(SHOP, replay.ReplayOrder(lambda one: one.offset == 2, route=route))
    assert done == replay.Replayed(joined=1)


def test_a_letter_that_comes_while_the_others_are_looked_at_is_left_out(
    refusing: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bounds(*, settled: bool) -> dict[int, tuple[int, int]]:
        return {0: (0, 4 if settled else 1)}

    monkeypatch.setattr(refusing, "bounds", bounds)
    done = replay.replay(SHOP, replay.ReplayOrder(lambda _: True, holding=holding))
    assert (done.written, len(done.repeating), len(refusing.produced)) == (2, 2, 2)


@pytest.mark.parametrize("place", ["init_transactions", "begin_transaction", "commit_transaction"])
@pytest.mark.parametrize("code", [ck.KafkaError._FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH])
def test_a_replay_that_another_one_has_ended_says_so(
    place: str, code: int, refusing: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fenced(*_: object) -> None:
        raise ck.KafkaException(ck.KafkaError(code))

    monkeypatch.setattr(refusing, place, fenced)
    with pytest.raises(DeadLettersRefused, match="another replay for shop is running"):
        replay.replay(SHOP, replay.ReplayOrder(lambda _: True))
    assert not CLIENT_LOG.isEnabledFor(logging.CRITICAL), "the client calls it a fatal error, on the terminal"
