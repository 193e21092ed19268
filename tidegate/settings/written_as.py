"""How the values of a changelog were written, where the same JSON may mean several things."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tidegate.settings.base import Settings
from tidegate.settings.fields import choice


class WrittenAsSettings(Settings):
    """How a source's values were written that look alike in JSON. What nothing says is refused, never guessed."""

    timestamps: Annotated[
        str | None,
        choice("ms", "us"),
        Field(
            description="The unit of whole numbers in columns of timestamps, since 1970: `ms` (Debezium with "
            "`time.precision.mode=connect`), or `us` (`adaptive_time_microseconds`, columns with more than three "
            "digits of a second). Without it such a number makes the record bad."
        ),
    ] = None
    decimals: Annotated[
        str | None,
        choice("text", "base64"),
        Field(
            description="What texts in columns of decimals are: `text`, a number (`decimal.handling.mode=string`), or "
            "`base64`, the bytes of the unscaled number (`precise`). Without it a text that could be both makes the "
            "record bad."
        ),
    ] = None
