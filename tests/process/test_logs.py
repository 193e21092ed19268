"""Logs: what a line says, what it must not say, and records of slots on their way to the daemon."""

from __future__ import annotations

import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.daemon.checkpoint_figures import checkpoint_line
from tidegate.errors import AttemptFailed
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, TransactionalId
from tidegate.process.logs import (
    MESSAGE_CHARACTERS_MAX,
    SAME_LINES_MAX,
    JsonFormatter,
    LogContext,
    LogSetup,
    RepeatFilter,
    configure_logging,
    emit_slot_record,
    redact,
    set_secrets,
)
from tidegate.slot.logs import SlotLogHandler
from tidegate.task.messages import LogRecord

logger = logging.getLogger("tidegate.test")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def json_log(stream: io.StringIO) -> Iterator[LogSetup]:
    setup = configure_logging("shop", logging.DEBUG, "json", stream)
    yield setup
    setup.close()
    set_secrets([])


def written(stream: io.StringIO) -> str:
    """What has been logged so far: a thread writes it."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    return stream.getvalue()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in written(stream).splitlines()]


def fail(message: str, **fields: object) -> NoReturn:
    raise AttemptFailed(message, **fields)


def test_a_line_tells_where_it_comes_from(json_log: LogSetup, stream: io.StringIO) -> None:
    json_log.context.attempt = Attempt(3)
    logger.info("%d records", 5, extra={"checkpoint": 9, "subtask": 1})
    [line] = lines(stream)
    assert isinstance(time := line.pop("time"), str)
    assert time.endswith("Z")
    assert line == {
        "level": "info",
        "logger": "tidegate.test",
        "message": "5 records",
        "pipeline": "shop",
        "attempt": 3,
        "checkpoint": 9,
        "subtask": 1,
    }


def test_an_error_gives_its_code_and_fields(json_log: LogSetup, stream: io.StringIO) -> None:
    error = AttemptFailed("slot 1 is gone", slot=1, partition=TopicPartition("orders", 2))
    logger.error("attempt failed: %s", error, extra={"error": error})
    [line] = lines(stream)
    assert line["code"] == "attempt-failed"
    assert line["fields"] == {"slot": 1, "partition": "orders[2]"}
    assert "exception" not in line


def test_a_raised_error_gives_its_traceback_in_the_same_line(json_log: LogSetup, stream: io.StringIO) -> None:
    try:
        fail("gone", slot=1)
    except AttemptFailed:
        logger.exception("failed")
    [line] = lines(stream)
    assert line["code"] == "attempt-failed"
    assert "Traceback" in str(line["exception"])
    assert str(line["exception"]).endswith("AttemptFailed: gone")


def test_secrets_appear_nowhere(json_log: LogSetup, stream: io.StringIO) -> None:
    set_secrets(["s3cret-word", "s3cret", ""])
    try:
        fail("login s3cret failed", given="s3cret-word", more={"s3cret": ["s3cret"]})
    except AttemptFailed:
        logger.exception("with %s", "s3cret-word")
    assert "s3cret" not in stream.getvalue()
    [line] = lines(stream)
    assert line["message"] == "with ***"
    assert line["fields"] == {"given": "***", "more": {"***": ["***"]}}


def test_a_short_secret_is_taken_out_as_a_word_only() -> None:
    set_secrets(["ab"])
    try:
        assert redact("password=ab, abacus, ab") == "password=***, abacus, ***"
    finally:
        set_secrets([])


json_like = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.characters(categories=["Cs"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.frozensets(st.integers()),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.text() | st.characters(categories=["Cs"]), json_like)
def test_whatever_is_logged_becomes_one_line_of_json(message: str, field: object) -> None:
    attributes = {"name": "x", "levelno": 20, "levelname": "INFO", "msg": message, "fields": {"value": field}}
    line = JsonFormatter(LogContext("shop")).format(logging.makeLogRecord(attributes))
    assert "\n" not in line
    assert json.loads(line)["pipeline"] == "shop"


def test_a_huge_message_is_cut(json_log: LogSetup, stream: io.StringIO) -> None:
    logger.info("x" * (MESSAGE_CHARACTERS_MAX + 17))
    assert str(lines(stream)[0]["message"]).endswith("... (17 characters more)")


@pytest.mark.parametrize("style", ["json", "text"])
def test_half_a_secret_is_left_nowhere_where_a_text_is_cut(style: str, stream: io.StringIO) -> None:
    word = "s3cret-word"
    setup = configure_logging("shop", style=style, stream=stream)
    set_secrets([word])
    try:
        for shift in range(len(word)):  # one of them ends within the word, wherever the text is cut
            text = "x" * shift + word * (MESSAGE_CHARACTERS_MAX // len(word) + 1)
            for _ in range(SAME_LINES_MAX + 1):
                logger.info("%s", text)
            logger.info("%d", shift, extra={"fields": {"a": Shown(text)}})
            try:
                fail(text)
            except AttemptFailed:
                logger.exception("broken")
    finally:
        setup.close()
        set_secrets([])
    assert "once more" in stream.getvalue()
    assert "s3cret" not in stream.getvalue()


class Shown:
    """Nothing that JSON knows."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


