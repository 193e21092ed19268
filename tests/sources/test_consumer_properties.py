"""What the consumer of a source is given where the pipeline file says nothing, and where it does."""

from __future__ import annotations

from tidegate.sources.consumer_properties import DEFAULTS, derive_consumer_properties


def test_what_the_file_says_comes_before_the_defaults() -> None:
    assert derive_consumer_properties({}) == DEFAULTS
    said = {"fetch.wait.max.ms": "7", "client.id": "c", "reconnect.backoff.max.ms": "50"}
    assert derive_consumer_properties(said) == {**DEFAULTS, **said}


def test_a_longer_pause_between_two_connections_is_no_longer_than_the_longest() -> None:
    """The client refuses a `reconnect.backoff.ms` above `reconnect.backoff.max.ms`."""
    found = derive_consumer_properties({"reconnect.backoff.ms": "3000"})
    assert (found["reconnect.backoff.ms"], found["reconnect.backoff.max.ms"]) == ("3000", "3000")
    assert derive_consumer_properties({"reconnect.backoff.ms": "30"})["reconnect.backoff.max.ms"] == "1000"
