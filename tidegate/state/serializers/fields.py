"""Rows: how fields that were written become those that are needed, by their names and by what was said about them.

A field goes on under its name, or under the one that `was` gave it. A field that is new has the default that was given,
or NULL; one that is gone is only given up when it is named. The parts of an accumulator, `net.sum`, belong to their
column `net`: they come and go together, and begin as their operator says. What an operator keeps besides them, as the
start of a session, is no column, whatever its name is.
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
    """How tuples of the old fields become tuples of the new ones."""
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
    """One that goes on. A value that may be NULL now could not be so before: no reader notices that."""
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
    """Whether it is what an operator keeps rows in: it has no name for users, their columns are its fields."""
    element = field.type.element
    return place.holds_rows and "." not in field.name and element is not None and element.kind in ("struct", "binary")


def _find_own(fields: Sequence[StateField], place: FieldPath) -> set[str]:
    """Names of those that are the operator's: what it keeps rows in, what is beside accumulators, and what is never
    NULL, as columns may be.
    """
    among = any("." in one.name for one in fields) if place.holds_rows else bool(place.begins)
    return {
        one.name
        for one in fields
        if "." not in one.name and (among or (place.holds_rows and not one.nullable) or _holds_rows(one, place))
    }


def _begin(field: StateField, place: FieldPath, *, known: bool) -> tuple[Difference, Any]:
    """What a new field has for the entries that are there. `known`: others of its column were written."""
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
    """Fields that nothing continues, by column."""
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
    """Names that are renamed in a circle, or two of which were the same; empty when all can be told apart."""
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
    """The renames that are still to be followed: new name to the written one.

    They stay in the file after they have been. So one whose last name (`c`, where `b` was renamed to `a` and `a` to
    `c`) was written is done; that its old name was written, too, is then somebody else's column.
    """
    if find_twisted(renames):
        return {}  # refused where fields are judged
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
    """From a tuple of `width` to one by steps; what begins is after it."""
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
    """The same, which leaves NULL alone."""
    return lambda value: None if value is None else change(value)


def _never_null(name: str, change: Convert | None) -> Convert:
    def convert(value: Any) -> Any:
        if value is None:
            raise CannotConvert(f"{name} is NULL, and cannot be any more")
        return value if change is None else change(value)

    return convert
