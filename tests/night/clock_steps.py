"""The wall clock of the daemon's machine is set, by seconds to a day, while it runs and while it is down (X05, X06)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.night.story import Night, Result
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.support.stepping_daemon import set_step
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

STEPS_S = (5.0, 90.0, 1200.0, 3600.0, 86_400.0)
NOTICED = re.compile(r"the wall clock of this machine was set")
WAYS = ("while running", "while running", "and a slot dies", "while down")


def run(night: Night) -> Result:
    """See the module."""
    broker = DevelopmentBroker(night.place / "broker")
    step = night.place / "step"
    set_step(step, 0.0)
    with broker.start(), Rig(broker, night.place / "rig", seed=night.seed, rate=500) as rig:
        rig.writer.start()
        rig.outputs.start()
        daemon = _start(rig, step)
        for what in ("steps forward", "steps back", *WAYS):
            night.least(what)
        at = 0.0
        for number in night.rounds(len(WAYS)):
            way, forward = WAYS[(number - 1) % len(WAYS)], number % 2 == 1
            at += night.dice.choice(STEPS_S) * (1 if forward else -1)
            if way == "while down":
                assert daemon.terminate() == 0, daemon.text()[-1500:]
                set_step(step, at)
                daemon = _start(rig, step)
            else:
                _set(night, daemon, step, at, slot_dies=way == "and a slot dies")
            night.count(way)
            night.count("steps forward" if forward else "steps back")
            with night.recovery():
                daemon.wait_checkpoints(2)
                night.wait_more(rig)
        return night.finish(rig, daemon)


def _start(rig: Rig, step: Path) -> DaemonProcess:
    daemon = rig.daemon("-m", "tests.support.stepping_daemon", str(step)).start().wait_running()
    daemon.wait_committed()
    return daemon


def _set(night: Night, daemon: DaemonProcess, step: Path, at: float, *, slot_dies: bool) -> None:
    """Set the clock of a running daemon, which says so."""
    noticed, attempt = len(NOTICED.findall(daemon.text())), daemon.attempt
    night.pause(0.0, 2.0)
    set_step(step, at)
    if slot_dies:
        assert kill(night.dice.choice(sorted(daemon.slots()))), "the slot was gone before the kill"
        daemon.wait_attempt(attempt)
    wait_until(lambda: len(NOTICED.findall(daemon.text())) > noticed, "the step is reported")
    if not slot_dies and daemon.attempt != attempt:
        night.problem(f"a step to {at} s ended attempt {attempt}")
