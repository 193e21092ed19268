"""Damaged checkpoint files, another cluster: the start is refused, with the place and the remedy.

A topic that was deleted and created again: tests/checks/test_survey.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BrokerMaker, SessionBroker
from tests.support.rig import Rig, read_journal
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.restore_target import derive_candidates, derive_newer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def truncate(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(bytes(data))


def stopped(rig: Rig, **overrides: Any) -> Rig:
    """A rig whose daemon has run and has ended cleanly."""
    daemon = rig.running(**overrides)
    rig.wait_output()
    assert daemon.terminate() == 0
    return rig


@pytest.fixture(scope="module")
def ended_once(broker: SessionBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(broker, tmp_path_factory.mktemp("ended"), seed=41) as rig:
        yield stopped(rig)


@pytest.fixture
def checkpoints(ended_once: Rig, tmp_path: Path) -> Path:
    """A copy of the checkpoint directory that the one run has left, for one test to damage."""
    return shutil.copytree(ended_once.pipeline.directory, tmp_path / "checkpoints")


DAMAGES = pytest.mark.parametrize("damage", [truncate, flip_a_bit])


@DAMAGES
def test_F18_a_damaged_journal_entry_is_refused_with_its_name(
    ended_once: Rig, checkpoints: Path, damage: Callable[[Path], None]
) -> None:
    newest = max((checkpoints / "journal").glob("*.json"))
    damage(newest)
    assert f"journal/{newest.name}" in ended_once.refused(directory=checkpoints)


@DAMAGES
def test_F18_a_damaged_state_file_is_refused_with_its_name(
    ended_once: Rig, checkpoints: Path, damage: Callable[[Path], None]
) -> None:
    """All files of all retained checkpoints are damaged: the next test continues after one that is whole."""
    files = sorted((checkpoints / "state").glob("*.state"))
    for file in files:
        damage(file)
    text = ended_once.refused(directory=checkpoints)
    assert any(f"{file.parent.name}/{file.name}" in text for file in files)
    assert derive_told(read_journal(checkpoints), {str(file.relative_to(checkpoints)) for file in files}) in text


def derive_told(journal: JournalState, damaged: set[str]) -> str:
    """What the refusal says of the older checkpoints. One that was taken before the first record has no files."""
    for one in derive_candidates(journal):
        if damaged.isdisjoint(state.path for state in one.checkpoint.states):
            return f"checkpoint {one.checkpoint.id} is intact, but"
    return "no other checkpoint is intact"


@pytest.mark.deep
def test_F28_what_the_final_checkpoint_builds_on_is_damaged_until_it_is_put_back(
    ended_once: Rig, checkpoints: Path
) -> None:
    """All checkpoints after which nothing was committed are damaged: to one of them a daemon goes back unasked."""
    journal = read_journal(checkpoints)
    now = journal.retained[-1].identity
    idle = list(takewhile(lambda one: not derive_newer(journal, one, now), derive_candidates(journal)))
    # The newest of each: a declined checkpoint may have left newer ones.
    names = {max(state.path for state in one.checkpoint.states) for one in (journal.retained[-1], *idle)}
    right = {name: (checkpoints / name).read_bytes() for name in names}
    for name in names:
        flip_a_bit(checkpoints / name)
    text = ended_once.refused(directory=checkpoints)
    assert any("/".join(Path(name).parts[-2:]) in text for name in names)
    assert derive_told(journal, names) in text
    for name, data in right.items():
        (checkpoints / name).write_bytes(data)
    daemon = ended_once.daemon(directory=checkpoints).start().wait_running()
    assert daemon.terminate() == 0
    ended_once.assert_exact()
    shutil.rmtree(ended_once.pipeline.directory)  # it is older than what Kafka knows by now
    shutil.copytree(checkpoints, ended_once.pipeline.directory)


def test_F04_a_start_against_another_cluster_is_refused(
    ended_once: Rig, checkpoints: Path, own_broker: BrokerMaker
) -> None:
    other = own_broker()
    other.create_topics(dict.fromkeys(ended_once.topic.values(), 4))
    log = ended_once.refused(directory=checkpoints, bootstrap=other.bootstrap)
    assert "`bootstrap.servers` leads to cluster" in log
