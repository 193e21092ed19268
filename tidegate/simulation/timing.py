"""Event times of the input, and the windows over them: out of order, some late, partitions that fall silent.

All is drawn by generators of its own, so that nothing else of a schedule is another one by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import msgspec

from tidegate.ids import TopicPartition
from tidegate.simulation.chance import generator
from tidegate.simulation.kernel import EPOCH_MS, START_S

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
"""As many records for each partition at most, after a lull."""
LATE_ROW_S: Final = (0.02, 0.5)
FROZEN: Final = 0.5
STEADY: Final = 0.4
STEADY_S: Final = 0.3
"""How long a steady partition is without records, at most about twice."""
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
BY_CLOCK: Final = "wall-clock"
ZONE: Final = "Europe/Berlin"
CHANGES_MS: Final = (1_774_746_000_000, 1_792_890_000_000)
"""When clocks are changed there in 2026: a day of 23 hours, and one of 25."""
DAYS: Final = 43_200
"""A second of the schedule is so many of event time, where windows are days."""
PAUSE_MS: Final = 60_000
"""A longer time without records counts as this: summer time is known up to 2099 (`docs/windows.md`), and a daemon that
was away for a week would wake up centuries later."""
FAR_MS: Final = 3_600_000
"""The records that close the windows of all others are so far ahead; those that follow continue from there."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How event times come, and what is made of them."""

    size_ms: int
    """Of a window."""
    every_ms: int | None = None
    """How often a sliding window begins; None: one after the other."""
    allowed_ms: int = 0
    """So late a record may still come for a window that has come out."""
    delay_ms: int
    """Of the watermark."""
    idle: str
    """When a partition holds no watermark back, as a source's file says it."""
    disorder_ms: int
    """Records are out of order by up to so much."""
    stray: float
    """This part of the records comes much later."""
    silence: float
    """With so many records their partition falls silent for a while."""
    lulls: float = 0.0
    """After so many bursts nothing comes to any partition for a while, and then a load to all of them at once."""
    steady: bool
    """No partition is without records for as long as it takes to be idle, but those that fall silent."""
    lag_ms: int
    """The records of a whole partition come later by up to so much."""
    early_ms: int = 0
    """How often a window gives an early result; 0: never."""
    zone: str = ""
    """Windows are the days of this time zone, and a second of the schedule is half a day; empty: they are not."""
    first_ms: int = 0
    """With a zone: the event time of what comes at the beginning."""

    @property
    def title(self) -> str:
        """What is special about the windows; empty for nothing."""
        if self.early_ms:
            return "windows with early results"
        if self.zone:
            return "windows of a time zone"
        return "windows by the clock" if self.by_clock else ""

    @property
    def by_clock(self) -> bool:
        """While all is idle the watermark follows the clock."""
        return self.idle == BY_CLOCK

    def least(self, partitions: int) -> int:
        """So many, or as many as there must be: a lull of one partition is only a silence."""
        return max(partitions, 2) if self.lulls else partitions


def draw_timing(draw: random.Random, *, single: bool) -> Timing:
    """Of one schedule; `single`: a record is in one window, which comes out once."""
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
    """The same, with lulls or without: they say something only where partitions that are caught up are idle.

    Partitions lag by less than a lull, so that each goes on where the others were or later (ADR 52).
    """
    lulls = draw.choice(LULLS) if timing.idle == "caught-up" and not timing.zone else 0.0
    if not lulls:
        return timing
    lag_ms = min(3 * timing.size_ms, LULL_LAG_MS)
    delay_ms = draw.choice((timing.delay_ms, min(timing.delay_ms, timing.size_ms // 5)))
    return msgspec.structs.replace(timing, lulls=lulls, steady=False, lag_ms=lag_ms, delay_ms=delay_ms)


def draw_more(draw: random.Random, timing: Timing) -> Timing:
    """The same windows, with early results, or following the clock, or as days of a time zone. One of three."""
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
    """What a right clock shows at a moment of a schedule."""
    return EPOCH_MS + int(now_s * 1000)


def day_of(at: int, zone: str) -> tuple[int, int]:
    """Where the day begins that a moment is in, on the walls of a zone, and where the next one does."""
    day = datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).date()
    begin, end = (
        datetime.combine(one, time(), tzinfo=ZoneInfo(zone)).timestamp() for one in (day, day + timedelta(days=1))
    )
    return round(begin * 1000), round(end * 1000)


class EventTimeModel:
    """Of the records of one schedule."""

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
        """Where the next record goes: a partition that is not silent, if there is one; it may fall silent with it."""
        awake = [place for place in places if self._silent_until.get(place, 0.0) <= now_s]
        place = self._draw.choice(awake or places)
        self._newest[place] = now_s
        if self._draw.random() < self._timing.silence:
            self._silent_until[place] = now_s + self._draw.uniform(*SILENCE_S)
        return place

    def draw_lull_s(self) -> float:
        """For how long nothing comes from now on; 0: no lull begins."""
        return self._lulls.uniform(*LULL_S) if self._lulls.random() < self._timing.lulls else 0.0

    def draw_load(self, places: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Where the records go that end a lull."""
        load = [place for place in places for _ in range(self._lulls.randint(1, LOAD))]
        self._lulls.shuffle(load)
        return load

    def draw_late_row(self, slots: int) -> tuple[int, float, bool]:
        """Which slot takes a load later than the others, by how many seconds, and whether it is frozen for so long.

        If not, what it reads comes late to it.
        """
        return self._lulls.randrange(slots), self._lulls.uniform(*LATE_ROW_S), self._lulls.random() < FROZEN

    def find_quiet(self, places: Sequence[TopicPartition], now_s: float) -> Iterator[TopicPartition]:
        """Partitions that need a record to be steady: the last one was some time ago."""
        for place in places if self._timing.steady else ():
            if self._silent_until.get(place, 0.0) <= now_s and now_s - self._newest.get(place, START_S) >= STEADY_S:
                self._newest[place] = now_s
                yield place

    def next_ms(self, place: TopicPartition, now_ms: int) -> int:
        """The event time of a record that comes now."""
        timing, draw = self._timing, self._draw
        before_ms = self._lag_ms(place) + draw.randint(0, timing.disorder_ms)
        if draw.random() < timing.stray:
            before_ms += timing.delay_ms + draw.randint(0, 3 * timing.size_ms)
        return self._base_ms(now_ms) + self._ahead_ms - before_ms

    def choose_closing(self, places: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Where records close all windows: everywhere, or, where nobody waits for what is caught up, in some."""
        if self._timing.idle == "never":
            return places
        return self._draw.sample(places, self._draw.randint(1, len(places)))

    def jump(self, now_ms: int) -> int:
        """The event time of records that close the windows of all others; those that follow are later still."""
        self._ahead_ms += FAR_MS * (240 if self._timing.zone else 1)
        return self._base_ms(now_ms) + self._ahead_ms

    def _base_ms(self, now_ms: int) -> int:
        """The event time of this moment."""
        timing = self._timing
        self._passed_ms += min(max(now_ms - self._seen_ms, 0), PAUSE_MS)
        self._seen_ms = max(now_ms, self._seen_ms)
        return timing.first_ms + self._passed_ms * DAYS if timing.zone else now_ms

    def _lag_ms(self, place: TopicPartition) -> int:
        if place not in self._lags_ms:
            of_place = generator(self._seed, f"lag/{place}")
            self._lags_ms[place] = of_place.randint(0, self._timing.lag_ms)
        return self._lags_ms[place]
