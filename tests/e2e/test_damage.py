"""Damaged checkpoint files, another cluster, other topics: the start is refused, with the place and the remedy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BrokerMaker, SessionBroker
from tests.e2e.conftest import RigMaker
from tests.support.rig import Rig, read_journal
from tests.waiting import wait_until
from tidegate.coordinator.choice import derive_candidates
from tidegate.dev.broker import BrokerFailed
from tidegate.kafka.transactions import TransactionClient

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
    """All retained checkpoints are damaged: the next test continues after one that is whole."""
    files = sorted((checkpoints / "state").glob("*/*.state"))
    for file in files:
        damage(file)
    text = ended_once.refused(directory=checkpoints)
    assert any(f"{file.parent.name}/{file.name}" in text for file in files)
    assert "no other checkpoint is whole" in text


def test_F28_what_the_final_checkpoint_builds_on_is_damaged_until_it_is_put_back(
    ended_once: Rig, checkpoints: Path
) -> None:
    """In a pipeline that had nothing left to write, the last checkpoints list the same files.

    After an older one that is retained and whole, output is committed.
    """
    journal = read_journal(checkpoints)
    final = journal.retained[-1].checkpoint
    listed = max(state.path for state in final.states)  # a declined checkpoint may have left newer files
    file = checkpoints / listed
    right = file.read_bytes()
    flip_a_bit(file)
    text = ended_once.refused(directory=checkpoints)
    assert f"{file.parent.name}/{file.name}" in text
    others = derive_candidates(journal)
    whole = [one.checkpoint.id for one in others if listed not in {state.path for state in one.checkpoint.states}]
    assert (f"checkpoint {whole[0]} is whole, but" if whole else "no other checkpoint is whole") in text
    file.write_bytes(right)
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


def test_F04_a_topic_that_was_deleted_and_created_again_is_refused_with_both_ids(make_rig: RigMaker) -> None:
    from confluent_kafka.admin import AdminClient

    ended = stopped(make_rig(seed=42))
    topic = ended.topic["orders"]
    before = topic_id(ended)
    ended.outputs.close()
    admin = AdminClient({"bootstrap.servers": ended.broker.bootstrap})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    create_again(ended, topic)
    log = ended.refused()
    assert f"topic {topic} was deleted and created again" in log
    assert before in log
    assert topic_id(ended) in log


def topic_id(rig: Rig) -> str:
    client = TransactionClient({"bootstrap.servers": rig.broker.bootstrap})
    try:
        return client.topics([rig.topic["orders"]])[rig.topic["orders"]].topic_id
    finally:
        client.close()


def create_again(rig: Rig, topic: str) -> None:
    """The broker may still be busy with the deletion for a moment."""

    def create() -> bool:
        try:
            rig.broker.create_topics({topic: 4})
        except BrokerFailed as refusal:
            assert "already exists" in str(refusal)
            return False
        return True

    wait_until(create, f"{topic} can be created again")
