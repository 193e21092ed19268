"""Whether what was written can be read as what is needed now. Pure: from two shapes, before any entry is looked at.

Widening a number and the expiry slot are the migrations there are. A field that is added or taken away is none: what
its value would have been for the rows already seen is not in the state, and only the operator knows whether that
matters.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.errors import BEGIN_ANEW
from tidegate.state.declaration import Serializer, StateField, StateForm, StateShape
from tidegate.state.errors import StateUnreadable

_WIDTHS: Final = (("tinyint", "smallint", "int", "bigint"), ("float", "double"))
"""Each is read as any that comes after it: the stored value is the same."""


class Fit(StrEnum):
    """How a written state fits."""

    AS_IS = "as is"
    AFTER_MIGRATION = "after migration"
    INCOMPATIBLE = "incompatible"


class Verdict(msgspec.Struct, frozen=True):
    """`reason` says what differs; empty when nothing does."""

    fit: Fit
    reason: str = ""


def judge(written: StateShape, wanted: StateShape) -> Verdict:
    """Compare. What is incompatible comes first: its reasons are all given, and no others."""
    reasons = [
        *_compare_forms(written, wanted),
        *_compare_serializers(written.serializer, wanted.serializer),
        *_compare_keys(written, wanted),
        *_compare_values(written.values, wanted.values),
    ]
    if reasons:
        return Verdict(Fit.INCOMPATIBLE, "; ".join(reasons))
    widened = [
        f"{new.name} was {old.type} and is {new.type}"
        for old, new in zip(written.values, wanted.values, strict=True)
        if old.type != new.type
    ]
    if written.expires != wanted.expires:
        widened.append("entries can expire now" if wanted.expires else "entries cannot expire any more")
    return Verdict(Fit.AFTER_MIGRATION, "; ".join(widened)) if widened else Verdict(Fit.AS_IS)


def derive_migration(written: StateShape, wanted: StateShape) -> Callable[[Any], Any] | None:
    """Turns a written value into a wanted one; None where they are the same. For shapes that `judge` lets through."""
    if written.expires == wanted.expires:
        return None
    return _add_expiry if wanted.expires else _drop_expiry


def refuse_other_shape(operator: str, state: str, written: StateShape, wanted: StateShape) -> None:
    """Raises StateUnreadable for what is incompatible."""
    verdict = judge(written, wanted)
    if verdict.fit is Fit.INCOMPATIBLE:
        raise StateUnreadable(
            f"state {state} of {operator} was written as {_describe(written)}, the pipeline now needs "
            f"{_describe(wanted)} ({verdict.reason}): put the old definition of the step back, or start with "
            f"{BEGIN_ANEW} (all state empty, sources at their `start`)",
            operator=operator,
            state=state,
            reason=verdict.reason,
        )


def _add_expiry(value: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*value, None)


def _drop_expiry(value: tuple[Any, ...]) -> tuple[Any, ...]:
    return value[:-1]


def _compare_forms(written: StateShape, wanted: StateShape) -> list[str]:
    """A list may be dealt out otherwise from now on; a list and values by key have nothing in common."""
    keyed = [shape.form is StateForm.KEYED for shape in (written, wanted)]
    return [] if keyed[0] == keyed[1] else [f"it was {written.form} and is {wanted.form}"]


def _compare_serializers(written: Serializer, wanted: Serializer) -> list[str]:
    if written == wanted:
        return []
    return [f"its serializer was {_name_of(written)}, this release has {_name_of(wanted)}"]


def _name_of(serializer: Serializer) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in sorted(serializer.parameters.items()))
    return f"{serializer.name} {serializer.version}" + (f" ({parameters})" if parameters else "")


def _compare_keys(written: StateShape, wanted: StateShape) -> list[str]:
    """Keys decide where an entry is: they must be the same."""
    reasons = _compare_fields("key column", written.keys, wanted.keys, _same_field)
    for which, before, now in (("first", written.prefix, wanted.prefix), ("last", written.suffix, wanted.suffix)):
        if before != now:
            reasons.append(f"{before} of the {which} key columns did not count for the key group, now {now} do not")
    if written.key_hash != wanted.key_hash:
        reasons.append(f"keys were hashed by {written.key_hash!r}, and are by {wanted.key_hash!r}")
    if written.max_parallelism != wanted.max_parallelism:
        reasons.append(f"it had {written.max_parallelism} key groups, now {wanted.max_parallelism}")
    return reasons


def _compare_values(written: tuple[StateField, ...], wanted: tuple[StateField, ...]) -> list[str]:
    return _compare_fields("value", written, wanted, _readable_as)


def _compare_fields(
    what: str,
    written: tuple[StateField, ...],
    wanted: tuple[StateField, ...],
    fits: Callable[[StateField, StateField], bool],
) -> list[str]:
    names = [[field.name for field in fields] for fields in (written, wanted)]
    if sorted(names[0]) != sorted(names[1]):
        gone = [f"{what} {name} is gone" for name in names[0] if name not in names[1]]
        new = [f"{what} {name} is new" for name in names[1] if name not in names[0]]
        return [*gone, *new] or [f"a {what} is repeated"]
    if names[0] != names[1]:
        return [f"the {what}s are in another order"]
    return [
        f"{what} {new.name} was {_type_of(old)} and is {_type_of(new)}"
        for old, new in zip(written, wanted, strict=True)
        if not fits(old, new)
    ]


def _type_of(field: StateField) -> str:
    return f"{field.type}" if field.nullable else f"{field.type} not null"


def _same_field(written: StateField, wanted: StateField) -> bool:
    return written == wanted


def _readable_as(written: StateField, wanted: StateField) -> bool:
    """A value that may be NULL now could not be so before: that is no difference to a reader."""
    return (wanted.nullable or not written.nullable) and _widens(written.type, wanted.type)


def _widens(written: DataType, wanted: DataType) -> bool:
    if written == wanted:
        return True
    return any(written.kind in widths and wanted.kind in widths[widths.index(written.kind) :] for widths in _WIDTHS)


def _describe(shape: StateShape) -> str:
    keys, values = (
        ", ".join(f"{field.name} {field.type}" for field in fields) for fields in (shape.keys, shape.values)
    )
    if shape.form is not StateForm.KEYED:
        return f"a list ({shape.form}) of ({values})"
    return f"({keys}) -> ({values}) in {shape.max_parallelism} key groups"
