"""Rows: how written fields become the fields that are needed now, by their names and the user's decisions about them.

A field continues under its name, or under the new name that `was` gives it. A new field gets the given default, or
NULL. A field that no longer exists is dropped only if the user names it. The parts of an accumulator, such as
`net.sum`, belong to their column `net`: they are added and removed together, and their operator defines their initial
values. Any other field of an operator, such as the start of a session, is not a column, whatever its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from tidegate.state.compatibility import GONE, CannotConvert, Convert, Difference, Fit, Judged, refused
from tidegate.state.declaration import StateField
from tidegate.state.serializers.contract import FieldPath, SerializerSnapshot, ValueSerializer


class WrittenField(NamedTuple):
    """A field as it was written."""

    field: StateField
    snapshot: SerializerSnapshot


def judge_fields(
    old: Sequence[WrittenField], new: Sequence[tuple[StateField, ValueSerializer]], place: FieldPath
) -> Judged:
    """Judges how tuples of the old fields become tuples of the new ones."""
    own = _find_own([*(one.field for one in old), *(field for field, _ in new)], place)
    columns = {place.column_of(one.field.name) for one in old if one.field.name not in own}
    renames = place.renames
    twisted = find_twisted(renames)
    if twisted:
        return refused(f"columns {twisted} exchange their names, or one continues as several: rename one at a time")
    former = derive_former(renames, columns)
    index_of = {one.field.name: index for index, one in enumerate(old)}
    differences: list[Difference] = []
    steps: list[tuple[int, Convert | None]] = []
    begun: list[Any] = []
    taken: set[int] = set()
    for field, serializer in new:
        column = place.column_of(field.name)
        before = former.get(column, "" if column in former.values() else column) if field.name not in own else column
        index = index_of.get(before + field.name[len(column) :])
        if index is None:
            difference, value = _begin(field, place, known=before in columns)
            steps.append((len(old) + len(begun), None))
            begun.append(value)
            differences.append(difference)
            continue
        if before != column:
            differences.append((Fit.AFTER_RECONFIGURATION, f"{place.name(column)} was {before}"))
        judged, convert = _judge_field(old[index], field, serializer, place)
        differences += judged
        steps.append((index, convert))
        taken.add(index)
    gone = [one.field.name for index, one in enumerate(old) if index not in taken]
    differences += _judge_gone(gone, former, place, {place.column_of(field.name) for field, _ in new} - own)
    kept = [index for index, _ in steps if index < len(old)]
    if kept != sorted(kept):
        differences.append((Fit.AFTER_MIGRATION, f"{place.path or 'the columns'} are in another order"))
    return Judged(tuple(dict.fromkeys(differences)), _compile(steps, tuple(begun), len(old)))


def _judge_field(
    written: WrittenField, field: StateField, serializer: ValueSerializer, place: FieldPath
) -> tuple[list[Difference], Convert | None]:
    """Judges a field that continues. A field that becomes nullable makes no difference: no written value is NULL."""
    here = place.of_rows() if _holds_rows(field, place) else place.within(field.name)
    judged = written.snapshot.judge(serializer, here)
    differences, convert = list(judged.differences), judged.convert
    if convert is not None and written.field.nullable:
        convert = unless_null(convert)
    if written.field.nullable and not field.nullable:
        name = place.name(field.name)
        differences.append((Fit.AFTER_MIGRATION, f"{name} could be NULL and cannot any more"))
        convert = _never_null(name, convert)
    return differences, convert


def _holds_rows(field: StateField, place: FieldPath) -> bool:
    """Returns whether the operator stores rows in this field. Users cannot name it; their columns are its fields."""
    element = field.type.element
    return place.holds_rows and "." not in field.name and element is not None and element.kind in ("struct", "binary")


def _find_own(fields: Sequence[StateField], place: FieldPath) -> set[str]:
    """Returns the names of the operator's own fields: those that contain rows, those next to accumulators, and those
    that are never NULL, since columns are nullable.
    """
    among = any("." in one.name for one in fields) if place.holds_rows else bool(place.begins)
    return {
        one.name
        for one in fields
        if "." not in one.name and (among or (place.holds_rows and not one.nullable) or _holds_rows(one, place))
    }


def _begin(field: StateField, place: FieldPath, *, known: bool) -> tuple[Difference, Any]:
    """Judges a new field and returns its value for existing entries. `known`: parts of its column were written."""
    column = place.column_of(field.name)
    name = place.name(column)
    if column != field.name:
        if known:
            return (Fit.INCOMPATIBLE, f"what is kept of {name} is another kind of total"), None
        if field.name not in place.begins:
            return (Fit.INCOMPATIBLE, f"{name} is new and cannot begin where there are entries already"), None
        return (Fit.AFTER_MIGRATION, f"{name} is new and begins empty"), place.begins[field.name]
    if name in place.evolution.defaults:
        value = place.evolution.defaults[name]
        return (Fit.AFTER_MIGRATION, f"{name} is new, with {value!r} where there are entries already"), value
    if field.nullable:
        return (Fit.AFTER_MIGRATION, f"{name} is new, NULL where there are entries already"), None
    return (Fit.INCOMPATIBLE, f"{name} is new, cannot be NULL, and has no default"), None


def _judge_gone(
    names: Sequence[str], former: Mapping[str, str], place: FieldPath, wanted: Collection[str]
) -> Iterator[Difference]:
    """Judges fields that do not continue, by column."""
    renamed = {before: now for now, before in former.items()}
    for column in dict.fromkeys(map(place.column_of, names)):
        name, now = place.name(column), renamed.get(column, column)
        if column not in names and now in wanted:
            yield Fit.INCOMPATIBLE, f"what is kept of {place.name(now)} is another kind of total"
        elif name in place.evolution.dropped:
            yield Fit.AFTER_MIGRATION, f"{name} is given up"
        else:
            yield Fit.INCOMPATIBLE, f"{name}{GONE}"


def find_twisted(renames: Mapping[str, str]) -> str:
    """Returns names that are renamed in a circle, or share a former name; empty if the renames are unambiguous."""
    if len(set(renames.values())) < len(renames):
        return ", ".join(sorted(renames))
    for name in renames:
        seen = {name}
        while (name := renames.get(name, "")) and name not in seen:
            seen.add(name)
        if name:
            return ", ".join(sorted(seen))
    return ""


def derive_former(renames: Mapping[str, str], written: Collection[str]) -> dict[str, str]:
    """Returns the renames that still have to be applied: new name to written name.

    Renames stay in the pipeline file after they have been applied. A rename is done if its last name was written (`c`,
    where `b` was renamed to `a` and `a` to `c`). If its old name was also written, that is a different column.
    """
    if find_twisted(renames):
        return {}  # rejected where fields are judged
    names = {before: now for now, before in renames.items()}
    found = {}
    for now, before in renames.items():
        last = now
        while last in names:
            last = names[last]
        if last not in written and before in written:
            found[now] = before
    return found


def _compile(steps: Sequence[tuple[int, Convert | None]], begun: tuple[Any, ...], width: int) -> Convert | None:
    """Combines the steps into one conversion of tuples of `width` fields, followed by the values of new fields."""
    changes = [(index, convert) for index, convert in steps if convert is not None]
    if not changes and not begun and [index for index, _ in steps] == list(range(width)):
        return None
    if not changes and len(steps) > 1:
        pick = itemgetter(*(index for index, _ in steps))
        return (lambda row: pick(row + begun)) if begun else pick
    plan = tuple(steps)

    def convert(row: tuple[Any, ...]) -> tuple[Any, ...]:
        row += begun
        return tuple([row[index] if change is None else change(row[index]) for index, change in plan])

    return convert


def unless_null(change: Convert) -> Convert:
    """Returns the same conversion, except that NULL stays NULL."""
    return lambda value: None if value is None else change(value)


def _never_null(name: str, change: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            raise CannotConvert(f"{name} is NULL, and cannot be any more")
        return value if change is None else change(value)

    return convert
