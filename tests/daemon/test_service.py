"""The daemon's end: signals that come while it closes, and things that cannot be closed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.daemon.small_pipeline import pipeline
from tests.waiting import PATIENCE_S, wait_until
from tidegate.checks.findings import StartRefused, prevent_start
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.service import Daemon
from tidegate.daemon.status import PipelineState
from tidegate.errors import AttemptFailed, PipelineStopped, TidegateError
from tidegate.process.limits import ending_signals


class Closing(Daemon):
    """A daemon of which only the end is there. `codes`: what the process would have ended with."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.unsaved, self.saved, self.stopping, self.copying = False, False, False, False
        self.hurried = 0
        self.thread = ThreadPoolExecutor(1, "journal")
        self._code = None
        self._error = None
        self._opening = None
        self._hurrying = None
        self._metrics = PipelineMetrics("shop", "0")
        self._supervisor = cast("Any", self)
        self._opened = contextlib.AsyncExitStack()
        self._settings = cast("Any", SimpleNamespace(runtime=SimpleNamespace(shutdown_grace_ms=60_000)))
        closes = SimpleNamespace(close=self._nothing, stop=self._nothing)
        self._services = cast("Any", SimpleNamespace(journal_thread=self.thread, kafka=closes, schemas=closes))
        self._host = cast("Any", SimpleNamespace(server=closes, spark=SimpleNamespace(stop=lambda: None)))
        self._work_dir = cast("Any", SimpleNamespace(remove=lambda: None))
        self.housekeeping = SimpleNamespace(pause=lambda: None)

    async def _nothing(self) -> None:
        """Closes at once."""

    def _end_now(self, code: int) -> Any:
        self.codes.append(code)

    async def hurry(self) -> None:
        self.hurried += 1


@pytest.fixture
def daemon() -> Iterator[Closing]:
    made = Closing()
    yield made
    made.thread.shutdown()


