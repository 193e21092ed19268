"""Requests of our own as they leave: each field says something that a broker acts on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.coordinator.values import committable
from tidegate.ids import ProducerId, TopicPartition, TransactionalId
from tidegate.kafka.facts import OpenBrokerTransaction
from tidegate.kafka.requests import (
    broker_setting_request,
    empty_produce_request,
    end_request,
    fence_request,
    fetch_request,
    group_fetch_request,
    group_offsets_request,
    marker_request,
    offsets_request,
    producers_request,
    quorum_request,
    topic_settings_request,
)

FIRST, SECOND, OTHER = TopicPartition("out", 0), TopicPartition("out", 3), TopicPartition("more", 1)


def versions(request: Any) -> tuple[int | None, int | None]:
    return request._min_version, request._max_version


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_names_exactly_it_and_how_it_ends(commit: bool) -> None:
    one = committable(1, producer_id=7, epoch=3)
    request = end_request(one, commit)
    named = request.transactional_id, request.producer_id, request.producer_epoch
    assert named == (one.transactional_id, 7, 3)
    assert request.committed is commit
    assert versions(request) == (None, 4), "5 would raise the epoch"


def test_an_id_is_fenced_by_somebody_who_had_no_part_in_its_transaction() -> None:
    """With a producer id and epoch it would be the question of that producer, and refused when there is a newer one."""
    request = fence_request(TransactionalId("p.out.0.1-j.0"), 1000)
    assert (request.transactional_id, request.transaction_timeout_ms) == ("p.out.0.1-j.0", 1000)
    assert (request.producer_id, request.producer_epoch) == (-1, -1)
    assert versions(request) == (None, 4), "newer ones are of another protocol of transactions"


def test_producers_are_asked_for_by_topic() -> None:
    topics = producers_request([FIRST, OTHER, SECOND]).topics
    assert [(topic.name, topic.partition_indexes) for topic in topics] == [("out", [0, 3]), ("more", [1])]


def test_mirrored_offsets_are_of_a_group_without_members() -> None:
    request = group_offsets_request("lag", {SECOND: 41}, "text")
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("lag", -1, "")
    assert (request.group_instance_id, request.retention_time_ms) == (None, -1)
    (part,) = request.topics[0].partitions
    assert (part.partition_index, part.committed_offset, part.committed_leader_epoch) == (3, 41, -1)
    assert part.committed_metadata == "text"
    assert versions(request) == (None, 8)


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_are_asked_of_the_leader_of_an_epoch(committed: bool) -> None:
    request = offsets_request([FIRST, SECOND], committed, moment=9, epochs={FIRST: 4})
    assert request.isolation_level == int(committed)
    (topic,) = request.topics
    asked = [(part.partition_index, part.current_leader_epoch, part.timestamp) for part in topic.partitions]
    assert (topic.name, asked) == ("out", [(0, 4, 9), (3, -1, 9)])
    assert versions(request) == (4, None)


@pytest.mark.parametrize(("commit", "coordinator_epoch", "sent"), [(True, 3, 3), (False, -1, 0)])
def test_a_marker_is_of_one_transaction_in_one_partition(commit: bool, coordinator_epoch: int, sent: int) -> None:
    request = marker_request(OpenBrokerTransaction(SECOND, ProducerId(9, 5), 120, coordinator_epoch), 6, commit)
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (9, 6, commit)
    assert (marker.coordinator_epoch, marker.transaction_version) == (sent, 0)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("out", [3])]
    assert versions(request) == (1, 2)


def test_a_fetch_is_read_uncommitted_from_the_leader_and_does_not_wait() -> None:
    request = fetch_request({SECOND: 41}, 1000)
    assert (request.isolation_level, request.max_wait_ms, request.min_bytes, request.max_bytes) == (0, 0, 0, 1000)
    assert (request.replica_id, request.session_id, request.session_epoch) == (-1, 0, -1)
    (part,) = request.topics[0].partitions
    assert (request.topics[0].topic, part.partition, part.fetch_offset) == ("out", 3, 41)
    assert (part.partition_max_bytes, part.current_leader_epoch) == (1000, -1)
    assert (part.last_fetched_epoch, part.log_start_offset) == (-1, -1), "as a client, not as a follower"
    assert (request.forgotten_topics_data, request.rack_id) == ([], "")
    assert versions(request) == (4, 10), "a follower answers newer ones, too"


def test_a_group_is_asked_for_all_that_it_has() -> None:
    request = group_fetch_request("lag")
    assert (request.group_id, request.topics, request.require_stable) == ("lag", None, False)
    assert versions(request) == (2, 7)


def test_settings_are_asked_for_by_name() -> None:
    request = topic_settings_request("out", ["a", "b"])
    assert (request.include_synonyms, request.include_documentation) == (False, False)
    (resource,) = request.resources
    assert (resource.resource_type, resource.resource_name, resource.configuration_keys) == (2, "out", ["a", "b"])


def test_a_setting_of_a_broker_is_asked_for_by_its_number() -> None:
    (resource,) = broker_setting_request(2, "a").resources
    assert (resource.resource_type, resource.resource_name, resource.configuration_keys) == (4, "2", ["a"])


def test_the_controllers_are_asked_for_by_their_own_log() -> None:
    (topic,) = quorum_request().topics
    assert (topic.topic_name, [part.partition_index for part in topic.partitions]) == ("__cluster_metadata", [0])


def test_what_tries_the_right_to_write_writes_nothing() -> None:
    request = empty_produce_request(SECOND)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 1000)
    (topic,) = request.topic_data
    assert (topic.name, [(part.index, part.records) for part in topic.partition_data]) == ("out", [(3, b"")])
    assert versions(request) == (3, 9), "newer ones name topics by their ids"
