"""Where a pipeline begins to read is fixed before its first record; its topic gets partitions, or is replaced."""

from __future__ import annotations

import re
import signal

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

from tests.e2e.conftest import RigMaker
from tests.support import clients
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import frozen, kill
from tests.support.rig import PARTITIONS, Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(1800)]

READ = re.compile(r"tidegate_records_in_total\{.*\} [1-9]")
FOUND = r"reads new partitions from their start: "


def mirrored(rig: Rig) -> dict[int, int]:
    """Offsets of the consumer group by partition."""
    admin = clients.admin({"bootstrap.servers": rig.broker.bootstrap})
    group = rig.pipeline.name
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {part.partition: part.offset for part in future.result(30).topic_partitions or []}


def test_F04_a_start_is_fixed_before_the_first_checkpoint_and_new_partitions_are_read_from_their_first_record(
    make_rig: RigMaker,
) -> None:
    """Killed before anything is saved; right after the discovery, before a checkpoint has the new partitions; with
    them in checkpoints; before anybody has looked. In the end the topic is replaced by another one.
    """
    rig = make_rig(seed=81, start="latest")
    crash_before_a_checkpoint(rig)
    first = rig.running(start="earliest")
    first.wait_for("`start` is now earliest, but the pipeline first started with `start: latest`")
    rig.grow(PARTITIONS + 1)
    first.wait_for(FOUND + re.escape(f"{rig.topic['orders']}[{PARTITIONS}]"))
    assert len(re.findall(r"attempt \d+ is running", first.text())) == 1, "no new attempt was needed"
    first.kill()

    second = rig.running()
    rig.grow(PARTITIONS + 4)
    check_read_and_survived(rig, second, PARTITIONS + 3)
    rig.pause()
    told = second.text()
    assert kill(second.pid, signal.SIGSTOP)  # it cannot look any more
    rig.grow(PARTITIONS + 6)
    second.kill()
    assert not re.search(FOUND, second.text()[len(told) :]), "the daemon was quicker than the kill"

    third = rig.running(heartbeat_timeout="5m")  # nobody gives up the slots that are frozen while topics change
    rig.wait_output()
    rig.assert_exact()
    replace_topic(rig, third)


def crash_before_a_checkpoint(rig: Rig) -> None:
    """First a worker is killed, then the daemon, while no checkpoint is due but the first of each attempt."""
    daemon = rig.daemon(interval="5m").start().wait_running()
    rig.writer.start()
    wait_until(lambda: READ.search(daemon.http("/metrics")[1]) is not None, "records are read")
    assert kill(daemon.slots()[0])
    daemon.wait_for(r"attempt 2 is running")
    daemon.kill()


def check_read_and_survived(rig: Rig, daemon: DaemonProcess, partition: int) -> None:
    """Partitions that are found while running are seen from outside, and survive the death of a worker."""
    daemon.wait_for(FOUND)
    gauge = re.compile(rf'tidegate_source_position_offset{{.*partition="{partition}".*}} [1-9]')
    wait_until(lambda: gauge.search(daemon.http("/metrics")[1]) is not None, "the metrics have the new partition")
    wait_until(lambda: mirrored(rig).get(partition, 0) > 0, "its position is mirrored")
    attempt = daemon.attempt
    kill(daemon.slots()[0])
    daemon.wait_attempt(attempt)


def replace_topic(rig: Rig, daemon: DaemonProcess) -> None:
    """By another one of its name, while it is read."""
    admin = clients.admin({"bootstrap.servers": rig.broker.bootstrap})
    with frozen(daemon.slots()):  # readers that look while there is no such topic report that
        for future in admin.delete_topics([rig.topic["orders"]]).values():
            future.result(30)
        wait_until(lambda: rig.topic["orders"] not in admin.list_topics(timeout=30).topics, "the topic is away")
        rig.broker.create_topics({rig.topic["orders"]: PARTITIONS})
    assert daemon.wait() == 4, daemon.text()[-3000:]
    by_id = f"topic {rig.topic['orders']} was deleted and created again"
    by_offset = "is past the end of the log"  # the reader was there before the look at the ids
    assert by_id in daemon.text() or by_offset in daemon.text()
    assert "Traceback" not in daemon.text()
