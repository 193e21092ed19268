"""The HTTP port against a real client: probes, metrics, status, a taken port, answers under load."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from tests.coordinator.values import ATTEMPT, SOURCE, SUBTASKS, TOTALS, ack, running
from tests.support.clocks import HandClock
from tests.waiting import PATIENCE_S
from tidegate.coordinator.events import AckReceived, DeclineReceived, Event, SubtaskRunning, TriggerRequested
from tidegate.coordinator.history import FailureRecord, FollowedBy
from tidegate.coordinator.types import Decline
from tidegate.daemon.http.commands import API
from tidegate.daemon.http.redaction import TEXT_CHARACTERS_MAX
from tidegate.daemon.http.server import PATHS, RESOURCE_ALIASES, SWITCH_INTERVAL_S, HttpServer, HttpUnavailable
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import OperatorAccounts
from tidegate.daemon.status import Diagnosis, DiagnosisSeverity, PipelineState
from tidegate.ids import Attempt, CheckpointId, OperatorName
from tidegate.process.logs import set_secrets

PROBES = 200
PROBE_CLIENT = """
import http.client, json, sys, time
port, count, server = (int(word) for word in sys.argv[1:])
clock = (~server << 3) | 2  # the processor time of that process: see clock_getcpuclockid(3)
took = []
for _ in range(count):
    started, used = time.perf_counter(), time.clock_gettime(clock)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/livez")
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 200, answer.status
    connection.close()
    took.append(((time.clock_gettime(clock) - used) * 1000, (time.perf_counter() - started) * 1000))
