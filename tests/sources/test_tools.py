"""What the consumer of a source is given where the pipeline file says nothing, and where it does."""

from __future__ import annotations

import pytest

from tidegate.sources.tools import DEFAULTS, GATHERED_BYTES, derive_consumer_properties


def test_what_the_file_says_comes_before_the_defaults() -> None:
    assert derive_consumer_properties({}) == DEFAULTS
    said = {"fetch.wait.max.ms": "7", "client.id": "c", "reconnect.backoff.max.ms": "50"}
    assert derive_consumer_properties(said) == {**DEFAULTS, **said}


def test_a_longer_pause_between_two_connections_is_no_longer_than_the_longest() -> None:
    """The client refuses a `reconnect.backoff.ms` above `reconnect.backoff.max.ms`."""
    found = derive_consumer_properties({"reconnect.backoff.ms": "3000"})
    assert (found["reconnect.backoff.ms"], found["reconnect.backoff.max.ms"]) == ("3000", "3000")
    assert derive_consumer_properties({"reconnect.backoff.ms": "30"})["reconnect.backoff.max.ms"] == "1000"


def test_records_gather_at_the_broker_for_as_long_as_they_may_wait() -> None:
    gathering = {"fetch.wait.max.ms": "50", "fetch.min.bytes": str(GATHERED_BYTES)}
    assert derive_consumer_properties({}, 0.05) == {**DEFAULTS, **gathering}
    assert derive_consumer_properties({"client.id": "c"}, 0.05) == {**DEFAULTS, **gathering, "client.id": "c"}
    assert derive_consumer_properties({}, 0.02) == DEFAULTS, "they are fetched more often than that"


@pytest.mark.parametrize(
    "said",
    [
        {"fetch.wait.max.ms": "500"},  # with our bytes, records would wait for as long
        {"fetch.min.bytes": "1"},
        {"fetch.message.max.bytes": "1000"},  # less than our bytes in all partitions: each fetch would wait
        {"max.partition.fetch.bytes": "1000"},
        {"socket.timeout.ms": "1020"},  # at least a second more than the wait
    ],
)
def test_what_the_file_says_about_fetches_leaves_them_as_they_are(said: dict[str, str]) -> None:
    assert derive_consumer_properties(said, 0.05) == {**DEFAULTS, **said}
