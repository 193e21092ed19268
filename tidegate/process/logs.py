"""Logs of the daemon: JSON lines or text, with secrets removed, including the records of the slots.

Every record may have these keys in `extra`: `attempt`, `checkpoint`, `subtask`, `code`, `fields`, or `error` (a
TidegateError, which provides code and fields). This module imports no library that would not be imported anyway.
docs/operations/monitoring.md lists the fields of a line. A thread writes the lines (log_lines.py). The slots' side is
tidegate.slot.logs.
"""

from __future__ import annotations

import datetime
import logging
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TextIO

import msgspec

from tidegate.clock import render_stamp
from tidegate.errors import TidegateError
from tidegate.ids import Attempt, SlotIndex
from tidegate.process.log_lines import LineHandler, StreamLines, Write, discard
from tidegate.process.repeated_messages import INTERVAL_S, Repeats, Withheld, render_repeats
from tidegate.task.messages import LogRecord, escape_halves

FORMATS: Final = ("auto", "text", "json")
REDACTED: Final = "***"
MESSAGE_CHARACTERS_MAX: Final = 32_768
SAME_LINES_MAX: Final = 5
"""How often the same line is written within an interval; further ones are counted."""
QUIET_LOGGERS: Final = {
    "kafka": logging.CRITICAL,  # logs an outage thirty times a second; the caller reports it
    "py4j": logging.WARNING,
    "opentelemetry.exporter.otlp.proto.http.trace_exporter": logging.ERROR,  # otherwise logs each retry with its pause
    "asyncio": logging.WARNING,
    "aiohttp": logging.WARNING,
    "pyspark": logging.WARNING,
}
"""Libraries that are verbose at INFO, with the level from which their lines matter to operators."""

_SHORT_SECRET: Final = 4
_HEAD_CHARACTERS: Final = 500
_COUNTS: Final = "tidegate_counts"
"""Marks records that report how often a line was withheld."""
_EXTRAS: Final = ("attempt", "checkpoint", "subtask")


def _matters(record: logging.LogRecord) -> bool:
    """Filters out records of the root logger below WARNING: py4j logs tracebacks there when a JVM has died."""
    return record.name != "root" or record.levelno >= logging.WARNING


class _Redactor:
    """The secrets of this process: one set, whichever logger prints them."""

    def __init__(self) -> None:
        self._pattern: re.Pattern[str] | None = None

    def replace(self, values: Iterable[str]) -> None:
        ordered = sorted({value for value in values if value}, key=lambda value: (-len(value), value))
        # A short secret inside a longer word is a coincidence; removing it everywhere would make logs unreadable.
        parts = [rf"(?<!\w){re.escape(v)}(?!\w)" if len(v) < _SHORT_SECRET else re.escape(v) for v in ordered]
        self._pattern = re.compile("|".join(parts)) if parts else None

    def redact(self, text: str) -> str:
        return self._pattern.sub(REDACTED, text) if self._pattern is not None else text


_redactor = _Redactor()


def set_secrets(values: Iterable[str]) -> None:
    """Replaces these texts by `***` in everything that is logged from now on; earlier ones are forgotten."""
    _redactor.replace(values)


def redact(text: str) -> str:
    """Returns `text` without the secrets; also used for output other than the log (status page)."""
    return _redactor.redact(text)


