"""The broker is away or hangs for a while: what a retry can cure needs no new attempt, nothing is lost or doubled.

In a crash Kafka can lose markers: the daemon finds the committed transactions that nobody would end, and ends them.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Any

import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.lost_markers import lose_newest_markers
from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(1800)]

OUTAGE_S = 20.0
HANG_S = 12.0
"""Longer than a request may take."""
STUCK = "although brokers answer"
"""What alone may cost an attempt. After the hang of the only broker a producer of the client now and then delivers
nothing more (librdkafka 2.16, cause unknown), and is replaced with its attempt after 120 s."""
WRITTEN = re.compile(r"tidegate_records_out_total\{.*\} [1-9]")
AWAY = re.compile(r"tidegate_brokers_unavailable_seconds\{.*\} [1-9]")


def test_F01_F02_a_broker_that_is_away_or_hangs_is_waited_for_in_one_attempt_and_markers_that_it_loses_are_written(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    """By a daemon that is stopped it is not waited for."""
    broker = own_broker()
    rig = make_rig(broker=broker, seed=71)
    rig.writer.start()
    rig.outputs.start()
    stop_without_a_broker(rig, broker)
    daemon = rig.running()
    attempt = daemon.attempt
    be_away(daemon, broker)
    hang(daemon, broker)
    rig.outputs.wait_more(rig.topic["totals"])
    lost = [line for line in daemon.text().splitlines() if "attempt failed" in line]
    assert daemon.attempt == attempt + len(lost)
    assert len(lost) <= 1, lost
    assert all(STUCK in line for line in lost), lost
    lose_markers_while_running(rig, daemon)
    assert daemon.terminate() == 0
    daemon = rig.running(transaction_timeout="40s", checkpoint_timeout="20s")
    outlast_transactions(daemon, broker)
    rig.finish(daemon)


def stop_without_a_broker(rig: Rig, broker: DevelopmentBroker) -> None:
    """With something to save, SIGTERM ends within the grace, with exit code 6."""
    daemon = rig.daemon(interval="5m", shutdown_grace="3s").start().wait_running()
    wait_until(lambda: WRITTEN.search(daemon.http("/metrics")[1]) is not None, "a transaction is open")
    broker.kill()
    assert daemon.terminate() == 6, daemon.text()[-3000:]
    assert "Traceback" not in daemon.text()
    rig.assert_clean()
    assert "within 3 s (runtime.shutdown_grace)" in daemon.text() or "after the grace period of 3 s" in daemon.text()
    broker.start()


def be_away(daemon: DaemonProcess, broker: DevelopmentBroker) -> None:
    """For 20 s, which is reported, and can be seen from outside."""
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


def hang(daemon: DaemonProcess, broker: DevelopmentBroker) -> None:
    """Its connections stay open and nothing answers: clients notice by their timeouts only."""
    began = wait_answered(daemon)
    broker.pause()
    paused = time.monotonic()
    wait_told(daemon, began)
    wait_out(paused + HANG_S)
    ended = len(daemon.text())
    broker.resume()
    warnings_behind_an_outage(daemon, broker, began, ended)


def outlast_transactions(daemon: DaemonProcess, broker: DevelopmentBroker) -> None:
    """The attempt is waited with as long as its transactions last, and the next one begins when brokers answer."""
    attempt = daemon.attempt
    daemon.wait_committed()
    broker.kill()
    daemon.wait_for(
        r"attempt failed .* approaches the broker's time limit and no broker answers; .* does not count for "
        "`restart.give_up_after`; retrying when they answer"
    )
    code, text = daemon.http("/readyz")
    assert code == 503
    assert re.match(rf"waiting: no broker answers at {re.escape(broker.bootstrap)}: .* \(for \d\d\.\d s\)$", text), text
    assert daemon.status()["state"] == "waiting"
    assert daemon.status()["reason"]
    broker.start()
    daemon.wait_attempt(attempt)
    assert daemon.attempt == attempt + 1


def lose_markers_while_running(rig: Rig, daemon: DaemonProcess) -> None:
    """The ids of the transactions are used again, too: only after their markers are there."""
    rig.pause()
    lose_newest_markers(rig)
    rig.writer.resume()
    daemon.wait_for("commit marker was missing in .* The marker is written now")


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
    wait_until(lambda: daemon.status()["brokers_unavailable_seconds"] == 0, "the status says that brokers answer")
    return len(daemon.text())


def wait_told(daemon: DaemonProcess, began: int) -> None:
    """Until the outage is reported, and can be seen from outside."""
    wait_until(lambda: "no broker answers at" in daemon.text()[began:], "the outage is reported")
    wait_until(lambda: daemon.status()["brokers_unavailable_seconds"] != 0, "the status says that brokers are away")


def warnings_behind_an_outage(
    daemon: DaemonProcess, broker: DevelopmentBroker, began: int, ended: int
) -> tuple[list[str], float]:
    """All warnings of the outage and what followed, and the seconds that it lasted for the daemon.

    It was reported once, its end, too, and the reports alternate; `began` and `ended` are lengths of the log.
    """
    daemon.wait_checkpoints(2)
    again = re.compile(rf"the brokers at {re.escape(broker.bootstrap)} answer again, after (\d+) s")
    wait_until(lambda: again.search(daemon.text()[ended:]) is not None, "the end of the outage is reported")
    wait_answered(daemon)
    text = daemon.text()
    words = re.findall(r'"(?:no broker answers at|the brokers at \S+ answer again)', text[began:])
    assert len(re.findall(r'"no broker answers at', text[began:ended])) == 1, "of one cause, so reported once"
    assert ["no broker" in word for word in words] == [True, False] * (len(words) // 2), words
    told = [line for line in text[began:].splitlines() if '"level":"warning"' in line.replace(" ", "")]
    found = again.search(text[ended:])
    assert found is not None
    return told, float(found.group(1))
