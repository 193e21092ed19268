"""Records that nobody expected: the pipeline stops with their place, or writes dead letters, or only counts them."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import os
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.support import clients
from tests.support.daemon_process import DaemonProcess
from tests.users.user import User, log_lines, numbers
from tests.waiting import wait_until
from tidegate.cli import replay
from tidegate.cli.main import run_command
from tidegate.config.load import read_pipeline
from tidegate.daemon.http.resources import ResourceQuery, ResourceRefused
from tidegate.daemon.reading.dead_letters import DeadLetterEntry, DeadLetters, make_dead_letters_resource
from tidegate.dev.demo.verify import read_topic
from tidegate.formats.dead_letters import REPLAYED_FROM
from tidegate.formats.dead_letters.letter import DeadLetter
from tidegate.sources.dead_letter_topic import DeadLetterTopic, find_place

pytestmark = pytest.mark.slow

Produced = Sequence[tuple[str, bytes | None]]
"""A kind of failure, empty for none, and the value."""
HEADERS: tuple[tuple[str, bytes | None], ...] = (("h", b"1"), ("h", None), ("trace", b"\xff"))
GOOD = [b'{"id": 1, "n": 1}', b'{"id": 2, "n": 2}']


def order(number: int, **fields: Any) -> bytes:
    return json.dumps({"id": number, "n": 2, **fields}).encode()


def moment(seconds: float) -> str:
    """A moment as many seconds from now."""
    return (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)).isoformat()


BAD: list[tuple[str, bytes | None]] = [
    ("MALFORMED_JSON", b'{"id": 9, "n": '),
    ("EMPTY_VALUE", b""),
    ("NULL_VALUE", None),
    ("WRONG_TYPE", b'{"id": "nine", "n": 1}'),
    ("WRONG_TYPE", b'{"id": 9, "n": "' + b"x" * 10_000_000 + b'"}'),
    ("WRONG_TYPE", order(9, unread="a declared column that no step reads (X19)")),
    ("OUT_OF_RANGE", b'{"id": 9, "n": 3000000000}'),
    ("NOT_UTF8", b'{"id": 9, "n": 1, "s": "\xff\xfe"}'),
    ("DIVIDE_BY_ZERO", order(9, n=0)),
    ("ARITHMETIC_OVERFLOW", order(9, n=2_000_000_000)),
    ("CAST_INVALID_INPUT", order(9, t="seven")),
    ("RESULT_TOO_LARGE", order(9, s="x" * 50_000)),  # X15: 10,000 times that, and three times that
    ("RECORD_TOO_LARGE", order(9, s="x" * 50)),  # X12: 1.5 MB
    ("TIMESTAMP_OUT_OF_RANGE", order(9, at=moment(1e6))),  # X11
    ("TIMESTAMP_NOT_STORABLE", order(9, at="1969-12-31T23:59:59Z")),
]
"""Orders of each kind that is counted."""
LARGE = [order(9, s="x" * 500)] * 24
"""X15: 24 records that become 15 MB each, which is less than a value may have, but all of them together are 360 MB."""
PEAK_MB_MAX = 600


def of_all_kinds(user: User) -> tuple[str, str, str, str]:
    """Orders with text, time and arithmetic, and raw words whose text is the key of a compacted topic.

    Orders that fail become dead letters, words are skipped. Topics: orders, kept, words, last.
    """
    orders, _ = user.numbers(bad_records="dead-letter", until="never")
    user.document["dead_letters"] = {"topic": user.topic("dead", 2)}
    words, last = user.topic("words"), user.topic("last", config={"cleanup.policy": "compact"})
    kept = user.topic("kept", config={"retention.ms": "-1", "message.timestamp.after.max.ms": "600000"})
    user.allow_values(orders, 20_000_000)
    sources, sinks = user.document["sources"], user.document["sinks"]
    schema = {"id": "bigint", "n": "int", "s": "string", "t": "string", "at": "timestamp", "unread": "int"}
    sources["numbers"]["schema"] = schema
    sources["words"] = {"topic": words, "format": "raw", "bad_records": "skip", "metadata": {"key": "k"}}
    columns = {"id": "id", "m": "10 div n", "o": "n + 2000000000", "t": "cast(t as int)", "at": "at"}
    user.document["steps"] = [
        {"name": "shown", "from": "numbers", "select": {**columns, "s": "repeat(repeat(s, 10000), 3)"}},
        {
            "name": "loud",
            "from": "words",
            "select": {"word": "upper(value)", "place": "offset", "p": "if(cast(value AS string) = 'far', 5, 0)"},
        },
    ]
    sinks["shown_out"] |= {"topic": kept, "timestamp": "at"}
    sinks["loud_out"] = {"from": "loud", "topic": last, "key": "word", "partition": "p"}
    sinks["loud_out"]["headers"] = {"pass": "all", "add": {"by": "'tidegate'"}}
    return orders, kept, words, last


def counts(daemon: DaemonProcess) -> dict[str, float]:
    metric = re.compile(r'tidegate_bad_records_total\{.*reason="([^"]+)",.*step="([^"]+)".*\} (\S+)')
    found = metric.findall(daemon.http("/metrics")[1])
    return {f"{step} {kind}": float(count) for kind, step, count in found}


def peak_mb(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def load() -> list[tuple[str, bytes]]:
    """Orders of which one in a hundred is bad, with its kind."""
    bad = {0: ("MALFORMED_JSON", b"bad"), 50: ("DIVIDE_BY_ZERO", order(50, n=0))}
    good = {"t": "7", "at": moment(-60)}
    return [bad.get(number % 100, ("", order(number, **good))) for number in range(1000, 3000)]


def ids_of(produced: Produced) -> list[int]:
    """Of the good ones."""
    return [json.loads(value or b"")["id"] for kind, value in produced if not kind]


def letters_of(user: User) -> list[DeadLetter]:
    """Partition by partition."""
    with DeadLetterTopic(find_place(read_pipeline(user.write(), {}).settings)) as topic:
        return list(topic.letters(topic.bounds()))


def check_letters(user: User, orders: str, produced: Produced) -> None:
    """C: bytes, order and count of the letters are exact."""
    letters = letters_of(user)
    assert all((one.topic, one.source_partition, one.timestamp_ms is None) == (orders, 0, False) for one in letters)
    found = [(one.source_offset, one.kind, one.value, one.known) for one in letters]
    assert sorted(found, key=lambda one: one[0] or 0) == [
        (place, kind, *((value, "original") if len(value or b"") < 1_000_000 else (None, "too-large")))
        for place, (kind, value) in enumerate(produced)
        if kind
    ]
    early = [one for one in letters if (one.source_offset or 0) < 2 * len(BAD) + len(LARGE)]
    assert {one.headers for one in early} == {HEADERS}
    for step in {one.step for one in letters}:
        places = [one.source_offset for one in letters if one.step == step]
        assert places == sorted(places, key=lambda place: place or 0), step
    (bad,) = [one for one in letters if one.kind == "TIMESTAMP_NOT_STORABLE"]
    assert json.loads(bad.row or "")["at"] == "1969-12-31T23:59:59Z"


def read_shown(user: User) -> DeadLetters:
    """Asks again as the page does: on a busy machine the process may need longer than it has for one answer."""
    resource = make_dead_letters_resource(read_pipeline(user.write(), {}), ())
    answers: list[DeadLetters] = []

    async def read() -> Any:
        return await resource.read(ResourceQuery())

    def is_complete() -> bool:
        try:
            answers.append(asyncio.run(read()))
        except ResourceRefused as refused:
            assert refused.refusal.code == "too-slow", refused
            return False
        return answers[-1].complete

    wait_until(is_complete, "all letters are shown")
    return answers[-1]


def check_shown(user: User) -> list[DeadLetterEntry]:
    """The daemon shows the newest letters, which a process of its own reads."""
    shown = read_shown(user)
    every = sorted(letters_of(user), key=lambda one: (one.written_ms or 0, one.partition, one.offset), reverse=True)
    newest = every[: len(shown.letters)]
    assert len(newest) == min(len(every), 100)
    assert [(one.partition, one.offset, one.step, one.kind, one.reason) for one in shown.letters] == [
        (one.partition, one.offset, one.step, one.kind, one.message) for one in newest
    ]
    sizes = [None if one.value is None else len(one.value) for one in newest]
    assert [one.payload.size_bytes for one in shown.letters] == sizes
    return shown.letters


def check_replay(user: User, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, although the first replay dies with its transaction open, and the second one in the middle."""
    again = user.topic("again", config={"max.message.bytes": "700"})  # of a batch: each record fits alone
    file = str(user.write())
    wanted = [one.value for one in letters_of(user) if one.step == "numbers" and one.whole]
    arguments = ["dead-letters", "replay", file, "--step", "numbers", "--to", again]
    assert run_command(["dead-letters", "list", file, "--limit", "0"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "MALFORMED_JSON" in line]
    assert line.split()[:5] == ["numbers", "MALFORMED_JSON", f"{user.name}-in", "21", "21"]
    monkeypatch.setattr(replay, "DEAD_LETTERS_MAX", 8)
    for commits in (0, 2):
        with monkeypatch.context() as dying:
            left = iter(range(commits))
            commit = replay._Writer._commit

            def commit_or_die(self: Any, left: Iterator[int] = left, commit: Any = commit) -> None:
                next(left)  # StopIteration ends the command as a kill would: without a word to the broker
                commit(self)

            dying.setattr(replay._Writer, "_commit", commit_or_die)
            with pytest.raises(StopIteration):
                run_command(arguments)
    capsys.readouterr()
    assert run_command([*arguments, "--dry-run"]) == 0
    assert run_command(arguments) == 0
    assert run_command(arguments) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{len(wanted) - 16} records would be written again"
    assert said[3] == f"{len(wanted) - 16} records were written again"
    assert said[6:8] == ["0 records were written again", f"{len(wanted)} letters had been replayed before"]
    assert [value for (rows,) in [read_topic(user.bootstrap, again)] for _, value in rows] == [
        value or b"" for value in wanted
    ]


def check_replay_of_large_records(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """What the topic does not take stays open, and holds no other letter back."""
    narrow = user.topic("narrow", config={"max.message.bytes": "2000"})
    kinds = ["--kind", "DIVIDE_BY_ZERO", "--kind", "RESULT_TOO_LARGE"]
    (large,) = [one for one in letters_of(user) if one.kind == "RESULT_TOO_LARGE"]
    arguments = ["dead-letters", "replay", str(user.write()), *kinds, "--to", narrow]
    capsys.readouterr()
    assert run_command(arguments) == 1
    written, refused = capsys.readouterr().out.splitlines()
    assert written == "21 records were written again"
    assert refused.startswith("1 record not written: ")
    assert f"{user.name}-dead[{large.partition}]@{large.offset}" in refused

    def is_known() -> bool:
        assert run_command([*arguments, "--dry-run"]) == 1
        told = capsys.readouterr().out.splitlines()[:2]
        return told == ["0 records would be written again", "21 letters had been replayed before"]

    wait_until(is_known, "the markers of the transaction, which the broker writes after the commit is answered")


def check_replay_to_its_topic(user: User, orders: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The record is as it was, in its partition, with one more header; where a sink has it, only if that is wanted."""
    (letter,) = [one for one in letters_of(user) if one.kind == "CAST_INVALID_INPUT" and one.topic == orders]
    before = letters_of(user)
    arguments = ["dead-letters", "replay", str(user.write()), "--kind", letter.kind]
    assert run_command([*arguments, "--dry-run"]) == 0
    user.document["sinks"]["copy"] = {"from": "numbers", "topic": f"{user.name}-copy"}
    assert run_command(["dead-letters", "replay", str(user.write()), "--kind", letter.kind]) == 1
    assert f"failed in shown, and may be in sink copy (letters {user.name}-dead[" in capsys.readouterr().err
    assert letters_of(user) == before
    assert run_command([*arguments, "--whole-record"]) == 0
    consumer = clients.consumer({"bootstrap.servers": user.bootstrap, "group.id": "test", "auto.offset.reset": "error"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(orders, 0), 30)
        consumer.assign([TopicPartition(orders, 0, end - 2)])  # after it is the marker of the transaction
        (message,) = consumer.consume(1, 30)
    finally:
        consumer.close()
    origin = f"{user.name}-dead[{letter.partition}]@{letter.offset}".encode()
    assert message.headers() == [*HEADERS, (REPLAYED_FROM, origin)]
    assert (message.key(), message.value(), message.timestamp()[1]) == (None, letter.value, letter.timestamp_ms)


def check_replay_at_the_step(user: User, capsys: pytest.CaptureFixture[str]) -> None:
    """A copy of the letter is in the retry topic, once; the steps and sinks that have the record do not matter."""
    again = user.document["dead_letters"]["retry_topic"] = user.topic("retry")
    (letter, *_) = [one for one in letters_of(user) if one.kind == "ARITHMETIC_OVERFLOW"]
    chosen = ["--partition", str(letter.partition), "--offset", str(letter.offset)]
    arguments = ["dead-letters", "replay", str(user.write()), *chosen]
    capsys.readouterr()
    assert [run_command([*arguments, *more]) for more in (["--dry-run"], [], [])] == [0, 0, 0]
    said = capsys.readouterr().out.splitlines()
    assert said == [
        "1 row would be sent to the step that failed",
        "1 row was sent to the step that failed",
        "0 records were written again",
        "1 letter had been replayed before",
    ]
    ((_, value),) = read_topic(user.bootstrap, again)[0]
    assert value == letter.value


def test_bad_records_are_counted_by_kind_letters_are_whole_and_all_others_are_exact(
    user: User, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """X11, X12, X13, X15 and X19 in one daemon's life, with a kill under load; then letters are written again."""
    orders, kept, words, last = of_all_kinds(user)
    expected, produced = [], list[tuple[str, bytes | None]]()
    for number, (kind, value) in enumerate(BAD):
        produced += [(kind, value), ("", order(number, t="7", at=moment(-60)))]
        expected.append({"id": number, "m": 5, "o": 2_000_000_002, "t": 7, "s": None})
    produced += [*(("RECORD_TOO_LARGE", value) for value in LARGE), ("", order(99))]
    user.produce(orders, [value for _, value in produced], headers=list(HEADERS))
    user.produce_pairs(words, [(None, b"good"), (None, b"\xff\xfe"), (None, None), (b"\xff", b"x"), (None, b"far")])
    user.produce_pairs(words, [(None, b"fine")])
    daemon = user.start().wait_running()
    wait_until(lambda: len(user.rows(kept)) > len(BAD) and len(user.rows(last)) > 1, "all good records are out")
    (slot,) = daemon.slots()
    steps = dict.fromkeys(("DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW", "CAST_INVALID_INPUT", "RESULT_TOO_LARGE"), "shown")
    sinks = dict.fromkeys(("RECORD_TOO_LARGE", "TIMESTAMP_OUT_OF_RANGE", "TIMESTAMP_NOT_STORABLE"), "shown_out")
    wanted: dict[str, float] = {}
    for kind, _ in BAD:
        place = f"{(steps | sinks).get(kind, 'numbers')} {kind}"
        wanted[place] = wanted.get(place, 0) + 1
    wanted["shown_out RECORD_TOO_LARGE"] += len(LARGE)
    words_of = ("words NOT_UTF8", "loud CAST_INVALID_INPUT", "loud_out NO_KEY", "loud_out NO_PARTITION")
    wanted |= dict.fromkeys(words_of, 1.0)
    wait_until(lambda: counts(daemon) == wanted, "the counts, which come with the next heartbeat")
    assert peak_mb(slot) < PEAK_MB_MAX
    under_load = load()
    produced += under_load
    user.produce(orders, [value for _, value in under_load[:1000]])
    os.kill(slot, signal.SIGKILL)
    user.produce(orders, [value for _, value in under_load[1000:]])
    wait_until(lambda: [row["id"] for row in user.rows(kept)][-1:] == [2999], "all that was read later is out")
    assert daemon.terminate() == 0
    rows = user.rows(kept)
    assert [row["id"] for row in rows] == ids_of(produced)
    assert [{name: row[name] for name in expected[0]} for row in rows[: len(expected)]] == expected
    assert [(row["word"], row["place"]) for row in user.rows(last)] == [("GOOD", 0), ("FINE", 5)]
    assert len(daemon.text()) < 200_000, "a value of 10 MB is reported without itself"
    lines = log_lines(daemon.text())
    assert any("subtask" in line for line in lines), "no line of a slot arrived"
    logged = [line["message"] for line in lines if "dead letter: " in line["message"]]
    for place in (f"sink shown_out: record of {orders}, partition 0, offset 24: RECORD_TOO_LARGE", "offset 0: MALF"):
        assert any(place in message for message in logged), logged
    check_letters(user, orders, produced)
    shown = check_shown(user)
    assert {one.kind for one in shown} == {one.kind for one in letters_of(user)}
    assert not any(one.replayed_to for one in shown)
    check_replay(user, capsys, monkeypatch)
    assert f"{user.name}-again" in {one.replayed_to for one in check_shown(user)}
    check_replay_of_large_records(user, capsys)
    check_replay_to_its_topic(user, orders, capsys)
    check_replay_at_the_step(user, capsys)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("place", "kind", "bad"),
    [
        ("source numbers", "MALFORMED_JSON", BAD[0][1]),
        ("sink shown_out", "RECORD_TOO_LARGE", order(9, s="x" * 5_000)),
    ],
)
def test_a_bad_record_stops_the_pipeline_with_its_place_and_nothing_is_lost_afterwards(
    user: User, place: str, kind: str, bad: bytes
) -> None:
    """One that fails in a step: tests/users/test_owning.py, X01."""
    source, _ = user.numbers()
    small = user.topic("small", config={"max.message.bytes": "2000"})
    user.document["sources"]["numbers"]["schema"]["s"] = "string"
    user.document["steps"][0]["select"]["s"] = "s"
    user.document["sinks"]["shown_out"]["topic"] = small
    user.produce(source, [*numbers((1, 1), (2, 2)), bad, *numbers((3, 3))])
    user.run().says(4, place, source, "offset 2", kind, "bad_records: skip", "nothing was lost")
    if kind == "RECORD_TOO_LARGE":
        user.document["sources"]["numbers"]["bad_records"] = "skip"
        user.run().says(0, kind)
        assert [row["id"] for row in user.rows(small)] == [1, 2, 3]
