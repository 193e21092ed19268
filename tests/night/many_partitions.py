"""Topics of 200 partitions: slots, the daemon and the broker are killed under load."""

from __future__ import annotations

from tests.night.story import Night, Result
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import kill
from tests.support.rig import Rig
from tidegate.dev.broker import DevelopmentBroker

PARTITIONS = 200
KINDS = ("slot", "daemon", "broker")


def run(night: Night) -> Result:
    """See the module."""
    broker = DevelopmentBroker(night.place / "broker", heap_mib=512)
    with (
        broker.start(),
        Rig(broker, night.place / "rig", seed=night.seed, rate=500, partitions=PARTITIONS, interval="1s") as rig,
    ):
        daemon = rig.running()
        for kind in KINDS:
            night.least(f"{kind} killed")
        for number in night.rounds(len(KINDS)):
            kind = KINDS[(number - 1) % len(KINDS)]
            night.pause(0.1, 3.0)
            with night.recovery():
                _kill(night, broker, daemon, kind)
                daemon.wait_committed()
                daemon.wait_checkpoints(2)
            night.count(f"{kind} killed")
        return night.finish(rig, daemon)


def _kill(night: Night, broker: DevelopmentBroker, daemon: DaemonProcess, kind: str) -> None:
    attempt = daemon.attempt
    if kind == "slot":
        assert kill(night.dice.choice(sorted(daemon.slots()))), "the slot was gone before the kill"
        daemon.wait_attempt(attempt)
    elif kind == "daemon":
        assert daemon.kill(), "the daemon had no processes"
        daemon.start().wait_running()
    else:
        broker.kill()
        broker.start()
