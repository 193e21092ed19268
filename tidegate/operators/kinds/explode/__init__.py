"""`explode`: a row for each element of an array, or for each entry of a map.

`runtime.py` has the runtime. ADR 45 explains why such a step begins a vertex.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.types import ValueCheck, check_below, check_column, describe_value, refusal
from tidegate.datatypes import INT, DataType
from tidegate.expressions.bounds import Bound, Bounds, derive_identities, sum_bounds
from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.fingerprint import Lineages, digest
from tidegate.operators.spec import Columns, StepOperator
from tidegate.operators.step import StepContext, StepKind

_WORDS: Final = ("position", "outer", "keep")
_REMEDY: Final = "write {column: item}, or {column: [key, value]} for a map"


class Explode(msgspec.Struct, frozen=True):
    """The column to explode, and the names of the resulting columns."""

    column: str
    made: tuple[str, ...]
    """One name for the elements of an array; two for the keys and values of a map."""
    position: str = ""
    """The name of the position column; empty: none."""
    outer: bool = False
    keep: bool = False

    @property
    def new(self) -> tuple[str, ...]:
        """The columns that it creates."""
        return (*self.made, self.position) if self.position else self.made


def _explode(value: object) -> Explode:
    if not isinstance(value, Mapping):
        raise refusal(f"expected a mapping, got {describe_value(value)}", _REMEDY)
    columns = [str(key) for key in value if key not in _WORDS]
    if len(columns) != 1:
        message = "there is no column to explode" if not columns else f"`{columns[1][:60]}` is one column too many"
        remedy = f"{_REMEDY}; a step explodes one column, and its only options are {', '.join(_WORDS)}"
        raise refusal(message, remedy, at="" if not columns else columns[1])
    for word in ("outer", "keep"):
        if not isinstance(value.get(word, False), bool):
            raise refusal(f"expected true or false, got {describe_value(value[word])}", f"write {word}: true", at=word)
    column = columns[0]
    made = check_below(column, _made, value[column])
    position = check_below("position", check_column, value["position"]) if "position" in value else ""
    found = Explode(column, made, position, value.get("outer", False), value.get("keep", False))
    if twice := [name for name in found.new if found.new.count(name) > 1]:
        raise refusal(f"two columns would be named `{twice[0]}`", "choose another name for one of them")
    return found


def _made(names: object) -> tuple[str, ...]:
    listed = names if isinstance(names, list) else [names]
    if not 1 <= len(listed) <= 2:
        raise refusal("one name is needed, or two for a map", _REMEDY)
    return tuple(check_column(name) for name in listed)


_NAME: Final = {"type": "string"}
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"position": _NAME, "outer": {"type": "boolean"}, "keep": {"type": "boolean"}},
    "additionalProperties": {"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1, "maxItems": 2}]},
    "minProperties": 1,
}


class ExplodeSettings(Settings):
    """The keys of a step that takes arrays or maps apart."""

    INSIDE: ClassVar[Mapping[str, str]] = {
        "outer": "write it inside `explode`: {column: item, outer: true}",
        "position": "write it inside `explode`: {column: item, position: n}",
    }

    explode: Annotated[
        Explode | None,
        ValueCheck(_explode, _SCHEMA),
        Field(
            description="One row for each element of an array, `{items: item}`, or for each entry of a map, "
            "`{tags: [key, value]}`. The other columns are in each of these rows; the array or map is not, "
            "unless `keep: true` is set within the same braces. There you can also set `position: n`, which adds "
            "the position of the element, from 0, and `outer: true`, which emits one row for a record whose "
            "array is empty or NULL, with NULL in the new columns; otherwise such a record emits none. New "
            "columns come last: position, then elements. A record whose rows would take more than 256 MiB is a "
            "bad record (`RESULT_TOO_LARGE`)."
        ),
    ] = None


class ExplodeOperator(StepOperator, frozen=True, tag="explode"):
    """Splits one column into rows. A batch may yield many times its rows, so the operator begins a vertex: a batch with
    too large an output can be processed in parts.
    """

    BEGINS_VERTEX: ClassVar[bool] = True

    explode: Explode
    type: DataType
    """The type of the column to explode."""
    output: Columns
    bad_records: BadRecordPolicy

    @property
    def others(self) -> Columns:
        """The columns of the record that each of the rows repeats."""
        return tuple(column for column in self.pruned_columns() if column[0] not in self.explode.new)

    @override
    def reads(self, port: int = 0) -> set[str]:
        return {self.explode.column, *(name for name, _ in self.others)}

    @override
    def selects_by(self) -> frozenset[str]:
        return frozenset({self.explode.column})

    @override
    def splits_rows(self) -> bool:
        return True

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        column, new = self.explode.column, self.explode.new
        return tuple(
            branch.filtered(
                digest("explode", "outer" if self.explode.outer else "inner", branch.columns[column])
            ).extended({name: digest("explode", str(place), branch.columns[column]) for place, name in enumerate(new)})
            for branch in lineages
        )

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Returns each output column at its own size, since the output is cut to what the vertex takes at a time."""
        made = derive_identities(self.pruned_columns())
        return made, sum_bounds(columns.values()) + sum_bounds(made.values())

    @override
    def describes(self) -> list[str]:
        one = self.explode
        position = f" with its position {one.position}" if one.position else ""
        outer = "; empty or NULL: one row" if one.outer else "; empty or NULL: no row"
        return [f"a row for each of {one.column} as {', '.join(one.made)}{position}{outer}"]


class ExplodeKind(StepKind):
    """The kind of a step with `explode`."""

    key = "explode"
    examples = ("explode: {tags: tag}",)
    settings = ExplodeSettings

    @override
    def build(self, step: ExplodeSettings, context: StepContext) -> None:
        assert step.explode is not None
        one, path = step.explode, ("explode", step.explode.column)
        kind = context.column(path, one.column)
        if kind is None:
            return
        made = _derive_made(one, kind, path, context)
        others = {name: of for name, of in context.columns.items() if one.keep or name != one.column}
        for name in (name for name in made if name in others):
            remedy = "choose another name, or leave the other column out by a `select` before this step"
            context.problem(("explode",), f"there is already a column `{name}`", remedy)
        if made and not others.keys() & made.keys():
            columns = others | made
            context.declare_columns(columns)
            context.add(ExplodeOperator(context.name, one, kind, tuple(columns.items()), context.policy))


def _derive_made(one: Explode, kind: DataType, path: Path, context: StepContext) -> dict[str, DataType]:
    """Returns the new columns, or none after reporting what is wrong."""
    position = {one.position: INT} if one.position else {}
    if kind.kind not in ("array", "map") or kind.element is None:
        context.problem(path, f"`{one.column}` is {kind}", "only an array or a map can be exploded", at_key=True)
        return {}
    if kind.kind == "map" and kind.key is not None:
        if len(one.made) == 2:
            return position | {one.made[0]: kind.key, one.made[1]: kind.element}
        message = f"`{one.column}` is {kind}: its entries need two names"
        context.problem(path, message, f"write {{{one.column}: [key, value]}}")
        return {}
    if len(one.made) == 1:
        return position | {one.made[0]: kind.element}
    context.problem(path, f"`{one.column}` is {kind}: its elements need one name", f"write {{{one.column}: item}}")
    return {}


KIND = ExplodeKind()
