"""The broker is away or hangs for a while: what a retry can cure needs no new attempt, nothing is lost or doubled."""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.daemon.broker import DevelopmentBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

OUTAGE_S = 20.0
HANG_S = 12.0
"""Longer than a request may take."""
AWAY = re.compile(r"tidegate_brokers_away_seconds\{.*\} [1-9]")


def test_F02_a_broker_that_is_away_for_20_s_is_waited_for_without_a_new_attempt(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    broker = own_broker()
    rig = make_rig(broker=broker, seed=71)
    daemon = rig.running()
    wait_until(lambda: daemon.status()["lag_records"] is not None, "the lag is known")
    began = wait_answered(daemon)
    broker.kill()
    killed = time.monotonic()
    wait_told(daemon, began)
    wait_until(lambda: AWAY.search(daemon.http("/metrics")[1]) is not None, "the metrics say that brokers are away")
    wait_out(killed + OUTAGE_S)
    check_not_green(daemon, broker, time.monotonic() - killed)
    ended = len(daemon.text())
    broker.start()
    wait_until(lambda: daemon.http("/readyz") == (200, "running\n"), "ready again")
    told, away_s = warnings_behind_an_outage(daemon, broker, began, ended)
    assert len(told) < 10 * max(1.0, away_s / OUTAGE_S), told
    finish_in_the_first_attempt(rig, daemon)


def test_F02_a_broker_that_hangs_is_told_and_waited_for_without_a_new_attempt(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    """Its connections stay open and nothing answers: clients notice by their timeouts only."""
    broker = own_broker()
    rig = make_rig(broker=broker, seed=73)
    daemon = rig.running()
    began = wait_answered(daemon)
    broker.pause()
    paused = time.monotonic()
    wait_told(daemon, began)
    wait_out(paused + HANG_S)
    ended = len(daemon.text())
    broker.resume()
    warnings_behind_an_outage(daemon, broker, began, ended)
    finish_in_the_first_attempt(rig, daemon)


def check_not_green(daemon: DaemonProcess, broker: DevelopmentBroker, away_s: float) -> None:
    """X18: in an outage nothing says that all is well, but that the process lives."""
    assert daemon.http("/livez")[0] == 200
    code, text = daemon.http("/readyz")
    assert code == 503
    assert text.startswith(f"waiting: no broker answers at {broker.bootstrap}: ")
    status: Any = daemon.status()
    assert status["state"] == "waiting"
    last = status["last_checkpoint"]  # there may have been none between the first look and the outage
    assert last is None or last["age_seconds"] > away_s - 8, "empty ones do not count"
    assert status["lag_records"] is not None
    assert status["lag_age_seconds"] > away_s - 8
    metrics = daemon.http("/metrics")[1]
    stamp = re.search(r"tidegate_checkpoint_last_success_timestamp_seconds\{.*\} (\S+)", metrics)
    assert stamp is not None
    assert time.time() - float(stamp[1]) > away_s - 8


def wait_out(until: float) -> None:
    """The length of an outage is what is tested."""
    threading.Event().wait(until - time.monotonic())


def wait_answered(daemon: DaemonProcess) -> int:
    """Until brokers answer; a broker that a busy machine does not run for some seconds counts as away, too.

    Returns the length of the log.
    """
    wait_until(lambda: daemon.status()["brokers_away_seconds"] == 0, "the status says that brokers answer")
    return len(daemon.text())


def wait_told(daemon: DaemonProcess, began: int) -> None:
    """Until the outage is told, and can be seen from outside."""
    wait_until(lambda: "no broker answers at" in daemon.text()[began:], "the outage is told")
    wait_until(lambda: daemon.status()["brokers_away_seconds"] != 0, "the status says that brokers are away")


def warnings_behind_an_outage(
    daemon: DaemonProcess, broker: DevelopmentBroker, began: int, ended: int
) -> tuple[list[str], float]:
    """All warnings of the outage and what followed, and the seconds that it lasted for the daemon.

    It was told once, its end was told, and what is told alternates; `began` and `ended` are lengths of the log.
    """
    daemon.wait_checkpoints(2)
    again = re.compile(rf"the brokers at {re.escape(broker.bootstrap)} answer again, after (\d+) s")
    wait_until(lambda: again.search(daemon.text()[ended:]) is not None, "the end of the outage is told")
    wait_answered(daemon)
    text = daemon.text()
    words = re.findall(r'"(?:no broker answers at|the brokers at \S+ answer again)', text[began:])
    assert len(re.findall(r'"no broker answers at', text[began:ended])) == 1, "of one cause, so it is not told again"
    assert ["no broker" in word for word in words] == [True, False] * (len(words) // 2), words
    told = [line for line in text[began:].splitlines() if '"level":"warning"' in line.replace(" ", "")]
    found = again.search(text[ended:])
    assert found is not None
    return told, float(found.group(1))


def finish_in_the_first_attempt(rig: Rig, daemon: DaemonProcess) -> None:
    """Output goes on; then the end, and everything exact."""
    rig.outputs.wait_more(rig.topic["totals"])
    assert daemon.attempt == 1, [line for line in daemon.text().splitlines() if "attempt failed" in line]
    rig.finish(daemon)
