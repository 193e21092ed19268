"""The four verdicts about how written state fits what is needed now. The worst verdict of the parts wins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any, Final

import msgspec

Convert = Callable[[Any], Any]
"""Converts a value from its written form to the one needed now. Raises CannotConvert."""


class Fit(StrEnum):
    """How a written state fits."""

    AS_IS = "as is"
    """There is no difference that matters to a reader."""
    AFTER_RECONFIGURATION = "after reconfiguration"
    """The bytes stay as they are: the reader knows the wider type, or the position of a column."""
    AFTER_MIGRATION = "after migration"
    """Before the first record, every entry is read as it was written, converted, and written in the new form."""
    INCOMPATIBLE = "incompatible"


_ORDER: Final = tuple(Fit)


class Verdict(msgspec.Struct, frozen=True):
    """The fit, and what differs. `reason` is empty if nothing differs."""

    fit: Fit
    reason: str = ""


GONE: Final = " is gone"
"""The end of a reason about a column that no longer exists, after the column's name."""

Difference = tuple[Fit, str]
"""A difference and how severe it is."""


class CannotConvert(ValueError):
    """A value that does not fit its new type, found while entries are migrated."""


class Judged(msgspec.Struct, frozen=True):
    """A verdict with separate reasons, and the conversion that a migration applies to a value."""

    differences: tuple[Difference, ...] = ()
    convert: Convert | None = None
    """None if the value stays as it is."""

    @property
    def fit(self) -> Fit:
        """The worst fit of all differences."""
        return worst(fit for fit, _ in self.differences)

    @property
    def verdict(self) -> Verdict:
        """The verdict. The reason for INCOMPATIBLE contains all incompatible differences and no others."""
        fit = self.fit
        if fit is Fit.INCOMPATIBLE:
            return Verdict(fit, "; ".join(text for one, text in self.differences if one is fit))
        return Verdict(fit, "; ".join(text for _, text in self.differences))


AS_IS: Final = Judged()


def worst(fits: Iterable[Fit]) -> Fit:
    """Returns the worst of these fits; AS_IS if there are none."""
    return max(fits, key=_ORDER.index, default=Fit.AS_IS)


def refused(*reasons: str) -> Judged:
    """Returns INCOMPATIBLE for these reasons."""
    return Judged(tuple((Fit.INCOMPATIBLE, reason) for reason in reasons))
