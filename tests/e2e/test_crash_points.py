"""The daemon dies between two steps of a commit; a normal one goes on, and the output is exact (design section 5)."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.faulty_slot import POINTS as SLOT_POINTS
from tests.support.rig import Rig, read_journal, restored_checkpoint
from tests.waiting import wait_until
from tidegate.kafka.facts import CoordinatorState
from tidegate.kafka.transactions import TransactionClient

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(1800)]


def crash(rig: Rig, point: str, nth: int) -> DaemonProcess:
    """A daemon that dies at the point; fails when it ends in any other way."""
    daemon = rig.daemon("-m", "tests.support.faulty_daemon", point, str(nth)).start()
    code = daemon.wait()
    assert code == -signal.SIGKILL, f"exit code {code}\n{daemon.text()[-4000:]}"
    assert f"fault: {point}" in daemon.text(), "the planned fault did not happen"
    return daemon


def loaded(rig: Rig) -> Rig:
    rig.writer.start()
    rig.outputs.start()
    wait_until(lambda: len(rig.writer.orders) > 0, "there is input")
    return rig


def listed_states(rig: Rig) -> list[CoordinatorState]:
    """What the broker says about the transactions that the newest journal entry lists."""
    state = read_journal(rig.pipeline.directory)
    client = TransactionClient({"bootstrap.servers": rig.broker.bootstrap})
    try:
        found = [client.describe(one.transactional_id) for one in state.committables]
    finally:
        client.close()
    return [one.state for one in found if one is not None]


def newest_decided(rig: Rig) -> int:
    """The newest checkpoint of the journal."""
    newest = read_journal(rig.pipeline.directory).newest_checkpoint
    assert newest is not None
    return newest.id


def check_made_whole(daemon: DaemonProcess, checkpoint: int, transactions: int) -> None:
    """It continues from this checkpoint, when all that was decided is committed."""
    daemon.wait_for(rf"checkpoint {checkpoint}: {transactions} transactions? committed")
    assert restored_checkpoint(daemon.text()) == checkpoint


def test_F01_C32_crashes_inside_commits_and_inside_a_recovery_are_made_whole_by_the_next_daemon(
    make_rig: RigMaker,
) -> None:
    """The third checkpoint with records is hit, before its decision and after it; then the recovery from the latter.

    What the journal holds is committed, and is what is restored. All other points are passed in one process:
    tests/sinks/test_salvage_crash_points.py.
    """
    rig = loaded(make_rig(seed=21))
    crash(rig, "before-append", 3)
    states, undecided = listed_states(rig), newest_decided(rig)
    assert states, "the journal lists no transaction"
    assert CoordinatorState.ONGOING not in states

    halved = crash(rig, "half-committed", 3)
    check_made_whole(halved, undecided, len(states))
    states = listed_states(rig)
    assert 0 < states.count(CoordinatorState.ONGOING) < len(states)
    decided = newest_decided(rig)
    assert decided > undecided

    crash(rig, "after-takeover", 1)
    daemon = rig.daemon().start().wait_running()
    check_made_whole(daemon, decided, len(states))
    rig.finish(daemon)


def test_F01_slots_that_die_between_the_steps_of_their_part_of_a_checkpoint_leave_the_output_exact(
    make_rig: RigMaker,
) -> None:
    """Upload, flush, proof, ack, completion: one attempt for each, killed at its third passage."""
    rig = loaded(make_rig(seed=23, restart_max="100ms"))
    daemon = rig.daemon("-m", "tests.support.faulty_slot", "3").start()
    daemon.wait_for(rf"attempt {len(SLOT_POINTS) + 1} is running")
    for point in SLOT_POINTS:
        assert f"fault: {point}" in daemon.text(), f"the planned fault {point} did not happen"
    daemon.wait_committed()
    rig.finish(daemon)
