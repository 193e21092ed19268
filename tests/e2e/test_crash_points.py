"""The daemon dies between two steps of a commit; a normal one goes on, and the output is exact (design section 5)."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.faulty_slot import POINTS as SLOT_POINTS
from tests.support.rig import Rig, completed_checkpoints, read_journal, restored_checkpoint
from tests.waiting import wait_until
from tidegate.sinks.facts import CoordinatorState
from tidegate.sinks.transactions import TransactionClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


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


@pytest.mark.parametrize(
    ("point", "decided", "left_open"),
    [
        ("before-append", False, "none"),
        ("half-committed", True, "some"),
    ],
)
def test_F01_a_crash_inside_a_commit_is_made_whole_by_the_next_daemon(
    make_rig: RigMaker, point: str, decided: bool, left_open: str
) -> None:
    """The third checkpoint with records is hit; what the journal holds then is committed, and is what is restored."""
    rig = loaded(make_rig(seed=21))
    crashed = crash(rig, point, 3)
    open_ones = [state is CoordinatorState.ONGOING for state in listed_states(rig)]
    assert open_ones, "the journal lists no transaction"
    assert {"none": not any(open_ones), "some": 0 < sum(open_ones) < len(open_ones)}[left_open]
    daemon = rig.daemon().start().wait_running()
    newest, restored = completed_checkpoints(crashed.text())[-1], restored_checkpoint(daemon.text())
    assert restored > newest if decided else restored == newest
    daemon.wait_for(rf"checkpoint {restored}: its {len(open_ones)} transactions are committed")
    rig.finish(daemon)


def test_C32_a_recovery_that_crashes_is_recovered_in_turn(make_rig: RigMaker) -> None:
    """Decided, not committed; the next daemon dies when it has taken over, the one after it when it has committed."""
    rig = loaded(make_rig(seed=22))
    first = crash(rig, "after-append", 2)
    crash(rig, "after-takeover", 1)
    crash(rig, "after-commit", 1)
    daemon = rig.daemon().start().wait_running()
    restored = restored_checkpoint(daemon.text())
    assert restored > max(completed_checkpoints(first.text()), default=0)
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
