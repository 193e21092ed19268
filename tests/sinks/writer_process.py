"""A slot that dies: prepares checkpoint 1, may open the next transaction, prints its committables and waits.

Run as `python -m tests.sinks.writer_process BOOTSTRAP TOPIC PIPELINE ATTEMPT RECORDS NEXT`.
"""

from __future__ import annotations

import sys

import msgspec

from tests.sinks.driving import DrivenSink, rows, sink_operator
from tidegate.sinks.kafka import KafkaSink


def main() -> None:
    bootstrap, topic, pipeline, attempt, count, following = sys.argv[1:]
    driven = DrivenSink(sink_operator(bootstrap, topic), pipeline, int(attempt))
    driven.write(rows(range(int(count))))
    prepared = driven.prepared(1)
    if int(following):
        driven.write(rows(range(1_000_000, 1_000_000 + int(following))))
        driven.written()
        _wait_until_sent(driven.sink)
    print(msgspec.json.encode(prepared.committables).decode(), flush=True)
    sys.stdin.read()


def _wait_until_sent(sink: KafkaSink) -> None:
    assert sink._writer is not None
    sink._writer.flush(60, lambda: False)


if __name__ == "__main__":
    main()
