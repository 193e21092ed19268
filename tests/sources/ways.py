"""Both ways in which records come from a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from unittest import SkipTest

import confluent_kafka as ck

from tests.support import clients
from tidegate.native.library import Library, find_library
from tidegate.native.librdkafka import Librdkafka, find_librdkafka
from tidegate.sources.fetching import FetchClient, Fetcher, MessageFetcher, NativeFetcher, open_fetcher
from tidegate.sources.tools import SourceTools

NATIVE: Final = "in place"
MESSAGES: Final = "as message objects"
WAYS: Final = (NATIVE, MESSAGES)


def is_native() -> bool:
    """Whether records are read in place here: there was a compiler when the checkout was set up."""
    return isinstance(find_library(), Library) and isinstance(find_librdkafka(), Librdkafka)


class Way(SourceTools):
    """One of them."""

    def __init__(self, name: str) -> None:
        if name == NATIVE and not is_native():
            raise SkipTest(f"records are not read in place here: {find_library()}, {find_librdkafka()}")
        self._name = name

    def fetcher(self, consumer: FetchClient, on_error: Callable[[ck.KafkaError], None] = lambda _: None) -> Fetcher:
        fetcher = MessageFetcher(consumer) if self._name == MESSAGES else open_fetcher(consumer, on_error)
        assert isinstance(fetcher, NativeFetcher) == (self._name == NATIVE)
        return fetcher


def consumer_of(bootstrap: str) -> ck.Consumer:
    """One that reads everything."""
    return clients.consumer({"bootstrap.servers": bootstrap, "group.id": "ways", "enable.partition.eof": True})
