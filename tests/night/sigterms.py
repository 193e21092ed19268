"""Many SIGTERMs at random moments: while starting, while running, once and twice; every next daemon goes on exactly."""

from __future__ import annotations

import signal

from tests.night.story import Night, Result
from tests.support.processes import find_descendants, is_alive
from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

SIGNALS = 60
"""In a night of full length."""
STARTING_S_MAX = 12.0
RUNNING_S_MAX = 5.0
TWICE_S_MAX = 1.5
KILLED = -signal.SIGTERM
"""By the signal itself: the daemon's code was not reached yet."""


def run(night: Night) -> Result:
    """See the module."""
    planned = max(6, round(SIGNALS * night.scale))
    night.least("SIGTERMs", planned)
    broker = DevelopmentBroker(night.place / "broker")
    with broker.start(), Rig(broker, night.place / "rig", seed=night.seed, rate=400) as rig:
        rig.writer.start()
        rig.outputs.start()
        for number in range(planned):
            _one(night, rig, ("starting", "running", "twice")[number % 3])
        with night.recovery():
            daemon = rig.daemon().start().wait_running()
            daemon.wait_committed()
        return night.finish(rig, daemon)


def _one(night: Night, rig: Rig, when: str) -> None:
    daemon = rig.daemon()
    if when == "starting":
        daemon.start()
        night.pause(0.0, STARTING_S_MAX)
    else:
        with night.recovery():
            daemon.start().wait_running()
        night.pause(0.0, RUNNING_S_MAX)
    below = [process.pid for process in find_descendants(daemon.pid)]
    assert daemon.process is not None
    daemon.assert_alive()
    listening = daemon.text().count("\n") > 1  # the first line is logged before signals are listened to
    daemon.process.send_signal(signal.SIGTERM)
    if when == "twice":
        night.pause(0.0, TWICE_S_MAX)
        daemon.process.send_signal(signal.SIGTERM)
    code = daemon.wait()
    night.count("SIGTERMs")
    night.count(f"{when}, exit code {code}")
    allowed = {0, *([143] if when == "twice" else [] if listening else [KILLED])}
    if code not in allowed:
        night.problem(f"SIGTERM while {when}: exit code {code}: {daemon.text()[-1000:]}")
    wait_until(lambda: not any(map(is_alive, below)), "nothing of the daemon is left")
    rig.assert_clean()
