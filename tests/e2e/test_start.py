"""Where a pipeline begins is fixed before its first record is read."""

from __future__ import annotations

import re

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.processes import kill
from tests.waiting import wait_until
from tidegate.daemon.demo.verify import read_topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

READ = re.compile(r"tidegate_records_in_total\{.*\} [1-9]")


def test_F04_a_crash_before_the_first_checkpoint_does_not_move_the_start(make_rig: RigMaker) -> None:
    """`start: latest`: first a worker is killed, then the daemon, while no checkpoint is ever due."""
    rig = make_rig(seed=95, start="latest")
    daemon = rig.daemon(interval="5m").start().wait_running()
    rig.writer.start()
    wait_until(lambda: READ.search(daemon.http("/metrics")[1]) is not None, "records are read")
    assert kill(daemon.slots()[0])
    daemon.wait_for(r"attempt 2 is running")
    daemon.kill()
    assert daemon.completed_checkpoints() == 0
    assert not any(read_topic(rig.broker.bootstrap, rig.topic["paid"]))

    rig.outputs.start()
    again = rig.daemon(start="earliest").start().wait_running()
    again.wait_for("`start` is now earliest, but its positions were fixed by `start: latest`")
    rig.finish(again)