print(json.dumps(took))
"""


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def metrics() -> PipelineMetrics:
    return PipelineMetrics("shop", "0.1.0", operators=OperatorAccounts({OperatorName("orders"): "source"}))


@pytest.fixture
def server(metrics: PipelineMetrics, clock: HandClock) -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, metrics, beat_limit_s=10, elapsed=clock)
    server.start()
    yield server
    server.stop()


def get(server: HttpServer, path: str, accept: str = "*/*") -> tuple[int, str, str]:
    request = urllib.request.Request(server.address + path, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_liveness_holds_while_the_daemon_beats(server: HttpServer, clock: HandClock) -> None:
    clock.now = 9.0
    assert get(server, "/livez")[0] == 200
    clock.now = 30.0
    status, _, text = get(server, "/livez")
    assert status == 503
    assert "event loop has not run for 30 s (limit 10 s)" in text
    server.beat()
    assert get(server, "/livez")[0] == 200


def test_liveness_does_not_depend_on_the_state(server: HttpServer, metrics: PipelineMetrics) -> None:
    for state in PipelineState:
        metrics.state(state, "broker is down")
        assert get(server, "/livez")[0] == 200


@pytest.mark.parametrize("state", list(PipelineState))
def test_readiness_is_running_and_tells_the_reason_otherwise(
    server: HttpServer, metrics: PipelineMetrics, state: PipelineState
) -> None:
    metrics.state(state, "because")
    status, _, text = get(server, "/readyz")
    assert status == (200 if state is PipelineState.RUNNING else 503)
    assert text == f"{state.value}: because\n"


def test_startup_is_over_when_the_daemon_is_up(server: HttpServer, metrics: PipelineMetrics) -> None:
    assert get(server, "/startupz")[0] == 503
    metrics.state(PipelineState.RESTORING, "waiting for the broker")
    assert get(server, "/startupz")[0] == 200


def test_metrics_come_as_text(server: HttpServer) -> None:
    status, content_type, text = get(server, "/metrics")
    assert status == 200
    assert content_type.startswith("text/plain")
    assert 'tidegate_pipeline_state{pipeline="shop",state="starting"} 1.0' in text


def test_status_is_json(server: HttpServer, metrics: PipelineMetrics) -> None:
    metrics.state(PipelineState.RESTORING, "reading the journal")
    _, content_type, text = get(server, "/status")
    status = json.loads(text)
    assert content_type.startswith("application/json")
    assert (status["pipeline"], status["state"], status["reason"]) == ("shop", "restoring", "reading the journal")
    assert status["last_checkpoint"] is None


def failure(cause: str) -> FailureRecord:
    return FailureRecord(
        failed_at_ms=1_700_000_000_000,
        attempt=Attempt(3),
        code="slot-lost",
        cause=cause,
        ran_ms=5000,
        followed_by=FollowedBy.RESTART,
        restart_after_ms=1000,
    )


def decline(metrics: PipelineMetrics, detail: str) -> None:
    """A checkpoint begins, and a subtask gives it up."""
    coordinator = running()
    events: list[Event] = [SubtaskRunning(subtask, 0) for subtask in sorted(SUBTASKS)]
    events += [TriggerRequested(0), AckReceived(ack(1, SOURCE), 4)]
    events += [DeclineReceived(Decline(ATTEMPT, CheckpointId(1), TOTALS, detail), 9)]
    for event in events:
        metrics.coordinator_answered(event, coordinator.handle(event))


def test_checkpoints_are_json_with_the_phases_of_every_subtask(server: HttpServer, metrics: PipelineMetrics) -> None:
    assert json.loads(get(server, "/checkpoints")[2]) == []
    decline(metrics, "disk full")
    _, content_type, text = get(server, "/checkpoints")
    assert content_type.startswith("application/json")
    (found,) = json.loads(text)
    assert (found["id"], found["kind"], found["result"]) == (1, "checkpoint", "failed")
    assert (found["duration_ms"], found["missing"]) == (9, [str(TOTALS)])
    (phases,) = found["subtasks"]
    assert (phases["vertex"], phases["slot"], phases["acknowledged_after_ms"]) == (SOURCE.vertex, 0, 4)
    assert {"start_delay_ms", "alignment_ms", "snapshot_ms", "upload_ms", "prepare_ms"} < phases.keys()


def test_failures_are_json_and_the_status_has_the_last(server: HttpServer, metrics: PipelineMetrics) -> None:
    assert json.loads(get(server, "/failures")[2]) == []
    metrics.attempt_failed(failure("slot 0 is lost"))
    metrics.attempt_failed(failure("slot 1 is lost"))
    found = json.loads(get(server, "/failures")[2])
    assert [one["cause"] for one in found] == ["slot 1 is lost", "slot 0 is lost"]
    assert (found[0]["attempt"], found[0]["followed_by"], found[0]["restart_after_ms"]) == (3, "restart", 1000)
    history = json.loads(get(server, "/status")[2])["history"]
    assert (history["failures"], history["last_failure"]) == (2, found[0])


def test_history_has_the_steps_that_are_asked_for(server: HttpServer, metrics: PipelineMetrics) -> None:
    assert json.loads(get(server, "/api/v1/history?step=orders")[2])["steps"] == {}
    metrics.beat()
    found = json.loads(get(server, "/api/v1/history")[2])
    assert (len(found["at_ms"]), found["pipeline"]["records_in_per_second"], found["steps"]) == (1, [0], {})
    status, _, text = get(server, "/api/v1/history?step=orders&step=nobody")
    assert (status, json.loads(text)["code"]) == (404, "unknown-step")
    assert json.loads(get(server, f"/api/v1/history?after_ms={found['at_ms'][0]}")[2])["at_ms"] == []


def test_the_index_names_the_paths_and_all_of_them_answer(server: HttpServer, metrics: PipelineMetrics) -> None:
    metrics.state(PipelineState.RUNNING)
    index = json.loads(get(server, "/")[2])
    assert index["paths"].items() >= PATHS.items()
    assert {f"{API}/{name}" for name in RESOURCE_ALIASES} <= index["paths"].keys()
    assert all(get(server, path)[0] == 200 for path in index["paths"])
    assert get(server, "/nothing")[0] == 404


def test_reasons_leave_without_secrets(server: HttpServer, metrics: PipelineMetrics) -> None:
    set_secrets(["hunter22"])
    try:
        metrics.state(PipelineState.FAILED, "login with hunter22 refused")
        assert get(server, "/readyz")[2] == "failed: login with *** refused\n"
        assert "hunter22" not in get(server, "/status")[2]
        metrics.attempt_failed(failure("login with hunter22 refused" + "." * 3000))
        decline(metrics, "login with hunter22 refused")
        severity, why = DiagnosisSeverity.PROBLEM, "hunter22 was refused"
        metrics.diagnosed(
            [Diagnosis(code="gave-up", severity=severity, sentence=why, remedy=why, evidence={"why": why})]
        )
        for path in ("/status", "/failures", "/checkpoints"):
            text = get(server, path)[2]
            assert "hunter22" not in text
            assert path == "/status" or "login with *** refused" in text
        assert len(json.loads(get(server, "/failures")[2])[0]["cause"]) == TEXT_CHARACTERS_MAX
    finally:
        set_secrets([])


def test_a_taken_port_is_refused_with_address_and_remedy(server: HttpServer, metrics: PipelineMetrics) -> None:
    port = int(server.address.rsplit(":", 1)[1])
    with pytest.raises(
        HttpUnavailable, match=rf"127\.0\.0\.1:{port} .*already in use; .*set http\.port to a free"
    ) as told:
        HttpServer("127.0.0.1", port, metrics).start()
    assert told.value.exit_code == 2
    assert told.value.fields == {"host": "127.0.0.1", "port": port}


def test_an_address_of_another_machine_is_refused(metrics: PipelineMetrics) -> None:
    with pytest.raises(HttpUnavailable, match=r"no such address: set http\.host"):
        HttpServer("192.0.2.1", 0, metrics).start()


def test_stop_closes_the_port_and_ends_the_threads(metrics: PipelineMetrics) -> None:
    before = sys.getswitchinterval()
    server = HttpServer("127.0.0.1", 0, metrics)
    server.start()
    assert get(server, "/metrics")[0] == 200
    assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
    server.stop()
    server.stop()
    assert sys.getswitchinterval() == before
    assert not any(thread.name == "http" for thread in threading.enumerate())
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(server, "/livez")


def test_probes_do_not_wait_for_a_scrape(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    rendering, go_on = threading.Event(), threading.Event()

    def slow() -> bytes:
        rendering.set()
        assert go_on.wait(PATIENCE_S)
        return b"late\n"

    monkeypatch.setattr(server, "_render_metrics", slow)
    answers: list[str] = []
    scrape = threading.Thread(target=lambda: answers.append(get(server, "/metrics")[2]))
    scrape.start()
    assert rendering.wait(PATIENCE_S)
    assert get(server, "/livez")[0] == 200
    assert answers == []
    go_on.set()
    scrape.join(10)
    assert answers == ["late\n"]


@pytest.mark.slow
def test_probes_answer_within_50_ms_next_to_a_busy_thread(
    server: HttpServer, record_property: Callable[[str, object], None]
) -> None:
    """In the time that the machine gives to this process: its busy thread never rests, so on a machine that does
    nothing else this is the time that a probe takes, and on a busy one it is not the time of others."""
    ended = threading.Event()

    def burn() -> None:
        count = 0
        while not ended.is_set():
            count += 1

    burner = threading.Thread(target=burn)
    burner.start()
    try:
        port = server.address.rpartition(":")[2]
        command = [sys.executable, "-c", PROBE_CLIENT, port, str(PROBES), str(os.getpid())]
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=350)
    finally:
        ended.set()
        burner.join()
    used_ms, wall_ms = (sorted(column) for column in zip(*json.loads(result.stdout), strict=True))
    for name, took_ms in (("probe_ms", wall_ms), ("probe_process_ms", used_ms)):
        p50, p90, p99 = (took_ms[PROBES * percent // 100] for percent in (50, 90, 99))
        record_property(name, {"p50": p50, "p99": p99})
        print(f"{name} next to a busy thread: p50 {p50:.1f}, p90 {p90:.1f}, p99 {p99:.1f}, max {took_ms[-1]:.1f}")
    assert used_ms[PROBES // 2] <= 50
    assert used_ms[PROBES * 9 // 10] <= 50, "the slowest tenth is left to whatever else this machine does"


def test_a_connection_that_arrives_at_the_very_end_is_closed(server: HttpServer) -> None:
    """The server is asked to end in the turn of its loop that accepts the connection."""
    loop, ended, connected = server._loop, server._ended, threading.Event()
    assert loop is not None and ended is not None
    host, _, port = server.address.removeprefix("http://").rpartition(":")
    with socket.socket() as late:

        def connect() -> None:
            late.connect((host, int(port)))
            loop.call_soon(ended.set)
            connected.set()

        loop.call_soon_threadsafe(connect)
        assert connected.wait(PATIENCE_S)
        late.settimeout(60)
        with contextlib.suppress(ConnectionResetError):  # closed as well
            assert late.recv(1) == b""
    server.stop()
    gc.collect()  # a transport that was left open says so now
