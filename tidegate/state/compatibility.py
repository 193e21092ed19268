"""How something that was written fits what is needed now: four verdicts, of which the worst of the parts wins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

Convert = Callable[[Any], Any]
"""From a value as it was written to one as it is needed. Raises CannotConvert."""


class Fit(StrEnum):
    """How a written state fits."""

    AS_IS = "as is"
    """Nothing differs that a reader would notice."""
    AFTER_RECONFIGURATION = "after reconfiguration"
    """The bytes stay: what reads them knows of a wider type, or where a column is."""
    AFTER_MIGRATION = "after migration"
    """Every entry is read as it was written, changed, and written as it is needed, before the first record."""
    INCOMPATIBLE = "incompatible"


_ORDER: Final = tuple(Fit)


class Verdict(msgspec.Struct, frozen=True):
    """`reason` says what differs; empty when nothing does."""

    fit: Fit
    reason: str = ""


GONE: Final = " is gone"
"""How a reason ends that is about a column; its name is before that."""

Difference = tuple[Fit, str]
"""What differs, and how bad that is."""


class CannotConvert(ValueError):
    """A value that its new type cannot hold, found while entries are migrated."""


class Judged(msgspec.Struct, frozen=True):
    """A verdict with its reasons apart, and what a migration does to a value."""

    differences: tuple[Difference, ...] = ()
    convert: Convert | None = None
    """None: the value stays as it is."""

    @property
    def fit(self) -> Fit:
        """The worst one wins."""
        return worst(fit for fit, _ in self.differences)

    @property
    def verdict(self) -> Verdict:
        """What is incompatible comes first: its reasons are all given, and no others."""
        fit = self.fit
        if fit is Fit.INCOMPATIBLE:
            return Verdict(fit, "; ".join(text for one, text in self.differences if one is fit))
        return Verdict(fit, "; ".join(text for _, text in self.differences))


AS_IS: Final = Judged()


def worst(fits: Iterable[Fit]) -> Fit:
    """The one that wins; AS_IS of none."""
    return max(fits, key=_ORDER.index, default=Fit.AS_IS)


def refused(*reasons: str) -> Judged:
    """INCOMPATIBLE, for these reasons."""
    return Judged(tuple((Fit.INCOMPATIBLE, reason) for reason in reasons))
