"""The keys of a step in Python."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final

from pydantic import Field, SecretStr, create_model

from tidegate.config.fields.base import Settings
from tidegate.config.fields.secrets import is_secret_key
from tidegate.config.fields.types import (
    Column,
    ColumnType,
    Flag,
    GroupKeys,
    StepName,
    StepOutput,
    StepRows,
    ValueCheck,
    choice,
    describe_value,
    refusal,
)
from tidegate.user_code.reference import reference_check

ROW: Final = "row"
BATCH: Final = "batch"
SAME: Final = "same"


def _settings(value: object) -> dict[str, Any]:
    """Checks `with`. Secrets are values of the mapping itself, where the file's loader finds them to mask them."""
    if not isinstance(value, dict):
        raise refusal(f"{describe_value(value)} is not a mapping", "for instance {gap: 30m}")
    found: dict[str, Any] = {}
    for name, one in value.items():
        if not isinstance(name, str):
            raise refusal(f"the name {describe_value(name)} is not a text", "write it in quotes")
        plain = one if isinstance(one, SecretStr) else _make_plain(name, one)
        found[name] = SecretStr(plain) if isinstance(plain, str) and is_secret_key(name) else plain
    return found


def _make_plain(name: str, value: object) -> object:
    """Returns a value of JSON. Refuses values that a plan could not carry to the slots as they are, such as dates."""
    if isinstance(value, dict):
        if any(not isinstance(key, str) for key in value):
            key = next(key for key in value if not isinstance(key, str))
            raise refusal(f"the name {describe_value(key)} is not a text", "write it in quotes", at=name)
        return {key: _make_plain(name, one) for key, one in value.items()}
    if isinstance(value, list):
        return [_make_plain(name, one) for one in value]
    if isinstance(value, SecretStr):
        raise refusal("a secret is within a list or a mapping", "write it directly under `with`: {token: ...}", at=name)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise refusal(f"{describe_value(value)} is not finite", "write it in quotes", at=name)
        return float(value)  # what the file's loader returns is a class of its own
    if value is not None and not isinstance(value, str | int):
        raise refusal(
            f"{describe_value(value)} is neither a text, a number, true nor false", "write it in quotes", at=name
        )
    return value


_REFERENCE = Annotated[
    str | None,
    reference_check("visits:Visits"),
    Field(
        description="`module:Class`, derived from `tidegate.python.Step`, or `module:function`: a function that gets a "
        "row as a dict and returns a dict, a list of dicts, or None (`tidegate docs python`)."
    ),
]
_WITH = Annotated[
    dict[str, Any],
    ValueCheck(_settings, {"type": "object"}),
    Field(
        description="Settings that `open` gets, or a function as its second argument: `{gap: 30m}`. "
        "Secrets by `${file:...}`, which are never shown."
    ),
]


class OutputSettings(Settings):
    """The keys of a step that declares the columns of its outputs."""

    key: GroupKeys = None
    output: StepOutput = None
    outputs: Annotated[
        dict[StepName, Annotated[dict[Column, ColumnType], Field(min_length=1)]],
        Field(
            description="Further outputs by name, each with all its columns. An output is read as `step.output`, for "
            "instance `visits.ended`."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    per: Annotated[
        str,
        choice(ROW, BATCH),
        Field(
            description="`row`: the code is called for each row. `batch`: for all rows of a batch together, as a "
            "Polars frame."
        ),
    ] = ROW
    rows: StepRows = None
    pure: Annotated[
        Flag,
        Field(
            description="The result of a row depends on its values alone, and is the same each time. Required for the "
            "changes of a table."
        ),
    ] = False


_FIELDS: dict[str, Any] = {"python": (_REFERENCE, None), "with": (_WITH, {})}
PythonSettings = create_model(
    "PythonSettings", __base__=OutputSettings, __doc__="The keys of a step in Python.", **_FIELDS
)
"""Created dynamically, since `with` is a Python keyword and cannot be the name of a declared attribute."""
