"""A hanging transaction resolver next to the daemon that checks for missing markers all the time: where none is
missing, it writes none.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing

from tidegate.clock import SYSTEM_CLOCK
from tidegate.errors import TidegateError
from tidegate.kafka.transactions import TransactionClient
from tidegate.sinks.hanging_resolver import HangingTransactionResolver
from tidegate.sinks.hanging_transactions import report_resolved


class Looks(threading.Thread):
    """Runs the resolver without a pause."""

    def __init__(self, bootstrap: str, pipeline: str, topics: Sequence[str]) -> None:
        super().__init__(name="looks", daemon=True)
        self.count = self.waits = 0
        self.wrong: list[str] = []
        self._address, self._pipeline, self._topics = bootstrap, pipeline, topics
        self._ended = threading.Event()

    def run(self) -> None:
        """Resolves until `stop`."""
        with closing(TransactionClient({"bootstrap.servers": self._address})) as client:
            resolver = HangingTransactionResolver(client, self._pipeline, SYSTEM_CLOCK)
            while not self._ended.is_set():
                try:
                    report = resolver.resolve(self._topics)
                except TidegateError as error:
                    print(f"  no look: {error.message[:150]}", flush=True)
                    continue
                self.count += 1
                self.waits += len(report.waiting)
                self.wrong += [*report_resolved(report.resolved), *(str(left) for left in report.left)]

    def stop(self) -> None:
        """Ends the thread."""
        self._ended.set()
        self.join(60)