class Collected(logging.Handler):
    """Keeps the texts, of records that pass the filter for repeated lines."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.texts: list[str] = []
        self.repeats = RepeatFilter(self, lambda: self.now)
        self.addFilter(self.repeats)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

    def say(self, text: str, times: int = 1, level: int = logging.WARNING) -> None:
        for _ in range(times):
            self.handle(make_record(text, level))


def test_X30_the_same_line_again_and_again_is_counted_instead_of_written() -> None:
    log = Collected()
    log.say("no room", 10_000)
    assert log.texts == ["no room"] * SAME_LINES_MAX
    log.now = 61.0
    log.say("something else")
    assert log.texts[SAME_LINES_MAX:] == [f"{10_000 - SAME_LINES_MAX} times more in 61 s: no room", "something else"]
    log.say("no room")
    assert log.texts[-1] == "no room", "a new interval begins"


def test_X30_lines_that_differ_and_what_is_counted_at_the_end_are_all_written() -> None:
    log = Collected()
    for number in range(100):
        log.say(f"checkpoint {number} completed")
        log.say("busy", level=logging.ERROR)
        log.say("busy")
    assert sum("completed" in text for text in log.texts) == 100
    assert log.texts.count("busy") == 2 * SAME_LINES_MAX, "another level is another line"
    log.repeats.flush()
    assert sum(f"{100 - SAME_LINES_MAX} times more" in text for text in log.texts) == 2


def test_X30_a_process_forgets_no_counted_line_when_its_logging_ends() -> None:
    stream = io.StringIO()
    setup = configure_logging("shop", logging.INFO, "json", stream)
    for _ in range(9):
        logger.warning("no room for %s", "another")
    logger.warning("a %d that is none", "number")
    setup.close()
    assert [line["message"] for line in lines(stream)][SAME_LINES_MAX + 1 :] == [
        "4 times more in 1 s: no room for another"
    ]


def test_a_record_that_cannot_be_formatted_is_told_as_a_line() -> None:
    """Not on stderr as Python prints it, which waits for who reads it, has no form and may hold secrets."""
    stream = io.StringIO()
    setup = configure_logging("shop", logging.INFO, "json", stream)
    set_secrets(["opensesame"])
    try:
        logger.warning("a %d that is none", "opensesame")
    finally:
        setup.close()
        set_secrets([])
    [line] = lines(stream)
    assert (line["level"], line["pipeline"]) == ("error", "shop")
    assert str(line["message"]).startswith(f"what is logged at {__file__}:")
    assert "TypeError" in str(line["exception"])
    assert "opensesame" not in stream.getvalue()


def test_auto_is_json_off_a_terminal_and_text_on_one() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, is_json in ((io.StringIO(), True), (Terminal(), False)):
        setup = configure_logging("shop", stream=stream)
        logger.warning("hello", extra={"subtask": 2})
        setup.close()
        assert stream.getvalue().startswith("{") == is_json
        if not is_json:
            assert stream.getvalue().endswith("WARNING test [subtask=2]: hello\n")


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown log format 'xml': use one of auto, text, json"):
        configure_logging("shop", style="xml")


def test_libraries_are_quiet_and_warnings_arrive(json_log: LogSetup, stream: io.StringIO) -> None:
    logging.getLogger("kafka.conn").info("connecting")
    logging.getLogger("py4j.clientserver").debug("command")
    logging.getLogger("kafka.conn").error("lost, logged thirty times a second")
    logging.getLogger("py4j.clientserver").warning("lost")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)  # pytest has put its own recorder in between
        warnings.warn("old", UserWarning, stacklevel=1)
    assert [line["logger"] for line in lines(stream)] == ["py4j.clientserver", "py.warnings"]


def test_what_py4j_tells_of_a_dead_jvm_through_the_root_logger_is_not_logged(
    json_log: LogSetup, stream: io.StringIO
) -> None:
    """A traceback per call, at INFO, although the caller reports it, too."""
    logging.getLogger().info("Exception while sending command.")
    logging.getLogger().warning("but this")
    assert [line["message"] for line in lines(stream)] == ["but this"]


def test_close_gives_the_process_back() -> None:
    root = logging.getLogger()
    before = (root.level, root.handlers[:])
    configure_logging("shop", logging.ERROR, "json", io.StringIO()).close()
    assert (root.level, root.handlers[:]) == before


def test_a_record_of_a_slot_is_logged_with_its_own_time_and_place(json_log: LogSetup, stream: io.StringIO) -> None:
    json_log.context.attempt = Attempt(4)
    message = LogRecord(logging.ERROR, "tidegate.sources.kafka", "50% broken", 1_767_225_600_123, "Traceback: boom")
    emit_slot_record(message, Attempt(3), SlotIndex(1))
    assert lines(stream) == [
        {
            "time": "2026-01-01T00:00:00.123Z",
            "level": "error",
            "logger": "tidegate.sources.kafka",
            "message": "50% broken",
            "pipeline": "shop",
            "attempt": 3,
            "subtask": 1,
            "exception": "Traceback: boom",
        }
    ]


def test_a_record_of_a_slot_below_the_level_is_not_logged(json_log: LogSetup, stream: io.StringIO) -> None:
    logging.getLogger().setLevel(logging.INFO)
    emit_slot_record(LogRecord(logging.DEBUG, "tidegate.x", "detail", 0), Attempt(1), SlotIndex(0))
    assert written(stream) == ""


def make_record(message: str, level: int = logging.INFO) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "t", "levelno": level, "msg": message, "created": 12.5})


def test_a_slot_sends_its_records_in_order() -> None:
    sent: list[LogRecord] = []
    handler = SlotLogHandler(sent.append, lambda: 0)
    for number in range(100):
        handler.handle(make_record(f"{number}"))
    assert [message.message for message in sent] == [str(number) for number in range(100)]
    assert sent[0].time_ms == 12_500
    assert handler.dropped == 0


def test_a_full_connection_drops_counts_and_reports() -> None:
    sent: list[LogRecord] = []
    handler = SlotLogHandler(sent.append, lambda: len(sent), capacity=2)
    for number in range(5):
        handler.handle(make_record(f"{number}"))
    assert handler.dropped == 3
    sent.clear()
    handler.handle(make_record("later"))
    assert [message.message for message in sent] == [
        "3 log records of this slot were dropped: it logs faster than it can send",
        "later",
    ]
    handler.handle(make_record("again"))
    assert handler.dropped == 4


def test_an_argument_that_cannot_be_shown_harms_nobody_but_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line may be of the user's function: the record that it looks up would be a bad one."""

    class Half:
        def __str__(self) -> str:
            raise AttributeError("not connected")

    monkeypatch.setattr(logging, "raiseExceptions", True)
    sent: list[LogRecord] = []
    handler = SlotLogHandler(sent.append, lambda: 0)
    handler.handle(logging.makeLogRecord({"name": "t", "levelno": 20, "msg": "%s", "args": (Half(),)}))
    assert sent == []
    assert "AttributeError: not connected" in capsys.readouterr().err


