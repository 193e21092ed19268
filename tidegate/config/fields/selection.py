"""`select`: new columns, or with `"*": all` the input columns and changes to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Discriminator, Field, Tag, model_validator

from tidegate.config.fields.base import Settings
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import Column, ExpressionText, Keys, choice, refusal

STAR: Final = "*"
NEW_COLUMNS: Final = "<new columns>"
ALL_COLUMNS: Final = "<all columns>"


class AllColumns(Settings):
    """The columns that arrive, in their order, and what changes of them. Expressions of `add` read the columns as they
    arrive, by their old names, those that `except` leaves out included. A column of `add` whose name is there already
    takes the place of that one; the others come last.
    """

    TITLE: ClassVar[str] = "All columns"
    star: Annotated[str, choice("all"), Field(alias=STAR, description="All columns that arrive.")]
    except_: Annotated[Keys, Field(alias="except", description="Columns that are left out.")] = ()
    rename: Annotated[
        dict[Column, Column], Field(min_length=1, description="New names of columns, `{old: new}`; they stay in place.")
    ] = {}
    add: Annotated[
        dict[Column, ExpressionText], Field(min_length=1, description="Additional columns, by Spark SQL expressions.")
    ] = {}

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        """Suggests `add` for a column that is written next to `"*"`."""
        keys = [info.alias or name for name, info in cls.model_fields.items()]
        for key in value:
            if key not in keys:
                near = derive_suggestion(str(key), keys[1:])
                under = f'new columns go under `add`: {{"*": all, add: {{{key}: ...}}}}'
                remedy = near if near.startswith("did") else under
                raise refusal(f'`{str(key)[:60]}` does not go with `"*"`', remedy, at=str(key))
        return value


def _form_of(value: object) -> str:
    """Returns the form of a selection.

    A list or mapping is not an expression: `except: [debug]` implies all other columns.
    """
    if isinstance(value, Mapping):
        parts = [value.get(key) for key in ("except", "rename", "add")]
        starred = STAR in value or any(isinstance(one, list | Mapping) for one in parts)
        return ALL_COLUMNS if starred else NEW_COLUMNS
    return ALL_COLUMNS if isinstance(value, AllColumns) else NEW_COLUMNS


Selection = Annotated[
    Annotated[dict[Column, ExpressionText], Field(min_length=1), Tag(NEW_COLUMNS)]
    | Annotated[AllColumns, Tag(ALL_COLUMNS)],
    Discriminator(_form_of),
]
