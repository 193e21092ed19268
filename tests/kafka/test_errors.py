"""The client's own errors in words that mean something to others."""

from __future__ import annotations

import pytest
from kafka import errors

from tidegate.kafka.errors import describe_error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.NodeNotReadyError("coordinator-0"), "there is no connection to the broker yet"),
        (errors.KafkaConnectionError("Connection timed out"), "no connection, or it was lost"),
        (errors.KafkaTimeoutError("Timed out after 9661.75 ms"), "the broker did not answer in time"),
        (errors.NotCoordinatorError(), "the broker answered NotCoordinatorError (16)"),
        (ValueError("odd"), "ValueError('odd')"),
    ],
)
def test_an_error_of_the_client_is_told_in_our_words(error: Exception, expected: str) -> None:
    assert describe_error(error) == expected
