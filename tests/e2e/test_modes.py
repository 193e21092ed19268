"""Other parallelism between runs, and the at-least-once mode: what is promised for each, with crashes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(1800)]


def test_F20_at_least_once_loses_nothing_when_a_worker_is_killed(make_rig: RigMaker) -> None:
    rig = make_rig(seed=82, mode="at-least-once")
    daemon = rig.running()
    check_counts(rig, daemon)
    attempt = daemon.attempt
    assert kill(daemon.slots()[0])
    daemon.wait_attempt(attempt)
    check_history(daemon, attempt)
    rig.wait_output()
    assert daemon.terminate() == 0, daemon.text()[-3000:]
    for verdict in rig.verdicts():
        assert verdict.expected > 0
        assert verdict.lost == 0, verdict.examples


def check_counts(rig: Rig, daemon: DaemonProcess) -> None:
    """While nothing has failed, every operator has counted exactly the orders that went through it."""
    rig.pause()
    orders = rig.writer.orders
    every, paid = len(orders), sum(order.status == "paid" for order in orders)
    through = {
        "orders": (every, every, 0),
        "paid": (every, paid, every - paid),
        "priced": (paid, paid, 0),
        "paid_orders": (paid, paid, 0),
        "totals": (every, every, 0),
        "sku_totals": (every, every, 0),
    }

    def counted() -> dict[str, Any]:
        found: Any = daemon.status()["operators"]
        return {one["name"]: one for one in found}

    def rows(one: dict[str, Any]) -> tuple[int, int, int]:
        return one["rows_in"], one["rows_out"], one["filtered"]

    wait_until(lambda: through.items() <= {name: rows(one) for name, one in counted().items()}.items(), "the counts")
    for one in counted().values():
        assert one["busy_seconds"] > 0, one
        assert [part["slot"] for part in one["subtasks"]] == [0, 1]
    rig.writer.resume()


def check_history(daemon: DaemonProcess, attempt: int) -> None:
    """The kill is a failure that a restart followed, and the checkpoints have the phases of every subtask."""
    failures = json.loads(daemon.http("/failures")[1])
    assert [one["attempt"] for one in failures] == [attempt], failures
    (failure,) = failures
    assert failure["followed_by"] == "restart"
    assert "slot" in failure["cause"]
    checkpoints = json.loads(daemon.http("/checkpoints")[1])
    completed = [one for one in checkpoints if one["result"] == "completed"]
    assert {one["attempt"] for one in completed} >= {attempt, daemon.attempt}
    subtasks = {(phases["vertex"], phases["slot"]) for phases in completed[0]["subtasks"]}
    assert len(subtasks) >= 4, "two vertices in two slots"
    for one in completed:
        assert (one["missing"], {(phases["vertex"], phases["slot"]) for phases in one["subtasks"]}) == ([], subtasks)
