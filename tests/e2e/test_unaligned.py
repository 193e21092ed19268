"""Unaligned checkpoints on Spark and a real broker: a slow sink, rows in flight, kills; the output stays exact."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.object_server import BUCKET, ObjectServer, write_credentials
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.support.store_proxy import Fate, StoreProxy
from tests.waiting import wait_until
from tidegate.slot.copies import PREFIX

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(1800)]

SLOW_SINK = {"queue.buffering.max.messages": "100", "linger.ms": "50"}
"""About 2,000 records a second and subtask: the client takes no more until it has sent, every 50 ms, what it has."""
ORDERS = 40_000
FATES = (Fate.FAIL, Fate.LOSE, Fate.TWICE)
IN_FLIGHT = r"checkpoint \d+ completed .*of it rows in flight"
RESTORED = r"[1-9]\d* rows? in flight towards totals restored"


def loaded(rig: Rig) -> Rig:
    """All orders are written before anything runs: the sink is behind from the start."""
    rig.writer.start()
    wait_until(lambda: len(rig.writer.orders) >= ORDERS, "the orders are written")
    rig.writer.stop()
    rig.outputs.start()
    return rig


def test_B50_rows_in_flight_are_restored_behind_kills_and_move_with_their_keys_to_another_number_of_slots(
    make_rig: RigMaker, trouble: StoreProxy, tmp_path: Path
) -> None:
    """A worker and the daemon are killed with rows in flight; the next daemon has three slots, aligns for 100 ms at
    most, and loses a worker, too. Checkpoints are in an object store that fails, loses answers and answers twice; the
    next daemon has no copies of them, as on another machine.
    """
    store = {"address": f"s3://{BUCKET}/orders", "storage": trouble_storage(trouble, tmp_path)}
    rig = loaded(make_rig(seed=91, rate=20_000.0, unaligned="always", totals_kafka=SLOW_SINK, **store))
    first = rig.daemon().start().wait_running()
    lose_a_worker(first)
    wait_another(first, IN_FLIGHT)
    first.kill()
    assert "bytes from copies on this machine, 0 from s3://" in first.text()
    shutil.rmtree(rig.scratch / f"{PREFIX}{os.geteuid()}")
    second = rig.daemon(parallelism=3, master="local[3]", unaligned="after 100ms").start().wait_running()
    second.wait_for(RESTORED)
    lose_a_worker(second)
    rig.finish(second)
    assert min(trouble.hurt.get(fate, 0) for fate in FATES) > 0, trouble.hurt


@pytest.fixture
def trouble() -> Iterator[StoreProxy]:
    """A small object store; of its requests every ninth is hurt, and no call fails for it."""
    with ObjectServer() as server, StoreProxy(server.port) as proxy:
        asked = itertools.count(1)
        fates = itertools.cycle(FATES)
        proxy.rule = lambda _: next(fates) if next(asked) % 9 == 0 else Fate.FORWARD
        yield proxy


def trouble_storage(proxy: StoreProxy, tmp_path: Path) -> dict[str, str]:
    """How the pipeline reaches it."""
    return {"endpoint": proxy.endpoint, "credentials_file": str(write_credentials(tmp_path / "credentials"))}


def lose_a_worker(daemon: DaemonProcess) -> None:
    """After a checkpoint with rows in flight, which are restored."""
    wait_another(daemon, IN_FLIGHT)
    restored = len(re.findall(RESTORED, daemon.text()))
    assert kill(daemon.slots()[0])
    wait_another(daemon, RESTORED, restored)


def wait_another(daemon: DaemonProcess, pattern: str, seen: int | None = None) -> None:
    """Until the log has one more match than the `seen` ones, those of now by default."""
    before = len(re.findall(pattern, daemon.text())) if seen is None else seen

    def found() -> bool:
        daemon.assert_alive()
        return len(re.findall(pattern, daemon.text())) > before

    wait_until(found, f"another {pattern!r}")
