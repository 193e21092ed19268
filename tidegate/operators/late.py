"""Late rows as an output of a step: the key `late` of the file, and the columns of that output. Pure.

What runs is in `lateness.py`.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from pydantic import Field

from tidegate.datatypes import STRING, TIMESTAMP, DataType
from tidegate.operators.meaning import Branches, digest
from tidegate.operators.spec import LATE, Columns
from tidegate.operators.step import StepContext
from tidegate.settings.base import Settings
from tidegate.settings.fields import StepName

REASONS: Final[Columns] = (("_reason", STRING), ("_watermark", TIMESTAMP))
"""What late rows have besides the columns that arrive: why they are late, and the watermark by which they are."""


class LateSettings(Settings):
    """The key of steps that can find a record late."""

    late: Annotated[
        StepName | None,
        Field(
            description="A sink without `from` that gets the late records, with the columns `_reason` and "
            "`_watermark`. Without it they are only counted."
        ),
    ] = None


def derive_late(step: LateSettings, context: StepContext) -> dict[str, DataType] | None:
    """The columns of the step's late rows, none where nobody asks for them; None when they cannot be (reported).

    The step's output of that name has them from now on.
    """
    if step.late is None:
        return {}
    taken = [name for name, _ in REASONS if name in context.columns]
    if taken:
        remedy = "rename it in a `select` before this step"
        context.problem(("late",), f"`{taken[0]}` is a column of late records, and of these records", remedy)
        return None
    late = {**context.columns, **dict(REASONS)}
    context.gives(late, LATE)
    return late


def columns_read(late: Columns) -> set[str]:
    """Those of late rows that arrive."""
    return {name for name, _ in late} - dict(REASONS).keys()


def pass_late(name: str, branches: Branches) -> Branches:
    """What becomes of the ways to a step on the way of its late rows, which are as they arrived (see `meaning.py`)."""
    reasons = {column: digest("late", name, column) for column, _ in REASONS}
    return tuple(msgspec.structs.replace(branch, columns={**branch.columns, **reasons}) for branch in branches)
