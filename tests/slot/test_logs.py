"""What user code prints in a slot is logged with the name of its step."""

from __future__ import annotations

import logging
import sys
import threading

import pytest

from tidegate.process.logs import MESSAGE_CHARACTERS_MAX
from tidegate.slot.logs import PrintedLines, log_printed_lines
from tidegate.user_code.running import RUNNING


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records]


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def test_lines_are_logged_with_the_step_that_printed_them(caplog: pytest.LogCaptureFixture) -> None:
    with log_printed_lines():
        with RUNNING.of("visits"):
            print("one\ntwo", "and a half")
            print("wrong", file=sys.stderr)
            print("no", end=" ")
            print("newline", end="", flush=True)
            print()
        print("nobody's")
        print("last", end="")
    assert logged(caplog) == [
        (logging.INFO, "step visits: one"),
        (logging.INFO, "step visits: two and a half"),
        (logging.WARNING, "step visits: wrong"),
        (logging.INFO, "step visits: no newline"),
        (logging.INFO, "MainThread: nobody's"),
        (logging.INFO, "MainThread: last"),
    ]


def test_threads_do_not_mix_their_lines_and_are_not_taken_for_the_step(caplog: pytest.LogCaptureFixture) -> None:
    with log_printed_lines(), RUNNING.of("visits"):
        print("half of", end="")
        thread = threading.Thread(target=print, args=("of a thread",), name="fetch")
        thread.start()
        thread.join()
        print(" a line")
    assert logged(caplog) == [(logging.INFO, "fetch: of a thread"), (logging.INFO, "step visits: half of a line")]


def test_a_line_without_an_end_is_logged_in_parts(caplog: pytest.LogCaptureFixture) -> None:
    stream = PrintedLines(logging.INFO)
    for _ in range(5):
        stream.write("x" * (MESSAGE_CHARACTERS_MAX // 2))
    assert [len(text) for _, text in logged(caplog)] == [len("MainThread: ") + MESSAGE_CHARACTERS_MAX] * 2
    stream.flush()
    assert len(caplog.records) == 3


def test_a_log_record_that_cannot_be_shown_does_not_log_itself_for_ever(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`logging` prints what is wrong with a record to standard error, which is logged."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print("a handler's complaint", file=sys.stderr)

    handler = Broken()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        monkeypatch.setattr(sys, "__stderr__", sys.stderr)
        with log_printed_lines():
            print("hello")
    finally:
        root.removeHandler(handler)
    assert logged(caplog) == [(logging.INFO, "MainThread: hello")]
    assert capsys.readouterr().err == "a handler's complaint\n"
