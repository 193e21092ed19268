"""Upgrade directives in terms of a state: columns, and defaults as plain values.

Pure, and independent of the file's models, because slots use it to open their states.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.ids import OperatorName
from tidegate.operators.spec import Operator
from tidegate.plan.graph import UpgradeDirective
from tidegate.state.declaration import SETTLED, Evolution, StateDeclaration, StateShape

_INTEGERS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def state_columns(shapes: Iterable[StateShape]) -> dict[str, DataType | None]:
    """Returns the columns of a step's states by the names that users know, including nested fields (`place.city`).

    Aggregates, which a state stores in several parts, have no type.
    """
    found: dict[str, DataType | None] = {}
    for shape in shapes:
        for key in shape.keys[shape.prefix : len(shape.keys) - shape.suffix]:  # the others are added by the operator
            _add_column(found, key.name, key.type)
        names: list[str] = []
        for field in shape.values:
            rows = field.type.element
            if "." not in field.name and field.nullable and (rows is None or rows.kind not in ("struct", "binary")):
                _add_column(found, field.name, field.type)  # what an operator keeps for itself is never NULL
            elif "." in field.name or rows is None or rows.kind != "struct":
                names.append(field.name)
            elif SETTLED in shape.serializer.parameters:  # an operator keeps columns in it, otherwise totals
                for name, kind in rows.fields:
                    _add_column(found, name, kind)
            else:
                names += [name for name, _ in rows.fields]
        for name in names:
            if aggregate := name.rpartition(".")[0]:
                found.setdefault(aggregate, None)
    return found


def _add_column(found: dict[str, DataType | None], name: str, kind: DataType) -> None:
    found.setdefault(name, kind)
    inner = kind.element if kind.kind == "array" and kind.element is not None else kind
    for field, part in inner.fields:
        _add_column(found, f"{name}.{field}", part)


def evolve(declaration: StateDeclaration, directive: UpgradeDirective, *, renamed: bool = False) -> StateDeclaration:
    """Returns the declaration with the file's directives; `renamed` means that `was` still applies."""
    own = declaration.evolution
    kinds = state_columns([declaration.shape])
    given = {
        name: plain_value(kind, value)
        for name, value in directive.defaults.items()
        if (kind := kinds.get(name)) is not None and find_unfit(kind, value) is None
    }
    evolution = Evolution(
        operator_was=directive.was if renamed else OperatorName(""),
        columns=directive.columns,
        dropped=own.dropped | frozenset(directive.drop),
        defaults={**own.defaults, **given},
    )
    return msgspec.structs.replace(declaration, evolution=evolution)


def declare_states(
    operator: Operator,
    max_parallelism: int,
    directives: Mapping[OperatorName, UpgradeDirective],
) -> tuple[StateDeclaration, ...]:
    """Returns an operator's states, with the directives about older entries."""
    declared = operator.states(max_parallelism)
    directive = directives.get(operator.name)
    return declared if directive is None else tuple(evolve(one, directive) for one in declared)


# -- values ------------------------------------------------------------------------------------------------------------


def find_unfit(kind: DataType, value: object) -> tuple[str, str] | None:
    """Returns message and remedy if a value of a file does not fit a type."""
    try:
        plain_value(kind, value)
    except (ValueError, InvalidOperation, OverflowError):
        remedy = _EXAMPLES.get(kind.kind, "values of this type are not supported yet: leave it out, and it is NULL")
        return f"{str(value)[:60]!r} is no {kind}", remedy
    return None


_EXAMPLES: Final = {
    **dict.fromkeys(_INTEGERS, "write a whole number within its range"),
    "float": "write a number",
    "double": "write a number",
    "decimal": 'write a number in quotes, for instance "0.00"',
    "string": "write a text",
    "boolean": "write true or false",
    "date": 'for instance "2026-11-01"',
    "timestamp": 'for instance "2026-11-01T00:00:00Z"',
}


def plain_value(kind: DataType, value: object) -> Any:
    """Converts a value of a file to the form in states (`state/snapshot.py`).

    Raises ValueError or an error of the number.
    """
    if kind.kind in _INTEGERS and isinstance(value, int) and not isinstance(value, bool):
        half = 1 << (_INTEGERS[kind.kind] - 1)
        if -half <= value < half:
            return value
    elif kind.kind in ("float", "double") and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif (kind.kind == "string" and isinstance(value, str)) or (kind.kind == "boolean" and isinstance(value, bool)):
        return value
    elif kind.kind == "decimal" and isinstance(value, str | int) and not isinstance(value, bool):
        return _decimal(kind, Decimal(value))
    elif kind.kind == "date" and isinstance(value, str):
        return (dt.date.fromisoformat(value) - _EPOCH.date()).days
    elif kind.kind == "timestamp" and isinstance(value, str):
        moment = dt.datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return (moment - _EPOCH) // dt.timedelta(microseconds=1)
    raise ValueError("no value of this type")


def _decimal(kind: DataType, number: Decimal) -> Decimal:
    scaled = number.quantize(Decimal(1).scaleb(-kind.scale))
    if scaled != number or len(scaled.as_tuple().digits) > kind.precision:
        raise ValueError("it has too many digits")
    return scaled
