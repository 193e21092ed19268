"""The settings of a join, and which rows of its inputs are close enough in time to be a pair. Pure, without Polars."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field, model_validator

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import (
    MatchingColumns,
    StepRows,
    ValueCheck,
    check_step_name,
    describe_value,
    duration,
    refusal,
    require_text,
)
from tidegate.config.fields.units import render_duration
from tidegate.operators.keyed import LateSettings

AHEAD_LEAST_MS: Final = 10_000
"""How far one side may be ahead of the other at least, by default."""
BUCKET_LEAST_MS: Final = 1024


class JoinRows(StrEnum):
    """Which rows a join emits."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def pairs(self) -> bool:
        """True if pairs are emitted; otherwise only rows of the left side are."""
        return self not in (JoinRows.SEMI, JoinRows.ANTI)

    def preserves(self, port: int) -> bool:
        """Returns True if rows of a side that match nothing are emitted."""
        return self in ((JoinRows.LEFT, JoinRows.FULL, JoinRows.ANTI), (JoinRows.RIGHT, JoinRows.FULL))[port]

    def tracks(self, port: int) -> bool:
        """Returns True if it matters whether a row of a side has matched."""
        return self.preserves(port) or (self is JoinRows.SEMI and port == 0)


class Matching(msgspec.Struct, frozen=True):
    """Which rows match by time. Each row has a position: its event time, or the start of its window.

    A left row matches the right rows whose position is from `before_ms` before its own to `after_ms` after it. Rows of
    windows have the same position, and a row of several windows counts once in each.
    """

    before_ms: int = 0
    after_ms: int = 0
    size_ms: int = 0
    """The length of windows; 0: there are none."""
    every_ms: int = 0
    offset_ms: int = 0

    @property
    def shift_ms(self) -> int:
        """How long after its position a row is late, and the event time of an unmatched row: the window's last ms."""
        return self.size_ms - 1 if self.size_ms else 0

    @property
    def bucket_ms(self) -> int:
        """The width of a time bucket of the state. A row finds its partners in at most two of them."""
        if self.size_ms:
            return 1
        return 1 << (max(self.before_ms + self.after_ms, BUCKET_LEAST_MS) - 1).bit_length()

    def reach(self, port: int) -> tuple[int, int]:
        """Returns how far the partners of a row of a side may be before and after its position."""
        return (self.before_ms, self.after_ms) if port == 0 else (self.after_ms, self.before_ms)

    def waits_ms(self, port: int) -> int:
        """Returns how long after its position a row of a side may get a partner."""
        return self.reach(port)[1] + self.shift_ms

    def __str__(self) -> str:
        if not self.size_ms:
            return f"within {render_duration(self.before_ms)} before and {render_duration(self.after_ms)} after"
        sliding = self.every_ms != self.size_ms
        every = f" every {render_duration(self.every_ms)}" if sliding else ""
        offset = f", offset {render_duration(self.offset_ms)}" if self.offset_ms else ""
        return f"in one window, {'sliding' if sliding else 'tumbling'} {render_duration(self.size_ms)}{every}{offset}"


class WithinSettings(Settings):
    """How far apart in event time the rows of a pair may be. Both limits are part of the interval."""

    TITLE: ClassVar[str] = "Interval joins"
    before_ms: Annotated[
        int,
        duration("0s", "366d"),
        Field(alias="before", description="How long before the left row the right one may be."),
    ] = 0
    after_ms: Annotated[
        int,
        duration("0s", "366d"),
        Field(alias="after", description="How long after the left row the right one may be."),
    ] = 0

    @model_validator(mode="before")
    @classmethod
    def _check_form(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            remedy = "write {before: 5m, after: 1h} for a join; for `dedup` it belongs inside: {key: id, within: 1h}"
            raise refusal(f"expected `before` and `after`, got {describe_value(value)}", remedy)
        return value


def _sides(value: object) -> dict[str, str]:
    remedy = "write {order: orders, payment: payments}: a name in this step, and the source or step; the first is left"
    if not isinstance(value, Mapping):
        raise refusal(f"expected two inputs, got {describe_value(value)}", remedy)
    if len(value) != 2:
        raise refusal(f"a join has two inputs, not {len(value)}", remedy)
    found = {_alias(alias): require_text(name, "a source or step", remedy) for alias, name in value.items()}
    if len({alias.lower() for alias in found}) < 2:
        raise refusal("the names of both sides differ only in case", "choose another for one of them")
    return found


def _alias(value: object) -> str:
    """Returns the name of a side, which expressions can write as it is."""
    alias: str = check_step_name(value)
    if "-" in alias:
        raise refusal(f"`{alias}.id` would be a subtraction", f"name the side `{alias.replace('-', '_')}`")
    return alias


_SIDES: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "minProperties": 2,
    "maxProperties": 2,
}


class JoinStepSettings(LateSettings):
    """The keys of a join."""

    join: Annotated[
        dict[str, str] | None,
        ValueCheck(_sides, _SIDES),
        Field(
            description="Pairs rows of two inputs by event time: `{order: orders, payment: payments}`. The first is "
            "the left side. Expressions name columns as `order.id`. Both may be the same input."
        ),
    ] = None
    on: MatchingColumns = None
    within: Annotated[
        WithinSettings | None,
        Field(description="How far apart in event time the rows of a pair may be; or `window`: rows of one window."),
    ] = None
    rows: StepRows = None
    ahead_ms: Annotated[
        int | None,
        duration("1s", "366d"),
        Field(
            alias="ahead",
            description="How far the sources of one side may be ahead of the other side in event time before they "
            "pause. By default the sum of `before` and `after`, or the length of the window; at least 10s.",
        ),
    ] = None
