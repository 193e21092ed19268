"""What letters are written again with."""

from __future__ import annotations

from tidegate.cli.letters.replay import OWN


def test_the_queue_has_room_for_the_largest_record() -> None:
    """With a `queue.buffering.max.kbytes` of the pipeline's that was smaller a replay never ended."""
    assert 1024 * int(OWN["queue.buffering.max.kbytes"]) >= int(OWN["message.max.bytes"])