def test_a_slot_sends_tracebacks_and_no_secrets() -> None:
    sent: list[LogRecord] = []
    handler = SlotLogHandler(sent.append, lambda: 0)
    set_secrets(["s3cret"])
    try:
        fail("login with s3cret refused")
    except AttemptFailed:
        handler.handle(logging.makeLogRecord({"name": "t", "levelno": 40, "msg": "s3cret", "exc_info": sys.exc_info()}))
    finally:
        set_secrets([])
    assert sent[0].message == "***"
    assert sent[0].exception.endswith("AttemptFailed: login with *** refused")


def test_the_line_of_a_checkpoint() -> None:
    def committable(checkpoint: int) -> Committable:
        written = (WrittenRange(TopicPartition("out", 0), 0, 4512, 4512),)
        return Committable(
            OperatorName("totals"),
            SlotIndex(0),
            Attempt(1),
            CheckpointId(checkpoint),
            TransactionalId("t"),
            1,
            0,
            written,
            0,
            60_000,
        )

    handle = StateHandle(OperatorName("totals"), SlotIndex(0), "a", 12_595, "x", 0, "")
    checkpoint = CompletedCheckpoint(
        CheckpointId(42), Attempt(1), 1000, 1123, (), (handle,), (committable(42), committable(41)), final=True
    )
    assert checkpoint_line(checkpoint, {"alignment": 0.01, "start_delay": 0.002}) == (
        "checkpoint 42 completed in 123 ms (alignment 10 ms, start delay 2 ms): state 12.3 KiB, "
        "commits 4,512 records in 1 transaction and 4,512 records in 1 transaction carried over, final"
    )


def test_no_phase_of_a_checkpoint_is_longer_than_the_whole() -> None:
    checkpoint = CompletedCheckpoint(CheckpointId(42), Attempt(1), 1000, 1002, (), (), ())
    line = checkpoint_line(checkpoint, {"prepare": 0.002, "journal": 0.006, "commit": 0.001})
    assert line.startswith("checkpoint 42 completed in 9 ms (prepare 2 ms, journal 6 ms, commit 1 ms): ")
