"""`GET /api/v1/tap` and `tidegate tap`: who may see rows, what is masked, and what is said when there are none."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.daemon.http.orders import TOKEN, Daemon
from tests.waiting import PATIENCE_S, wait_until
from tidegate.cli.daemon_commands import tap
from tidegate.config.load import parse_pipeline
from tidegate.daemon.control_token import provide_token
from tidegate.daemon.http.admission import SCHEME
from tidegate.daemon.http.pipeline_resources import make_pipeline_resources
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.taps import TAPS_MAX, TapEnd, TappedRows, TapService, TapUnavailable
from tidegate.errors import TidegateError
from tidegate.plan.build import build_plan
from tidegate.plan.taps import TapPoint
from tidegate.spark.work_directory import WorkDirectory

PIPELINE = """\
version: 1
name: shop
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///nowhere}
http: {port: PORT, redact: [card]}
sources:
  orders: {topic: orders, schema: {id: bigint, card: string, amount: "decimal(30,2)", note: string}}
steps:
  - {name: big, from: orders, where: amount >= 100}
sinks:
  out: {from: big, topic: out}
"""
ROWS = (
    b'{"id":1,"card":"4111","amount":12.50,"note":"a\\nb"}',
    b'{"id":2,"card":null,"amount":12345678901234567890.25,"note":null}',
)
SHOWN = (
    '{"id":1,"card":"***","amount":12.50,"note":"a\\nb"}',
    '{"id":2,"card":"***","amount":12345678901234567890.25,"note":null}',
)


class Tapped:
    """What the daemon answers, on its own loop."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.answer = TappedRows(ROWS, TapEnd.ROWS)
        self.error: TidegateError | None = None
        self.go_on = threading.Event()
        self.go_on.set()

    async def copy(self, points: Sequence[TapPoint], rows_max: int) -> TappedRows:
        self.asked.append((points[0].vertex, rows_max))
        await asyncio.to_thread(self.go_on.wait, PATIENCE_S)
        if self.error is not None:
            raise self.error
        return self.answer


@pytest.fixture
def tapped() -> Iterator[Tapped]:
    found = Tapped()
    yield found
    found.go_on.set()


@pytest.fixture
def service() -> TapService:
    loaded = parse_pipeline(PIPELINE.replace("PORT", "0"), "shop.yaml", {})
    return TapService(build_plan(loaded), loaded.settings.http.redact)


@pytest.fixture
def server(daemon: Daemon, service: TapService) -> Iterator[HttpServer]:
    metrics = PipelineMetrics("shop", "0.1.0")
    resources = [*make_pipeline_resources(metrics), service.resource]
    server = HttpServer("127.0.0.1", 0, metrics, resources=resources)
    server.start()
    server.commands.serve(daemon, daemon.loop, TOKEN)
    yield server
    server.stop()


@pytest.fixture
def serving(server: HttpServer, daemon: Daemon, service: TapService, tapped: Tapped) -> HttpServer:
    service.serve(tapped.copy, daemon.loop)
    return server


def ask(server: HttpServer, query: str, token: str | None = TOKEN) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    headers = {} if token is None else {"Authorization": SCHEME + token}
    try:
        connection.request("GET", f"/api/v1/tap?{query}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def refusal(answer: tuple[int, bytes]) -> tuple[int, str, str]:
    status, body = answer
    found: dict[str, Any] = json.loads(body)
    return status, found["code"], found["message"]


def test_rows_are_shown_with_their_digits_and_without_masked_columns(
    serving: HttpServer, tapped: Tapped, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        status, body = ask(serving, "step=big&rows=2")
    assert (status, body.decode()) == (
        200,
        f'{{"step":"big","rows":[{",".join(SHOWN)}],"cut":false,"ended":"rows"}}\n',
    )
    assert tapped.asked == [("orders", 2)]
    assert [one.getMessage() for one in caplog.records] == ["reading /api/v1/tap?step=big&rows=2 from 127.0.0.1: done"]


def test_rows_need_the_token_of_commands(serving: HttpServer, tapped: Tapped) -> None:
    assert refusal(ask(serving, "step=big", token=None))[:2] == (401, "unauthorized")
    assert tapped.asked == []


def test_an_unknown_step_gets_a_suggestion(serving: HttpServer) -> None:
    assert refusal(ask(serving, "step=bigg")) == (404, "unknown-step", "there is no output 'bigg': did you mean `big`?")


@pytest.mark.parametrize("query", ["step=big&rows=0", "step=big&rows=101", "rows=5", "step=big&row=5"])
def test_a_wrong_query_is_refused(serving: HttpServer, query: str) -> None:
    assert refusal(ask(serving, query))[:2] == (400, "bad-request")


def test_while_no_attempt_runs_there_are_no_rows(serving: HttpServer, tapped: Tapped) -> None:
    tapped.error = TapUnavailable("no rows can be copied: the pipeline is restarting")
    assert refusal(ask(serving, "step=big")) == (503, "tap-unavailable", tapped.error.message)


def test_before_the_daemon_has_started_there_are_no_rows(server: HttpServer) -> None:
    assert refusal(ask(server, "step=big"))[:2] == (503, "not-ready")


def test_a_step_has_one_tap_at_a_time(serving: HttpServer, tapped: Tapped) -> None:
    tapped.go_on.clear()
    asking = threading.Thread(target=ask, args=(serving, "step=big&rows=3"))
    asking.start()
    wait_until(lambda: bool(tapped.asked), "the first tap")
    assert refusal(ask(serving, "step=big&rows=4"))[:2] == (503, "busy")
    tapped.go_on.set()
    asking.join(PATIENCE_S)
    assert ask(serving, "step=big&rows=4")[0] == 200
    assert TAPS_MAX < 8, "the answers that wait are few"


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(serving: HttpServer, daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(PIPELINE.replace("PORT", str(serving.port)))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    daemon.work = WorkDirectory()
    serving.commands.serve(daemon, daemon.loop, provide_token(daemon.work.path, serving.port, None))
    return path


def invoke(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(tap, [str(file), *arguments], catch_exceptions=False)


def test_the_command_prints_a_table(file: Path) -> None:
    result = invoke(file, "big", "--rows", "2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "id  card                   amount  note",
        " 1  ***                     12.50  a\\nb",
        " 2  ***   12345678901234567890.25  null",
    ]


def test_the_command_prints_whole_rows_as_json(file: Path, tapped: Tapped) -> None:
    tapped.answer = TappedRows((b'{"id":1,"note":"%s"}' % (b"x" * 200),), TapEnd.BYTES)
    result = invoke(file, "big", "--format", "json")
    assert result.stdout == f'{{"id":1,"note":"{"x" * 200}"}}\n'
    assert result.stderr == "1 row of big: the next row would exceed the limit of 100 kB\n"
    assert len(invoke(file, "big").stdout.splitlines()[1]) < 100


def test_the_command_says_why_there_are_no_rows(file: Path, tapped: Tapped) -> None:
    tapped.answer = TappedRows((), TapEnd.TIME)
    result = invoke(file, "big")
    assert (result.stdout, result.stderr) == ("", "0 rows of big: no more came within 10 s\n")


def test_a_daemon_of_another_pipeline_is_not_tapped(file: Path, tapped: Tapped) -> None:
    file.write_text(file.read_text().replace("name: shop", "name: other"))
    with pytest.raises(TidegateError, match="runs pipeline shop, not other"):
        invoke(file, "big")
    assert tapped.asked == []
