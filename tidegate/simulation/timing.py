"""Event times of the input and the windows over them: out of order, some late, with partitions that fall silent.

Everything is drawn from separate generators, so that the rest of a schedule does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import msgspec

from tidegate.ids import TopicPartition
from tidegate.simulation.kernel import EPOCH_MS, START_S, generator

if TYPE_CHECKING:
    import random

START_MS: Final = EPOCH_MS + round(START_S * 1000)
SIZES_MS: Final = (100, 250, 1000, 4000)
DELAYS_MS: Final = (0, 50, 300, 1500)
DISORDERS_MS: Final = (0, 50, 300, 1500)
STRAYS: Final = (0.0, 0.05, 0.2)
SILENCES: Final = (0.0, 0.02, 0.1)
SILENCE_S: Final = (0.3, 5.0)
LULLS: Final = (0.0, 0.5, 0.5)
LULL_S: Final = (1.3, 3.0)
"""Long enough for all partitions to be known to be idle."""
LULL_LAG_MS: Final = 1200
LOAD: Final = 4
"""Maximum number of records per partition after a lull."""
LATE_ROW_S: Final = (0.02, 0.5)
FROZEN: Final = 0.5
STEADY: Final = 0.4
STEADY_S: Final = 0.3
"""Time that a steady partition is without records; at most about twice this."""
LEADS_MS: Final = (0, 0, 4000)
ALTERNATING: Final = 0.4
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
BY_CLOCK: Final = "wall-clock"
ZONE: Final = "Europe/Berlin"
CHANGES_MS: Final = (1_774_746_000_000, 1_792_890_000_000)
"""The clock changes there in 2026: a day of 23 hours, and one of 25."""
DAYS: Final = 43_200
"""Seconds of event time per second of the schedule, if windows are days."""
PAUSE_MS: Final = 60_000
"""Maximum time that a pause without records adds. Summer time is known up to 2099 (`docs/windows.md`), and a daemon
that was down for a week would otherwise wake up centuries later.
"""
FAR_MS: Final = 3_600_000
"""Lead of the records that close the windows of all others. Later records continue from there."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """The distribution of event times, and the windows over them."""

    size_ms: int
    """Size of a window."""
    every_ms: int | None = None
    """Interval between the starts of sliding windows; None for tumbling windows."""
    allowed_ms: int = 0
    """Time for which late records are still added to a window that has been emitted."""
    delay_ms: int
    """Delay of the watermark."""
    idle: str
    """When a partition stops holding the watermark back: the value of the source option `idle`."""
    disorder_ms: int
    """Maximum disorder of records."""
    stray: float
    """The fraction of records that come much later."""
    silence: float
    """The fraction of records after which their partition falls silent for a while."""
    lulls: float = 0.0
    """The fraction of bursts after which all partitions receive nothing for a while, and then a load at once."""
    steady: bool
    """No partition is without records long enough to become idle, except those that fall silent."""
    lag_ms: int
    """Maximum delay of the event times of a whole partition."""
    early_ms: int = 0
    """Interval of early results of a window; 0 means none."""
    zone: str = ""
    """Time zone whose days are the windows; a second of the schedule is then half a day. Empty for other windows."""
    first_ms: int = 0
    """Event time at the beginning, if there is a time zone."""
    lead_ms: int = 0
    """Lead of the event times of all inputs over those of the first one."""
    alternating: bool = False
    """From time to time only one input receives records."""
    grain_ms: int = 1
    """Event times are multiples of this, so that records often have the very time at which something is due."""

    @property
    def title(self) -> str:
        """The special feature of the windows; empty if there is none."""
        if self.early_ms:
            return "windows with early results"
        if self.zone:
            return "windows of a time zone"
        return "windows by the clock" if self.by_clock else ""

    @property
    def by_clock(self) -> bool:
        """True if the watermark follows the clock while everything is idle."""
        return self.idle == BY_CLOCK

    def least(self, partitions: int) -> int:
        """Returns the number of partitions, raised to the minimum: a lull of a single partition is only a silence."""
        return max(partitions, 2) if self.lulls else partitions


def draw_timing(draw: random.Random, *, single: bool) -> Timing:
    """Draws the timing of one schedule. `single`: a record is in one window, which comes out once."""
    size_ms = draw.choice(SIZES_MS)
    return Timing(
        size_ms=size_ms,
        every_ms=None if single else draw.choice((None, None, size_ms // 2, size_ms * 2 // 5)),
        allowed_ms=0 if single else draw.choice((0, 0, 0, size_ms)),
        delay_ms=draw.choice(DELAYS_MS),
        idle=draw.choice(("caught-up", "caught-up", "never")),
        disorder_ms=draw.choice(DISORDERS_MS),
        stray=draw.choice(STRAYS),
        silence=draw.choice(SILENCES),
        steady=draw.random() < STEADY,
        lag_ms=draw.choice((0, 0, size_ms)),
    )


def draw_lulls(draw: random.Random, timing: Timing) -> Timing:
    """Adds lulls to the timing of some schedules. They have an effect only if partitions that have caught up are idle.

    Partitions lag by less than a lull, so that each resumes where the others were, or later (ADR 52).
    """
    lulls = draw.choice(LULLS) if timing.idle == "caught-up" and not timing.zone else 0.0
    if not lulls:
        return timing
    lag_ms = min(3 * timing.size_ms, LULL_LAG_MS)
    delay_ms = draw.choice((timing.delay_ms, min(timing.delay_ms, timing.size_ms // 5)))
    return msgspec.structs.replace(timing, lulls=lulls, steady=False, lag_ms=lag_ms, delay_ms=delay_ms)


def draw_two_inputs(draw: random.Random, timing: Timing) -> Timing:
    """Lets one input lead by some time, or the inputs become silent in turn, in some schedules."""
    timing = msgspec.structs.replace(timing, lead_ms=draw.choice(LEADS_MS), alternating=draw.random() < ALTERNATING)
    return msgspec.structs.replace(timing, steady=timing.steady and not timing.alternating)


def draw_more(draw: random.Random, timing: Timing) -> Timing:
    """Changes the windows to have early results, to follow the clock, or to be days of a time zone."""
    kind = draw.choice(("early", "clock", "zone"))
    timing = msgspec.structs.replace(timing, every_ms=None)
    if kind == "clock":
        return msgspec.structs.replace(timing, idle=BY_CLOCK, silence=draw.choice((0.02, 0.1)))
    if kind == "early":
        early_ms = timing.size_ms // draw.choice((2, 5))
        every_ms = draw.choice((None, None, timing.size_ms // 2, timing.size_ms * 2 // 5))
        return msgspec.structs.replace(timing, early_ms=early_ms, every_ms=every_ms, allowed_ms=0, idle="never")
    return msgspec.structs.replace(
        timing,
        size_ms=DAY_MS,
        allowed_ms=DAY_MS if timing.allowed_ms else 0,
        delay_ms=draw.choice((0, HOUR_MS, 30 * HOUR_MS)),
        disorder_ms=draw.choice((0, 2 * HOUR_MS, 20 * HOUR_MS)),
        lag_ms=draw.choice((0, 0, DAY_MS)),
        zone=ZONE,
        first_ms=draw.choice(CHANGES_MS) - draw.randint(0, 10) * DAY_MS,
    )


def derive_ms(now_s: float) -> int:
    """Returns what a correct clock shows at a moment of a schedule, in ms since 1970."""
    return EPOCH_MS + int(now_s * 1000)


def begins_of(at: int, size_ms: int, every_ms: int) -> range:
    """Returns the starts of the windows that contain a time."""
    newest = at - at % every_ms
    oldest = newest - (size_ms - (at - newest) - 1) // every_ms * every_ms
    return range(oldest, newest + 1, every_ms)


def day_of(at: int, zone: str) -> tuple[int, int]:
    """Returns the start of the local day that contains a time, and that of the next day."""
    day = datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).date()
    begin, end = (
        datetime.combine(one, time(), tzinfo=ZoneInfo(zone)).timestamp() for one in (day, day + timedelta(days=1))
    )
    return round(begin * 1000), round(end * 1000)


class EventTimeModel:
    """The event times of one schedule's records."""

    def __init__(self, seed: int, timing: Timing) -> None:
        self._timing = timing
        self._seed = seed
        self._draw = generator(seed, "event times")
        self._lulls = generator(seed, "lulls of records")
        self._ahead_ms = 0
        self._seen_ms = START_MS
        self._passed_ms = 0
        self._silent_until: dict[TopicPartition, float] = {}
        self._newest: dict[TopicPartition, float] = {}
        self._lags_ms: dict[TopicPartition, int] = {}

    def choose(self, places: Sequence[TopicPartition], now_s: float) -> TopicPartition:
        """Chooses the partition of the next record: one that is not silent, if any. It may fall silent afterwards."""
        awake = [place for place in places if self._silent_until.get(place, 0.0) <= now_s]
        place = self._draw.choice(awake or places)
        self._newest[place] = now_s
        if self._draw.random() < self._timing.silence:
            self._silent_until[place] = now_s + self._draw.uniform(*SILENCE_S)
        return place

    def draw_lull_s(self) -> float:
        """Draws how long nothing arrives from now on; 0 if no lull begins."""
        return self._lulls.uniform(*LULL_S) if self._lulls.random() < self._timing.lulls else 0.0

    def draw_load(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Draws the partitions of the records that end a lull."""
        load = [place for place in places for _ in range(self._lulls.randint(1, LOAD))]
        self._lulls.shuffle(load)
        return load

    def draw_late_row(self, slots: int) -> tuple[int, float, bool]:
        """Draws which slot takes a load later than the others, by how many seconds, and whether it is frozen meanwhile.

        If it is not frozen, its fetches are late.
        """
        return self._lulls.randrange(slots), self._lulls.uniform(*LATE_ROW_S), self._lulls.random() < FROZEN

    def find_quiet(self, places: Sequence[TopicPartition], now_s: float) -> Iterator[TopicPartition]:
        """Yields the partitions that need a record to be steady, because their last one is too long ago."""
        for place in places if self._timing.steady else ():
            if self._silent_until.get(place, 0.0) <= now_s and now_s - self._newest.get(place, START_S) >= STEADY_S:
                self._newest[place] = now_s
                yield place

    def next_ms(self, place: TopicPartition, now_ms: int) -> int:
        """Draws the event time of a record that arrives now."""
        timing, draw = self._timing, self._draw
        before_ms = self._lag_ms(place) + draw.randint(0, timing.disorder_ms)
        if draw.random() < timing.stray:
            before_ms += timing.delay_ms + draw.randint(0, 3 * timing.size_ms)
        at = self._base_ms(now_ms) + self._ahead_ms - before_ms
        return at - at % timing.grain_ms

    def choose_closing(self, places: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Chooses the partitions whose records close all windows.

        Some are enough if partitions that have caught up do not hold the watermark back.
        """
        if self._timing.idle == "never":
            return places
        return self._draw.sample(places, self._draw.randint(1, len(places)))

    def jump(self, now_ms: int) -> int:
        """Returns the event time of records that close the windows of all others. Later records are later still."""
        self._ahead_ms += FAR_MS * (240 if self._timing.zone else 1)
        at = self._base_ms(now_ms) + self._ahead_ms
        return at - at % self._timing.grain_ms

    def _base_ms(self, now_ms: int) -> int:
        """Returns the event time that corresponds to now."""
        timing = self._timing
        self._passed_ms += min(max(now_ms - self._seen_ms, 0), PAUSE_MS)
        self._seen_ms = max(now_ms, self._seen_ms)
        return timing.first_ms + self._passed_ms * DAYS if timing.zone else now_ms

    def _lag_ms(self, place: TopicPartition) -> int:
        if place not in self._lags_ms:
            of_place = generator(self._seed, f"lag/{place}")
            self._lags_ms[place] = of_place.randint(0, self._timing.lag_ms)
        return self._lags_ms[place]
