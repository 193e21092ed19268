"""`python -m tests.browser.serve --situation NAME --port P`: shows the pages over made-up data.

There is neither Spark nor Kafka. With `--still` time stands; otherwise the pipeline goes on in its situation.
"""

from __future__ import annotations

import argparse
import threading
import time

from tests.browser.serving import serve_recording
from tests.browser.situations import SITUATIONS
from tidegate.daemon.status import PipelineState


def main() -> None:
    """Serves until it is interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.serve", description=__doc__)
    parser.add_argument("--situation", choices=sorted(SITUATIONS), default="healthy")
    parser.add_argument("--port", type=int, default=0, help="0, the default, selects a free one")
    parser.add_argument("--still", action="store_true", help="nothing goes on after the moment that is shown")
    given = parser.parse_args()
    recording = SITUATIONS[given.situation](time.time_ns() // 1_000_000)
    server = serve_recording(given.situation, recording, given.port)
    print(f"{given.situation}: {server.address}/", flush=True)
    waiting = threading.Event()
    ends = recording.clock.now
    try:
        while True:
            waiting.wait(1)
            server.beat()
            ends += 1
            if given.still:
                continue
            if recording.metrics.current_state[0] is PipelineState.RUNNING:
                recording.run(1, step_s=1, checkpoints=False)
                if int(ends) % 10 == 0:
                    recording.checkpoint()
            else:
                recording.wait(1)
    except KeyboardInterrupt:
        server.stop()


if __name__ == "__main__":
    main()
