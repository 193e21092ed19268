"""A topic of a running pipeline gets partitions, or is replaced by another one of its name."""

from __future__ import annotations

import re
import signal

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.e2e.conftest import RigMaker
from tests.support.processes import frozen, kill
from tests.support.rig import PARTITIONS, Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FOUND = r"reads new partitions from their begin: "


def mirrored(rig: Rig) -> dict[int, int]:
    """Offsets of the consumer group by partition."""
    admin = AdminClient({"bootstrap.servers": rig.broker.bootstrap})
    group = rig.pipeline.name
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {part.partition: part.offset for part in future.result(30).topic_partitions or []}


def test_F04_new_partitions_are_read_while_running_and_survive_kills(make_rig: RigMaker) -> None:
    """Killed right behind the discovery, before a checkpoint has the new partitions; then with them in checkpoints."""
    rig = make_rig(seed=81)
    daemon = rig.running()
    rig.grow(PARTITIONS + 1)
    daemon.wait_for(FOUND + re.escape(f"{rig.topic['orders']}[{PARTITIONS}]"))
    assert daemon.attempt == 1
    daemon.kill()

    daemon = rig.daemon().start().wait_running()
    daemon.wait_committed()
    rig.grow(PARTITIONS + 4)
    daemon.wait_for(FOUND, 60)
    gauge = re.compile(rf'tidegate_source_position_offset{{.*partition="{PARTITIONS + 3}".*}} [1-9]')
    wait_until(lambda: gauge.search(daemon.http("/metrics")[1]) is not None, "the metrics have the new partition")
    wait_until(lambda: mirrored(rig).get(PARTITIONS + 3, 0) > 0, "its position is mirrored")
    attempt = daemon.attempt
    kill(daemon.slots()[0])
    daemon.wait_attempt(attempt)
    rig.finish(daemon)


def test_F04_partitions_that_nobody_has_looked_at_before_the_crash_are_read_from_their_first_record(
    make_rig: RigMaker,
) -> None:
    rig = make_rig(seed=82)
    daemon = rig.running()
    rig.pause()
    assert kill(daemon.pid, signal.SIGSTOP)  # it cannot look any more
    rig.grow(PARTITIONS + 3)
    daemon.kill()
    assert not re.search(FOUND, daemon.text()), "the daemon was quicker than the kill"
    daemon = rig.daemon().start().wait_running()
    daemon.wait_committed()
    rig.finish(daemon)


def test_a_topic_that_is_replaced_while_it_is_read_stops_the_pipeline(make_rig: RigMaker) -> None:
    rig = make_rig(seed=83)
    daemon = rig.running()
    rig.pause()
    admin = AdminClient({"bootstrap.servers": rig.broker.bootstrap})
    with frozen(daemon.slots()):  # readers that look while there is no such topic tell that
        for future in admin.delete_topics([rig.topic["orders"]]).values():
            future.result(30)
        wait_until(lambda: rig.topic["orders"] not in admin.list_topics(timeout=30).topics, "the topic is away")
        rig.broker.create_topics({rig.topic["orders"]: PARTITIONS})
    assert daemon.wait() == 4, daemon.text()[-3000:]
    by_id = f"topic {rig.topic['orders']} was deleted and created again"
    by_offset = "is past the end of the log"  # the reader was there before the look at the ids
    assert by_id in daemon.text() or by_offset in daemon.text()
    assert "Traceback" not in daemon.text()