@pytest.mark.parametrize("end", ["final checkpoint", "closing", "failed"])
def test_a_signal_that_comes_when_nothing_is_left_to_save_changes_nothing(
    daemon: Closing, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """The exit code stays 0 (docs/operations/running.md). It was 143, and a final checkpoint was reported missing."""
    caplog.set_level("INFO")
    daemon.saved = end == "final checkpoint"
    daemon._code = {"closing": 0, "failed": 4}.get(end)
    state = PipelineState.FAILED if end == "failed" else PipelineState.FINISHED
    daemon._metrics.state(state, "a reason")

    async def scene() -> None:
        for daemon.stopping in (False, True):
            daemon._on_signal(signal.SIGTERM)
        daemon.stopping = False
        await daemon.stop()
        await asyncio.sleep(0)

    asyncio.run(scene())
    assert (daemon.codes, daemon.hurried) == ([], 0)
    assert daemon._metrics.current_state == (state, "a reason")
    assert "second signal" not in caplog.text
    assert "nothing is left to save" in caplog.text


def test_a_signal_ends_a_process_that_does_not_close(daemon: Closing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a savepoint to a directory that hangs, say, which the end of the loop waits for."""
    monkeypatch.setattr("tidegate.daemon.service.CLOSE_AFTER_GRACE_S", 0.0)
    daemon._code, daemon.saved = 0, True

    async def scene() -> None:
        daemon._on_signal(signal.SIGINT)
        await asyncio.to_thread(wait_until, lambda: bool(daemon.codes), "the end of the process")

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    assert daemon.codes == [0]


class Signalled(Closing):
    """Gets a signal while it starts, and fails."""

    def __init__(self, directory: Path, number: signal.Signals) -> None:
        super().__init__()
        self.number, self.heard = number, asyncio.Event()
        self._work_dir = cast("Any", SimpleNamespace(remove=lambda: None, path=directory))
        self._http = cast("Any", SimpleNamespace(port=1, commands=SimpleNamespace(serve=lambda *_: None)))
        self._settings.http = cast("Any", SimpleNamespace(token_file=None))

    async def _beat(self) -> None:
        """Nobody looks."""

    def _notify_service_manager(self) -> None:
        """Nobody asks."""

    async def _open(self) -> None:
        os.kill(os.getpid(), self.number)
        await self.heard.wait()
        raise AttemptFailed("enough")

    def _on_signal(self, number: signal.Signals) -> None:
        assert number is self.number
        self.heard.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_asks_for_the_end(tmp_path: Path, number: signal.Signals) -> None:
    """A terminal that is closed, too: open transactions hold readers back."""
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(AttemptFailed, match="enough"):
            asyncio.run(asyncio.wait_for(Signalled(tmp_path, number).run(), PATIENCE_S))
    finally:
        signal.signal(number, before)


def test_a_closed_terminal_is_nothing_to_a_daemon_that_is_to_survive_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # `nohup`
    try:
        assert signal.SIGHUP not in ending_signals()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert signal.SIGHUP in ending_signals()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("copying", [True, False])
def test_a_second_signal_before_that_ends_the_daemon_with_its_own_code(
    daemon: Closing, caplog: pytest.LogCaptureFixture, copying: bool
) -> None:
    """But 0 where only a savepoint is still being copied: everything is committed."""
    daemon.copying = copying

    async def scene() -> None:
        daemon.stopping = True
        daemon._on_signal(signal.SIGTERM)
        assert daemon._hurrying is not None
        await daemon._hurrying

    asyncio.run(scene())
    assert (daemon.codes, daemon.hurried) == ([0 if copying else 143], 1)
    assert ("ending without a final checkpoint" in caplog.text) is not copying


REFUSED = StartRefused(pipeline(), [prevent_start((), "no journal", exit_code=4)])


@pytest.mark.parametrize(
    ("error", "code"), [(None, 0), (AttemptFailed("no broker"), 1), (PipelineStopped("damaged"), 4), (REFUSED, 4)]
)
def test_a_directory_that_hangs_holds_neither_the_loop_nor_the_end_of_the_process(
    daemon: Closing,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: TidegateError | None,
    code: int,
) -> None:
    """A network file system that is away: the call of the journal's thread never returns. Why it ends is logged."""
    monkeypatch.setattr("tidegate.daemon.service.CLOSE_S", 0.05)
    answers, turned = threading.Event(), []

    async def scene() -> None:
        daemon.thread.submit(answers.wait, PATIENCE_S)
        closing = asyncio.ensure_future(daemon._close(error))
        await asyncio.to_thread(wait_until, lambda: bool(daemon.codes), "the end of the process")
        turned.append(True)
        answers.set()
        await closing

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    assert (daemon.codes, turned) == ([code], [True])
    assert "closing took more than 0.05 s" in caplog.text
    assert error is None or error.message in caplog.text


def test_a_savepoint_into_a_directory_that_hangs_does_not_hold_the_end_of_the_process(
    daemon: Closing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the loop waits for the thread that copies it; what fails then sets no other limit."""
    monkeypatch.setattr("tidegate.daemon.service.CLOSE_S", 0.05)
    answers = threading.Event()

    async def scene() -> None:
        copying = asyncio.ensure_future(asyncio.to_thread(answers.wait, PATIENCE_S))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(daemon._close(AttemptFailed("no broker")))

        def answer() -> None:
            wait_until(lambda: bool(daemon.codes) or closing.done(), "the end")
            answers.set()

        answering = threading.Thread(target=answer)
        answering.start()
        await closing
        answering.join()
        await copying

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    assert daemon.codes == [1]


def test_what_closes_in_time_ends_nothing(daemon: Closing, monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[Any] = []

    class Timer:
        def __init__(self, _seconds: float, _call: Callable[[], object]) -> None:
            self.daemon, self.cancelled = False, False
            timers.append(self)

        def start(self) -> None:
            assert self.daemon

        def cancel(self) -> None:
            self.cancelled = True

    monkeypatch.setattr("tidegate.daemon.service.threading.Timer", Timer)
    asyncio.run(daemon._close(None))
    assert [one.cancelled for one in timers] == [True]
    assert daemon._code == 0


@pytest.mark.parametrize(
    ("unsaved", "code", "expected"), [(True, None, 6), (False, None, 0), (True, 4, 4), (False, 1, 1)]
)
def test_the_limit_after_the_grace_ends_the_process_with_the_code_that_it_would_have_had(
    daemon: Closing, caplog: pytest.LogCaptureFixture, unsaved: bool, code: int | None, expected: int
) -> None:
    daemon.unsaved, daemon._code = unsaved, code
    daemon._error = None if code is None else PipelineStopped("a bad record")
    daemon._on_close_limit(30.0)
    assert daemon.codes == [expected]
    assert ("a bad record" in caplog.text) is (code is not None)


@pytest.mark.parametrize("fails", [False, True])
def test_a_session_that_is_still_being_opened_is_closed_when_it_is_open(daemon: Closing, fails: bool) -> None:
    """A recovery may be refused while a local Spark starts."""
    steps: list[str] = []

    async def scene() -> None:
        refused = asyncio.Event()

        async def open_session() -> None:
            await refused.wait()
            steps.append("opened")
            if fails:
                raise PipelineStopped("no session")

        daemon._opening = asyncio.create_task(open_session())
        daemon._host.spark.stop = lambda: steps.append("closed")  # type: ignore[method-assign]  # a namespace here
        closing = asyncio.create_task(daemon._close(None))
        await asyncio.sleep(0)
        refused.set()
        await closing

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))
    assert steps == ["opened", "closed"]
