"""Nothing comes for 1,000 seconds, while brokers forget idle producers; then the first record is there at once.

The attempt continues, the probe is green all the time, and neither the checkpoint directory grows, nor the log by more
than a few lines and one a minute.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.night.story import Night, Result
from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

IDLE_S = 1000.0
"""In a night of full length."""
FORGETS_SHARE = 0.1
"""Of the idle time, after which a broker forgets a transactional id that nobody used."""
LOOK_S = 5.0
LINES_MAX = 20
"""On top of one a minute about idle checkpoints."""
FILES_MORE_MAX = 10
AFTER_S_MAX = 30.0


def run(night: Night) -> Result:
    """See the module."""
    idle_s = max(60.0, IDLE_S * night.scale)
    properties = {
        "transactional.id.expiration.ms": str(round(idle_s * FORGETS_SHARE * 1000)),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    }
    broker = DevelopmentBroker(night.place / "broker", properties=properties)
    with broker.start(), Rig(broker, night.place / "rig", seed=night.seed, rate=500) as rig:
        daemon = rig.running()
        daemon.wait_checkpoints(3)
        rig.pause()
        attempt, files, mark = daemon.attempt, _files(rig.pipeline.directory), len(daemon.text())
        completed = daemon.completed_checkpoints()
        night.least("idle seconds", round(idle_s))
        night.least("looks", round(idle_s / LOOK_S / 2))
        began = time.monotonic()
        while time.monotonic() - began < idle_s:
            night.pause(LOOK_S, LOOK_S)
            answer = daemon.http("/readyz")
            night.count("looks")
            if answer[0] != 200:
                night.problem(f"/readyz of an idle pipeline: {answer}")
        night.count("idle seconds", time.monotonic() - began)
        night.count("more files", _files(rig.pipeline.directory) - files)
        lines = daemon.text()[mark:].splitlines()
        night.count("checkpoints", daemon.completed_checkpoints() - completed)
        if len(lines) > LINES_MAX + idle_s / 60:
            night.problem(f"an idle daemon has logged {len(lines)} lines, among them: {lines[:5]}")
        if _files(rig.pipeline.directory) > files + FILES_MORE_MAX:
            night.problem(
                f"the checkpoint directory of an idle pipeline has {night.result.done['more files']} more files"
            )
        seen = rig.outputs.count(rig.topic["totals"])
        rig.writer.resume()
        with night.recovery():
            wait_until(lambda: rig.outputs.count(rig.topic["totals"]) > seen, "the first record after the pause")
        if night.result.slowest_recovery_s > AFTER_S_MAX:
            night.problem(f"the first record was seen {night.result.slowest_recovery_s} s after it came")
        daemon.wait_checkpoints(2)
        if daemon.attempt != attempt:
            night.problem(f"the idle attempt {attempt} has ended; attempt {daemon.attempt} runs")
        return night.finish(rig, daemon)


def _files(directory: Path) -> int:
    return sum(not path.is_dir() for path in directory.rglob("*"))
