"""Requests of our own: which answers are asked for again."""

from __future__ import annotations

import pytest

from tidegate.sinks.connection import is_passing

PASSING = {
    "LEADER_NOT_AVAILABLE": 5,
    "NOT_LEADER_OR_FOLLOWER": 6,
    "NOT_ENOUGH_REPLICAS": 19,
    "KAFKA_STORAGE_ERROR": 56,
    "FENCED_LEADER_EPOCH": 74,
    "OFFSET_NOT_AVAILABLE": 78,
}
FINAL = {"NONE": 0, "OFFSET_OUT_OF_RANGE": 1, "TOPIC_AUTHORIZATION_FAILED": 29, "INVALID_TXN_STATE": 48}


@pytest.mark.parametrize("code", PASSING.values(), ids=PASSING)
def test_what_passes_when_leaders_move_is_asked_again(code: int) -> None:
    assert is_passing(code)


@pytest.mark.parametrize("code", FINAL.values(), ids=FINAL)
def test_what_does_not_pass_is_final(code: int) -> None:
    assert not is_passing(code)
