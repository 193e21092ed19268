"""A running pipeline under seeded kills, and the check that no record was lost, duplicated or reordered.

A scenario has its own broker, a writer thread that produces orders at a steady rate, and a daemon on `local-cluster`.
What to kill and how long to wait is drawn from the printed seed; only kills that took place are counted. Afterwards the
daemon processes the remaining input and ends (exit 0), and an independent reader compares both outputs with its own
computation.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import msgspec

from tests.support.daemon_process import DaemonProcess
from tests.support.processes import is_alive, kill
from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.demo.verify import DemoVerdict

KINDS = ("worker", "executor", "daemon", "broker")


class Recovery(msgspec.Struct, frozen=True):
    """One kill.

    `seconds` is the time from the kill to the first checkpoint with records after it; `phases` breaks it down.
    """

    kind: str
    seconds: float
    phases: dict[str, float]
    cause: str
    """Why the previous attempt ended, as the daemon reports; empty if the same attempt continued."""


class Outcome(msgspec.Struct):
    """The actions and results of a scenario."""

    seed: int
    orders: int
    kills: dict[str, int]
    recoveries: list[Recovery]
    paid: DemoVerdict
    totals: DemoVerdict
    halves: tuple[DemoVerdict, ...] = ()

    @property
    def exact(self) -> bool:
        """True if all outputs are correct."""
        return all(one.exact for one in (self.paid, self.totals, *self.halves))

    def line(self) -> str:
        """Returns a one-line summary."""
        lost, doubled = self.paid.lost + self.totals.lost, self.paid.doubled + self.totals.doubled
        disorder, wrong = self.paid.out_of_order + self.totals.out_of_order, self.paid.wrong + self.totals.wrong
        slowest = max((recovery.seconds for recovery in self.recoveries), default=0.0)
        return (
            f"seed {self.seed}: {self.orders} orders, kills {self.kills}, lost {lost}, doubled {doubled}, "
            f"out of order {disorder}, wrong {wrong}, slowest recovery {slowest:.1f} s"
        )


class Scenario:
    """One scenario as described in the module. All its files are in `directory`."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        *,
        master: str = "local-cluster[2,1,512]",
        interval: str = "500ms",
        rate: float = 4000.0,
        transaction_version: int = 2,
        spark: Mapping[str, str] | None = None,
        halves: bool = False,
    ) -> None:
        self.seed = seed
        self.broker = DevelopmentBroker(directory / "broker", transaction_version=transaction_version).start()
        self.kills: Counter[str] = Counter()
        self.recoveries: list[Recovery] = []
        self._dice = random.Random(seed)
        self.rig = Rig(
            self.broker,
            directory,
            seed=seed,
            rate=rate,
            master=master,
            interval=interval,
            spark=dict(spark or {}),
            halves=halves,
        )
        self.daemon: DaemonProcess = self.rig.running()

    def kill_one(self, kind: str) -> Recovery:
        """Kills a process of this kind at a seeded moment and waits until records are committed again."""
        pause = self._dice.uniform(0.05, 1.5)
        threading.Event().wait(pause)
        attempt, mark = self.daemon.attempt, len(self.daemon.text())
        started, started_at = time.monotonic(), time.time()
        gone: dict[str, float] = {}
        match kind:
            case "worker":
                self._kill_running(self.daemon.slots)
            case "executor":
                self._kill_running(self.daemon.executors)
            case "daemon":
                below = self.daemon.kill()
                assert below, "the daemon had no processes"
                wait_until(lambda: not any(map(is_alive, below)), "the daemon's processes have ended")
                gone["gone"] = round(time.monotonic() - started, 2)
                self.daemon.start()
                mark = 0
            case "broker":
                self.broker.kill()
                self.broker.start()
            case _:
                raise ValueError(kind)
        self.kills[kind] += 1
        if kind == "broker":
            self.daemon.wait_checkpoints(2)
        else:
            self.daemon.wait_attempt(attempt)
        seconds = time.monotonic() - started
        told = re.search(r"attempt failed after [\d.]+ s: ([^\n]*)", self.daemon.text()[mark:])
        phases = gone | self.daemon.phases(mark, started_at)
        recovery = Recovery(kind, seconds, phases, "" if told is None else told.group(1))
        self.recoveries.append(recovery)
        way = ", ".join(f"{what} {at:.1f}" for what, at in recovery.phases.items())
        print(f"  {kind} killed after {pause:.2f} s: recovered in {recovery.seconds:.1f} s ({way})", flush=True)
        return recovery

    def run_kills(self, count: int, kinds: tuple[str, ...] = KINDS) -> None:
        """Kills `count` times in shuffled rounds that contain every kind once."""
        plan: list[str] = []
        while len(plan) < count:
            plan += self._dice.sample(kinds, len(kinds))
        for kind in plan[:count]:
            self.kill_one(kind)
        assert sum(self.kills.values()) == count, "a planned kill did not happen"

    def finish(self) -> Outcome:
        """Stops the writer, lets the daemon process the rest and end, and compares the outputs."""
        self.rig.wait_output()
        code = self.daemon.terminate()
        assert code == 0, f"SIGTERM: exit code {code}\n{self.daemon.text()[-3000:]}"
        paid, totals, *halves = self.rig.verdicts()
        return Outcome(
            seed=self.seed,
            orders=len(self.rig.writer.orders),
            kills=dict(self.kills),
            recoveries=self.recoveries,
            paid=paid,
            halves=tuple(halves),
            totals=totals,
        )

    def close(self) -> None:
        """Ends all processes."""
        self.rig.close()
        self.broker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _kill_running(self, find: Callable[[], list[int]]) -> None:
        found: list[int] = []

        def look() -> bool:
            found[:] = sorted(find())
            return bool(found)

        wait_until(look, "there is a process to kill")
        assert kill(self._dice.choice(found)), "the process was gone before the kill"
