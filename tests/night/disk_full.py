"""The disk of the checkpoint directory is full for a while, again and again; sometimes a slot dies meanwhile, too."""

from __future__ import annotations

import re

from tests.night.story import Night, Result
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.support.small_disk import empty, fill, view
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

MIB = 48
FULL = re.compile(r"No space left on device|ENOSPC|disk is full")


def run(night: Night) -> Result:
    """See the module."""
    broker = DevelopmentBroker(night.place / "broker")
    with broker.start(), Rig(broker, night.place / "rig", seed=night.seed, rate=500) as rig:
        rig.writer.start()
        rig.outputs.start()
        small = ("-m", "tests.support.small_disk", str(rig.pipeline.directory), str(MIB))
        daemon = rig.daemon(*small).start().wait_running()
        daemon.wait_committed()
        night.least("disk full", 2)
        night.least("slots killed meanwhile")
        for number in night.rounds(2):
            _fill(night, rig, daemon, dies=number % 2 == 0)
        return night.finish(rig, daemon)


def _fill(night: Night, rig: Rig, daemon: DaemonProcess, *, dies: bool) -> None:
    night.pause(0.0, 2.0)
    disk, attempt = view(daemon.pid, rig.pipeline.directory), daemon.attempt
    mark = len(daemon.text())
    try:
        night.count("bytes taken", fill(disk))
        wait_until(lambda: FULL.search(daemon.text()[mark:]) is not None, "the daemon reports that the disk is full")
        night.count("disk full")
        if dies:
            night.count("slots killed meanwhile", kill(night.dice.choice(sorted(daemon.slots()) or [daemon.pid])))
        night.pause(1.0, 20.0)
    finally:
        empty(disk)
    with night.recovery():
        if dies:
            daemon.wait_attempt(attempt)
        daemon.wait_checkpoints(2)
        night.wait_more(rig)
