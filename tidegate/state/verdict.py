"""The verdict on whether written state can be read in the shape that is needed now. Pure: it compares the header of a
file with a declaration before any entry is read.

A shape is treated as the composite snapshot of the serializer of its entries. The serializer's name, version and
parameters and the names of the fields are its outer information; the types of the fields are nested. Each part is
judged separately (`serializers/`), and the worst verdict wins. `migration.py` converts the entries accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.errors import BEGIN_ANEW
from tidegate.state.compatibility import AS_IS, Difference, Fit, Judged, Verdict, refused
from tidegate.state.declaration import (
    LASTS,
    SETTLED,
    TOTAL,
    WINDOW,
    Evolution,
    Serializer,
    StateDeclaration,
    StateField,
    StateForm,
    StateShape,
    total_parameter,
)
from tidegate.state.errors import StateUnreadable
from tidegate.state.serializers.contract import FieldPath, SnapshotUnreadable
from tidegate.state.serializers.fields import WrittenField, derive_former, judge_fields
from tidegate.state.serializers.registry import SERIALIZERS

__all__ = ["Fit", "Verdict", "judge", "judge_keys", "judge_values", "refuse_other_shape"]

_OF_VALUES: Final = (SETTLED, LASTS)
"""Parameters whose differences change values."""


def judge(written: StateShape, declaration: StateDeclaration) -> Verdict:
    """Compares the shapes. The reason for INCOMPATIBLE contains all incompatible differences and no others."""
    wanted, evolution = declaration.shape, declaration.evolution
    if written == wanted and evolution == Evolution():
        return Verdict(Fit.AS_IS)
    try:
        parts = (
            _judge_forms(written, wanted),
            _judge_serializers(written.serializer, wanted.serializer, evolution),
            judge_keys(written, declaration),
            judge_values(written, declaration),
        )
    except SnapshotUnreadable as error:
        return Verdict(Fit.INCOMPATIBLE, f"{error}: use the release that wrote it")
    return Judged(tuple(dict.fromkeys(one for part in parts for one in part.differences))).verdict


def judge_keys(written: StateShape, declaration: StateDeclaration) -> Judged:
    """Judges the keys. Keys determine where an entry is stored, so their order and their key groups must not change."""
    wanted = declaration.shape
    place = FieldPath(declaration.evolution)
    differences: list[Difference] = []
    for which, before, now in (("first", written.prefix, wanted.prefix), ("last", written.suffix, wanted.suffix)):
        if before != now:
            reason = f"{before} of the {which} key columns did not count for the key group, now {now} do not"
            differences.append((Fit.INCOMPATIBLE, reason))
    if written.key_hash != wanted.key_hash:
        reason = f"keys were hashed by {written.key_hash!r}, and are by {wanted.key_hash!r}"
        differences.append((Fit.INCOMPATIBLE, reason))
    if written.max_parallelism != wanted.max_parallelism:
        reason = f"it had {written.max_parallelism} key groups, now {wanted.max_parallelism}"
        differences.append((Fit.INCOMPATIBLE, reason))
    if differences:
        return Judged(tuple(differences))
    own = slice(written.prefix, len(written.keys) - written.suffix)
    if (written.keys[: own.start], written.keys[own.stop :]) != (
        wanted.keys[: wanted.prefix],
        wanted.keys[len(wanted.keys) - wanted.suffix :],
    ):
        return refused("what the operator puts before or after its keys has changed")
    columns, now_columns = written.keys[own], wanted.keys[wanted.prefix : len(wanted.keys) - wanted.suffix]
    return _judge_columns(columns, now_columns, place, written, own.start)


def _judge_columns(
    written: Sequence[StateField], wanted: Sequence[StateField], place: FieldPath, shape: StateShape, first: int
) -> Judged:
    """Judges key columns, which cannot be added, removed or moved. `first`: the number of columns before them."""
    if len(written) != len(wanted):
        names = [", ".join(field.name for field in fields) for fields in (written, wanted)]
        return refused(f"its key was {names[0]} and is {names[1]}")
    former = derive_former(place.renames, {field.name for field in written})
    expected = [former.get(field.name, field.name) for field in wanted]
    names = [field.name for field in written]
    if expected != names:
        what = "the key columns are in another order" if sorted(expected) == sorted(names) else "its key"
        return refused(f"{what}: it was {', '.join(names)} and is {', '.join(field.name for field in wanted)}")
    judged = _judge_all(written, wanted, place, shape)
    moved = [
        f"key column {new.name} was {old.type} and is {new.type}: keys would be in other key groups"
        for old, new in zip(written, wanted, strict=True)
        if not _same_group(old, new)
    ]
    if moved:
        return refused(*moved)
    change = judged.convert
    if change is None:
        return judged
    last = first + len(written)
    return Judged(judged.differences, lambda row: (*row[:first], *change(row[first:last]), *row[last:]))


def _same_group(written: StateField, wanted: StateField) -> bool:
    """Returns whether values have the same canonical bytes (`keygroups.py`), as is true of integers of any width."""
    old, new = written.type, wanted.type
    integers = ("tinyint", "smallint", "int", "bigint")
    return (old.kind == new.kind and old.scale == new.scale) or (old.kind in integers and new.kind in integers)


def judge_values(written: StateShape, declaration: StateDeclaration) -> Judged:
    """Judges the values."""
    wanted = declaration.shape
    place = FieldPath(declaration.evolution, declaration.begins, holds_rows=True)
    judged = _settle(_judge_all(written.values, wanted.values, place, written), written, declaration)
    lasting, move = _judge_ends(written, wanted)
    if not lasting and (judged.convert is None or not written.expires):
        return judged
    change, width = judged.convert, len(written.values)

    def convert(value: tuple[Any, ...]) -> tuple[Any, ...]:
        own = value[:width] if change is None else change(value[:width])
        if not wanted.expires:
            return own
        return (*own, move(value[width]) if written.expires else None)

    return Judged((*judged.differences, *lasting), convert)


def _judge_ends(written: StateShape, wanted: StateShape) -> tuple[tuple[Difference, ...], Callable[[Any], int | None]]:
    """Judges the expiry times of entries, and returns how to convert one. With another clock they are computed anew."""
    if written.expires != wanted.expires:
        text = "entries can expire now" if wanted.expires else "entries cannot expire any more"
        return ((Fit.AFTER_MIGRATION, text),), _as_written
    before, now = (shape.serializer.parameters.get(LASTS, "") for shape in (written, wanted))
    if before == now:
        return (), _as_written
    differs = ((Fit.AFTER_MIGRATION, f"entries lasted {before} and last {now}"),)
    (old, _, clock), (new, _, other) = before.partition(" "), now.partition(" ")
    if clock != other:
        return differs, lambda _: None
    return differs, lambda end: None if end is None else end + int(new) - int(old)


def _as_written(end: int | None) -> int | None:
    return end


def _settle(judged: Judged, written: StateShape, declaration: StateDeclaration) -> Judged:
    """Adds `settles` to the conversion of values that were changed, or that another definition has settled."""
    settles, change = declaration.settles, judged.convert
    if settles is None:
        return judged
    before, now = (one.serializer.parameters.get(SETTLED) for one in (written, declaration.shape))
    differences = judged.differences
    if before != now:
        differences = (*differences, (Fit.AFTER_MIGRATION, f"it held the {before} and holds the {now}"))
    if change is None:
        return judged if before == now else Judged(differences, settles)
    return Judged(differences, lambda value: settles(change(value)))


def _judge_all(
    written: Sequence[StateField], wanted: Sequence[StateField], place: FieldPath, shape: StateShape
) -> Judged:
    versions = shape.serializer.versions
    old = [WrittenField(field, SERIALIZERS.read(field.type, versions)) for field in written]
    new = [(field, SERIALIZERS.serializer_of(field.type)) for field in wanted]
    return judge_fields(old, new, place)


def refuse_other_shape(operator: str, written: StateShape, declaration: StateDeclaration) -> None:
    """Raises StateUnreadable if the shapes are incompatible."""
    verdict = judge(written, declaration)
    if verdict.fit is Fit.INCOMPATIBLE:
        raise StateUnreadable(
            f"state {declaration.name} of {operator} was written as {_describe(written)}, the pipeline now needs "
            f"{_describe(declaration.shape)} ({verdict.reason}): put the old definition of the step back; or say what "
            "becomes of the columns (`was` for those that are renamed, `state: {drop: [...]}` for those that are given "
            "up); or let the step begin with empty state (`state: reset`); or start with "
            f"{BEGIN_ANEW} (all state empty, sources at their `start`)",
            operator=operator,
            state=declaration.name,
            reason=verdict.reason,
        )


def _judge_forms(written: StateShape, wanted: StateShape) -> Judged:
    """Judges the forms. A list may be redistributed in another way; a list and keyed values are incompatible."""
    alike = (written.form is StateForm.KEYED) is (wanted.form is StateForm.KEYED)
    return AS_IS if alike else refused(f"it was {written.form} and is {wanted.form}")


def _judge_serializers(written: Serializer, wanted: Serializer, evolution: Evolution) -> Judged:
    """Judges the outer information: name, version, and every parameter except those whose differences change values.
    The parameters of accumulators follow their columns. Sessions have no window parameter.
    """
    old, new = (
        {name: text for name, text in one.parameters.items() if name not in _OF_VALUES and not name.startswith(TOTAL)}
        for one in (written, wanted)
    )
    if WINDOW not in old:
        new.pop(WINDOW, None)
    if (written.name, written.version, old.keys()) == (wanted.name, wanted.version, new.keys()):
        if other := [name for name in sorted(old) if old[name] != new[name]]:
            return refused(*(f"its {name} was {old[name]} and is {new[name]}" for name in other))
    else:
        return refused(f"its serializer was {_name_of(written, old)}, this release has {_name_of(wanted, new)}")
    totals = {name[len(TOTAL) :]: text for name, text in written.parameters.items() if name.startswith(TOTAL)}
    former = derive_former(FieldPath(evolution).renames, totals)
    reasons = []
    for column, text in totals.items():
        now = next((new for new, before in former.items() if before == column), column)
        held = wanted.parameters.get(total_parameter(now), text)
        if held != text:
            reasons.append(f"{now} was kept as {text} and is as {held}")
    return refused(*reasons)


def _name_of(serializer: Serializer, parameters: dict[str, str]) -> str:
    named = ", ".join(f"{name}={value}" for name, value in sorted(parameters.items()))
    return f"{serializer.name} {serializer.version}" + (f" ({named})" if named else "")


def _describe(shape: StateShape) -> str:
    keys, values = (
        ", ".join(f"{field.name} {field.type}" for field in fields) for fields in (shape.keys, shape.values)
    )
    if shape.form is not StateForm.KEYED:
        return f"a list ({shape.form}) of ({values})"
    return f"({keys}) -> ({values}) in {shape.max_parallelism} key groups"
