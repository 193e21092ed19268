"""Schemas for fastavro that identify the member of a union of several types.

fastavro returns only the value, and an object can be a map or a record, a text a string or a symbol. So each type of
such a union becomes a record with one field, which takes the same bytes, and the name of the field identifies the
member. A writer's type is assigned to the reader's type that matches it, else to the first that it can be promoted to.

Types are written out wherever they are used, with a separate name for each place that both sides have, and fields have
the reader's names, so that nothing is resolved by name. Fields that the writer lacks are omitted; the caller adds their
defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any, Final

from tidegate.formats.kinds.avro.resolution import choose_member, find_field, is_alike, short_name
from tidegate.formats.kinds.avro.schema import AvroType

MEMBER: Final = "__tidegate_member"
"""Prefix of the name of a member's field, followed by its index among the types other than null."""

Both = tuple[Any, Any]
"""JSON schemas for the writer and the reader."""


def member_of(value: Any) -> tuple[int, Any] | None:
    """Returns which member of a union was read, and its value; None for a default, which was not read."""
    if isinstance(value, Mapping) and len(value) == 1:
        [(name, inner)] = value.items()
        if name.startswith(MEMBER):
            return int(name.removeprefix(MEMBER)), inner
    return None


def show_members(writer: AvroType, reader: AvroType) -> Both:
    """Returns the schemas for fastavro, without logical types."""
    return _Pairs().both(writer, reader)


class _Pairs:
    def __init__(self) -> None:
        self._numbers = count()

    def both(self, writer: AvroType, reader: AvroType) -> Both:
        if reader.kind == "union" and reader.bare is reader:
            return self._members(writer, reader)
        if "union" in (writer.kind, reader.kind):
            return self._branches(writer, reader)
        if writer.kind == reader.kind == "record":
            return self._records(writer, reader)
        if writer.items is not None and reader.items is not None and writer.kind == reader.kind:
            word = "items" if reader.kind == "array" else "values"
            items = self.both(writer.items, reader.items)
            return {"type": writer.kind, word: items[0]}, {"type": writer.kind, word: items[1]}
        name = self._name(reader)
        return _leaf(writer, name), _leaf(reader, name)

    def _alone(self, one: AvroType) -> Any:
        """Describes a type that the other side does not have."""
        if one.kind == "union":
            return [self._alone(each) for each in one.branches]
        if one.kind == "record":
            fields = [{"name": field.name, "type": self._alone(field.type)} for field in one.fields]
            return {"type": "record", "name": self._name(one), "fields": fields}
        if one.items is not None:
            return {"type": one.kind, "items" if one.kind == "array" else "values": self._alone(one.items)}
        return _leaf(one, self._name(one))

    def _records(self, writer: AvroType, reader: AvroType) -> Both:
        sources = {field.name: find_field(writer, field) for field in reader.fields}
        names = {source.name: name for name, source in sources.items() if source is not None}
        types = {field.name: field.type for field in reader.fields}
        written, read = [], {}
        for number, field in enumerate(writer.fields):
            name = names.get(field.name)
            if name is None:
                written.append({"name": f"__tidegate_{number}", "type": self._alone(field.type)})
            else:
                one, other = self.both(field.type, types[name])
                written.append({"name": name, "type": one})
                read[name] = {"name": name, "type": other}
        name = self._name(reader)
        ordered = [read[one] for one in types if one in read]
        return (
            {"type": "record", "name": name, "fields": written},
            {"type": "record", "name": name, "fields": ordered},
        )

    def _branches(self, writer: AvroType, reader: AvroType) -> Both:
        """Handles a reader's type that is a single type, or one and null."""
        written, read = list(writer.branches or (writer,)), list(reader.branches or (reader,))
        ones: dict[int, Any] = {}
        others = []
        for branch in read:
            left = [(at, one) for at, one in enumerate(written) if at not in ones]
            place = next((at for at, one in left if is_alike(one, branch)), None)
            if place is None:
                others.append(self._alone(branch))
            else:
                ones[place], other = self.both(written[place], branch)
                others.append(other)
        made = [ones[at] if at in ones else self._alone(one) for at, one in enumerate(written)]
        return made if writer.kind == "union" else made[0], others if reader.kind == "union" else others[0]

    def _members(self, writer: AvroType, reader: AvroType) -> Both:
        members = [one for one in reader.branches if one.kind != "null"]
        nullable = len(members) < len(reader.branches)
        ones: list[Any] = []
        others: list[Any] = ["null"] if nullable else []
        for branch in writer.branches or (writer,):
            place = choose_member(branch, members)
            if place is None or branch.kind == "null":
                ones.append(self._alone(branch))
                continue
            one, other = self.both(branch, members[place])
            name = f"Member{next(self._numbers)}"
            ones.append(_member(name, place, one))
            others.append(_member(name, place, other))
        if not others:
            others = [self._alone(one) for one in members]
        return ones if writer.kind == "union" else ones[0], others

    def _name(self, one: AvroType) -> str:
        return f"{short_name(one.name) or one.kind}__{next(self._numbers)}"


def _member(name: str, place: int, kind: Any) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": f"{MEMBER}{place}", "type": kind}]}


def _leaf(one: AvroType, name: str) -> Any:
    if one.kind == "enum":
        more = {} if one.default is None else {"default": one.default}
        return {"type": "enum", "name": name, "symbols": list(one.symbols), **more}
    return {"type": "fixed", "name": name, "size": one.size} if one.kind == "fixed" else one.kind