class LogContext:
    """The origin that every line includes; the daemon sets `attempt` when one starts."""

    def __init__(self, pipeline: str, attempt: Attempt | None = None) -> None:
        self.pipeline = pipeline
        self.attempt = attempt


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object per line; keys without a value are left out."""

    def __init__(self, context: LogContext) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record. Never raises for unusual values: those that JSON cannot represent are written as text."""
        entry: dict[str, object] = {
            "time": render_stamp(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            "pipeline": self._context.pipeline,
        }
        entry |= _derive_fields(record, self._context)
        exception = render_exception(record)
        if exception:
            entry["exception"] = exception
        return msgspec.json.encode(_plain(entry)).decode()


class TextFormatter(logging.Formatter):
    """Formats a record as `time LEVEL logger: message`, with attempt, checkpoint and subtask if known."""

    def __init__(self, context: LogContext) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record; an exception follows on lines of its own."""
        fields = _derive_fields(record, self._context)
        place = " ".join(f"{name}={fields[name]}" for name in ("subtask", "code") if name in fields)
        moment = datetime.datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        head = f"{moment} {record.levelname:<7} {record.name.removeprefix('tidegate.')}"
        line = f"{head}{f' [{place}]' if place else ''}: {escape_halves(_message(record))}"
        exception = render_exception(record)
        return f"{line}\n{escape_halves(exception)}" if exception else line


def _message(record: logging.LogRecord) -> str:
    return shorten(redact(record.getMessage()))


def shorten(text: str) -> str:
    """Truncates `text` to the limit of a log line.

    Secrets must be removed first: half of one would not be recognized.
    """
    if len(text) <= MESSAGE_CHARACTERS_MAX:
        return text
    return f"{text[:MESSAGE_CHARACTERS_MAX]} ... ({len(text) - MESSAGE_CHARACTERS_MAX} characters more)"


def render_exception(record: logging.LogRecord) -> str:
    """Renders the traceback of a record without secrets; empty if it has none. A forwarded record contains its text."""
    if record.exc_info and record.exc_info[1] is not None:
        return shorten(redact("".join(traceback.format_exception(record.exc_info[1])).rstrip()))
    return redact(record.exc_text or "")


def _derive_fields(record: logging.LogRecord, context: LogContext) -> dict[str, object]:
    own: Mapping[str, Any] = vars(record)
    entry: dict[str, object] = {name: own[name] for name in _EXTRAS if own.get(name) is not None}
    if "attempt" not in entry and context.attempt is not None:
        entry["attempt"] = context.attempt
    error = own.get("error")
    if error is None and record.exc_info:
        error = record.exc_info[1]
    code, fields = own.get("code"), own.get("fields")
    if isinstance(error, TidegateError):
        code, fields = code or error.code, fields or error.fields
    if code:
        entry["code"] = code
    if fields:
        entry["fields"] = fields
    return entry


def _plain(value: object) -> object:
    """Converts a value to what JSON can represent, with secrets removed from every text."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return escape_halves(redact(value))
        case Mapping():
            return {escape_halves(redact(str(key))): _plain(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(each) for each in value]
        case _:
            return escape_halves(shorten(redact(str(value))))


class _Line(NamedTuple):
    """The identity of a line, to detect repetitions. `digest` stands for the whole text, `head` is shown to people."""

    logger: str
    level: int
    digest: int
    head: str


class RepeatFilter:
    """A filter for `handler` that passes the same line SAME_LINES_MAX times in an interval and counts further ones.

    The count is logged after the interval. A fault that repeats a thousand times a second neither fills the disk nor
    hides other lines.
    """

    def __init__(self, handler: logging.Handler, elapsed: Callable[[], float] = time.monotonic) -> None:
        self._handler = handler
        self._repeats: Repeats[_Line] = Repeats(INTERVAL_S, SAME_LINES_MAX, elapsed)
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the record is written (logging.Filter)."""
        if vars(record).get(_COUNTS):
            return True
        try:
            text = record.getMessage()
        except (TypeError, ValueError, LookupError):  # arguments that do not fit: the handler reports it
            return True
        digest, head = hash((text, render_exception(record))), redact(text)[:_HEAD_CHARACTERS]
        line = _Line(record.name, record.levelno, digest, head)
        with self._lock:
            overdue = self._repeats.overdue()
            admits = self._repeats.may_say(line)
        self._write(overdue)
        return admits

    def flush(self) -> None:
        """Writes the counts so far."""
        with self._lock:
            overdue = self._repeats.overdue(everything=True)
        self._write(overdue)

    def _write(self, overdue: Iterable[Withheld[_Line]]) -> None:
        for line, times, seconds in overdue:
            attributes = {
                "name": line.logger,
                "levelno": line.level,
                "levelname": logging.getLevelName(line.level),
                "msg": f"{render_repeats(times)} in {max(1.0, seconds):.0f} s: {line.head}",
                _COUNTS: True,
            }
            self._handler.handle(logging.makeLogRecord(attributes))


class LogSetup:
    """The logging of this process from `configure_logging` until `close`; `context` may be changed meanwhile."""

    def __init__(self, context: LogContext, stream: TextIO, handler: LineHandler, repeats: RepeatFilter) -> None:
        self.context = context
        self._stream = stream
        self._handler = handler
        self._repeats = repeats
        root = logging.getLogger()
        self._before = (root.level, root.handlers[:])
        self._quiet = {name: logging.getLogger(name).level for name in QUIET_LOGGERS}

    def close(self) -> None:
        """Restores the previous logging. Waits for lines that are not written yet, up to END_S."""
        root = logging.getLogger()
        self._repeats.flush()
        self._handler.flush()
        # Otherwise the interpreter's exit would block or fail there, and change the exit code.
        if self._handler.is_stuck:
            discard(self._stream)
        self._handler.close()
        root.setLevel(self._before[0])
        root.handlers[:] = self._before[1]
        for name, level in self._quiet.items():
            logging.getLogger(name).setLevel(level)
        logging.captureWarnings(capture=False)


def configure_logging(
    pipeline: str,
    level: int = logging.INFO,
    style: str = "auto",
    stream: TextIO | None = None,
    terminal: Write | None = None,
) -> LogSetup:
    """Sends all logging of the process to `stream` (default stderr), in the given style (one of FORMATS).

    Callers never wait for the stream. `auto` is text on a terminal and JSON elsewhere. `terminal` is used for text
    instead of the stream when a progress display owns the terminal (tidegate.cli.progress). Raises ValueError for an
    unknown style.
    """
    if style not in FORMATS:
        raise ValueError(f"unknown log format {style!r}: use one of {', '.join(FORMATS)}")
    stream = stream if stream is not None else sys.stderr
    context = LogContext(pipeline)
    text = style == "text" or (style == "auto" and (terminal is not None or stream.isatty()))
    handler = LineHandler(terminal if terminal is not None and text else StreamLines(stream))
    handler.setFormatter(TextFormatter(context) if text else JsonFormatter(context))
    handler.addFilter(_matters)
    repeats = RepeatFilter(handler)
    handler.addFilter(repeats)
    setup = LogSetup(context, stream, handler, repeats)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    quiet_libraries(level)
    logging.captureWarnings(capture=True)
    return setup


def quiet_libraries(level: int) -> None:
    """Limits libraries to their own level, or to `level` if that is higher."""
    for name, least in QUIET_LOGGERS.items():
        logging.getLogger(name).setLevel(max(level, least))


def emit_slot_record(message: LogRecord, attempt: Attempt, subtask: SlotIndex) -> None:
    """Logs a record of slot `subtask` as if it had been logged here, with its own time and the slot's number."""
    target = logging.getLogger(message.logger)
    if not target.isEnabledFor(message.level):
        return
    attributes = {
        "name": message.logger,
        "levelno": message.level,
        "levelname": logging.getLevelName(message.level),
        "msg": message.message,
        "args": None,
        "created": message.time_ms / 1000,
        "msecs": float(message.time_ms % 1000),
        "exc_text": message.exception or None,
        "attempt": attempt,
        "subtask": subtask,
    }
    target.handle(logging.makeLogRecord(attributes))
