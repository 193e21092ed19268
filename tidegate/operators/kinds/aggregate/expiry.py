"""The expiry of running totals: a key to which nothing is added for the `ttl` starts again. Pure.

In event time, the row alone decides. Its key starts again if the row's own time, or the watermark of its partition when
it was read if that was later, is past the last time of the key plus the ttl. So batches, restarts and the moment when
an entry is really removed make no difference: the watermark that removes it is never ahead of a partition's own
watermark, unless that partition was idle. In processing time, the moment when a batch is processed decides.

An entry has its end time in the state's expiry slot. An entry written without a ttl has none. The first sweep
(`operators/sweep.py`) or row that encounters it sets one, as if the key had been updated at that moment.
"""

from __future__ import annotations

from collections.abc import Container, Sequence


def split_lives(
    numbers: Sequence[int],
    times: Sequence[int],
    nows: Sequence[int],
    ends: list[int | None],
    ttl_ms: int,
    *,
    endless: Container[int] = (),
) -> tuple[list[int], list[int]]:
    """Returns the number of each row's life, and the last life of each key.

    `numbers`: the number of each row's key. `times`: the times of the rows. `nows`: the moments at which the rows are
    judged, which are not before their times. `ends`: when each key's total ends; None for a new key and for those of
    `endless`, whose totals were written without a ttl. The function updates `ends`. A key's first life has the key's
    number; each further life has its own number, after those of all keys.
    """
    last = list(range(len(ends)))
    count = len(ends)
    lives: list[int] = []
    for number, time, now in zip(numbers, times, nows, strict=True):
        end = ends[number]
        if end is None:
            end = now + ttl_ms if number in endless else None  # whatever `time` is: a late row must not end it
        elif now > end:
            last[number] = count
            count += 1
            end = None
        later = time + ttl_ms
        ends[number] = later if end is None or later > end else end
        lives.append(last[number])
    return lives, last
