"""A pipeline whose checkpoints are in a real S3 server that fails, hangs, is slow, loses and repeats answers, and is
killed, while daemons and workers are killed at seeded moments. Its output is exact, and so is what the store holds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.night.story import Night, Result
from tests.stores.servers import Server, name_s3, versitygw
from tests.support.command import tidegate
from tests.support.daemon_process import DaemonProcess
from tests.support.object_server import BUCKET
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.support.store_proxy import Asked, Fate, StoreProxy
from tidegate.coordinator.entries import Writer
from tidegate.dev.broker import DevelopmentBroker
from tidegate.journal.journal import Journal
from tidegate.storage.base import StorageOptions
from tidegate.storage.open import open_storage

FATES: Final = (Fate.FAIL, Fate.LOSE, Fate.TWICE, Fate.LATE, Fate.CUT)
TROUBLES: Final = (*(fate.name.lower() for fate in FATES), "hang", "slow", "store killed", "all fail")
KILLS: Final = ("daemon killed", "worker killed", "nobody killed")
SHARE: Final = 0.3
"""Of the requests that are hurt."""
SLOW_S: Final = 0.4


def run(night: Night, programs: Path) -> Result:
    """See the module."""
    broker = DevelopmentBroker(night.place / "broker")
    with (
        versitygw(programs, night.place) as store,
        StoreProxy(store.port) as proxy,
        broker.start(),
        Rig(broker, night.place / "rig", seed=night.seed, rate=400, **_place(proxy, night.place)) as rig,
    ):
        for planned in (*TROUBLES, *KILLS[:2]):
            night.least(planned)
        daemon = rig.running()
        savepoint = _take_savepoint(rig, daemon)
        for number in night.rounds(len(TROUBLES)):
            times, which = divmod(number - 1, len(TROUBLES))
            victim = KILLS[(which + times) % len(KILLS)]  # after three times all pairs
            daemon = _one(night, rig, proxy, store, daemon, TROUBLES[which], victim)
        for fate, count in proxy.hurt.items():
            night.count(f"requests with {fate.name}", count)
        night.finish(rig, daemon)
        _check_what_is_left(night, rig)
        _restore(night, rig, savepoint)
        return night.close()


def _take_savepoint(rig: Rig, daemon: DaemonProcess) -> str:
    """Into the bucket, outside the checkpoint directory; the commands find it and read all of it."""
    address = daemon.wait_for(r"(http://127\.0\.0\.1:\d+)").group(1)
    root = rig.pipeline.savepoint_roots[0]
    done = tidegate("savepoint", daemon.pipeline, f"{root}/mine", "--http", address, environ=daemon.environ)
    assert done.code == 0, done.text
    path = done.stdout.strip()
    assert path.startswith(f"{root}/mine/savepoint-"), path
    tidegate("savepoint", daemon.pipeline, f"{root}-not", "--http", address, environ=daemon.environ).says(
        1, "`savepoints.roots`"
    )
    tidegate("checkpoints", daemon.pipeline).says(0, "checkpoint")
    tidegate("savepoint", "list", "--verify", rig.write("elsewhere.yaml", savepoint_roots=(f"{root}/mine",))).says(
        0, path
    )
    return path


def _restore(night: Night, rig: Rig, savepoint: str) -> None:
    """Into another prefix; what was written since is written again."""
    night.least("restored from a savepoint")
    options = {"address": f"{rig.pipeline.address}-restored", "name": f"{rig.pipeline.name}-restored"}
    command = ("-m", "tidegate", "run", "--restore", savepoint, "--repeat-output")
    daemon = rig.daemon(*command, **options).start().wait_running()
    night.count("restored from a savepoint", "state of totals restored" in daemon.text())
    daemon.wait_checkpoints(2)
    if code := daemon.terminate():
        night.problem(f"restored from {savepoint}: exit code {code}: {daemon.text()[-1000:]}")


def _place(proxy: StoreProxy, place: Path) -> dict[str, Any]:
    options = name_s3("orders", proxy.port, place).options
    return {
        "address": f"s3://{BUCKET}/orders",
        "savepoint_roots": (f"s3://{BUCKET}/savepoints",),
        "storage": {
            "endpoint": options.endpoint,
            "region": options.region,
            "credentials_file": options.credentials_file,
        },
    }


def _one(
    night: Night, rig: Rig, proxy: StoreProxy, store: Server, daemon: DaemonProcess, trouble: str, victim: str
) -> DaemonProcess:
    """A trouble begins, somebody is killed in it, it ends: the pipeline continues."""
    hurt = sum(proxy.hurt.values())
    with _troubled(night, proxy, store, trouble):
        night.pause(0.5, 4.0)
        if victim == "daemon killed":
            daemon.kill()
            daemon = rig.daemon().start()  # it begins while the trouble lasts
            night.count(victim)
        elif victim == "worker killed":
            slots = daemon.slots()
            night.count(victim, bool(slots) and kill(night.dice.choice(slots)))
        night.pause(0.5, 6.0)
    happened = trouble in ("slow", "store killed") or sum(proxy.hurt.values()) > hurt
    night.count(trouble, happened)
    with night.recovery():
        if victim == "daemon killed":
            daemon = _running(night, rig, daemon)
        daemon.wait_checkpoints(2)
        night.wait_more(rig)
    return daemon


def _running(night: Night, rig: Rig, daemon: DaemonProcess) -> DaemonProcess:
    """A start in trouble may be refused with code 1, for its supervisor to repeat; not with another one."""
    try:
        return daemon.wait_running()
    except AssertionError:
        assert daemon.process is not None
        if daemon.process.poll() != 1:
            raise
        night.count("starts refused")
        return rig.daemon().start().wait_running()


@contextmanager
def _troubled(night: Night, proxy: StoreProxy, store: Server, trouble: str) -> Iterator[None]:
    dice = random.Random(night.dice.random())
    rules: dict[str, Callable[[Asked], Fate]] = {
        fate.name.lower(): lambda _, fate=fate: fate if dice.random() < SHARE else Fate.FORWARD  # type: ignore[misc]  # binds
        for fate in FATES
    }
    rules["hang"] = lambda _: Fate.HANG if dice.random() < SHARE else Fate.FORWARD
    rules["all fail"] = lambda _: Fate.FAIL
    before = proxy.rule
    try:
        if trouble == "store killed":
            store.kill()
        elif trouble == "slow":
            proxy.delay_s = SLOW_S
        else:
            proxy.rule = rules[trouble]
        yield
    finally:
        proxy.rule, proxy.delay_s = before, 0.0
        if trouble == "store killed":
            store.start()
        answers = proxy.land()
        night.count("late requests that arrived", len(answers))


def _check_what_is_left(night: Night, rig: Rig) -> None:
    """The retained checkpoints, and nothing that no later start would sweep."""
    options = StorageOptions(**rig.pipeline.storage)
    storage = open_storage(rig.pipeline.address, create=False, options=options)
    state = Journal(storage, Writer("reader", "", 0), retained=3, id_reserve=1).read()
    listed = {handle.path for entry in state.retained for handle in entry.checkpoint.states}
    there = set(storage.list("state/"))
    if missing := listed - there:
        night.problem(f"listed, but not there: {sorted(missing)[:5]}")
    night.count("objects at the end", len(storage.list("")))
    night.count("of them state that is not listed", len(there - listed))
    if others := [name for name in storage.list("") if not name.startswith(("journal/", "state/"))]:
        night.count("probes and proofs that killed daemons have left", len(others))
