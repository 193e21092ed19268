"""Digests of the meaning of a state: which records reach it and how its parts are computed from them. Pure.

A total of `sum(net)` that continues as `sum(net * 2)` would be neither. Digests cover the typed expressions with
columns resolved down to the source. Formatting, the names of steps in between, the order of filters and of columns, and
wider integers do not matter. Other column types matter where values are converted to text or hashed.
`plan/state_fingerprints.py` traverses the graph; each kind of operator defines its effect on a `Lineage`.

A change to this module or to the typing of expressions changes digests. From the first release on, raise `VERSION` with
such a change. Digests of different versions are not compared.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.expressions.expression import (
    Call,
    Cast,
    ColumnReference,
    Expression,
    FieldAccess,
    Lambda,
    Literal,
    children_of,
)

VERSION: Final = 1
_DIGEST_BYTES: Final = 8
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")

EVENT_TIME: Final = "the event time"
"""The name of the part of a fingerprint that covers event time. If a step depends on event time only before or only
after a change, as totals that get a `ttl` do, there is nothing to compare.
"""

ARRIVING: Final = "what arrives as"
"""How the names of parts begin that cover a column of which a step does not say whether it uses it. They are compared
like that of event time: a column that is new or gone is no change.
"""

Parts = dict[str, str]
"""Maps the selection of records, the keys, and the aggregates or columns of a step to digests."""

StateFingerprint = dict[str, Parts]
"""Parts by what feeds the step: the name of a source or of another step with state."""


def is_optional(part: str) -> bool:
    """Returns whether a part of a fingerprint is compared only if it is in both."""
    return part == EVENT_TIME or part.startswith(ARRIVING)


class Lineage(msgspec.Struct, frozen=True):
    """One path of records: its origin, and digests of its columns and of the conditions that its records have
    passed.
    """

    origin: str
    columns: Mapping[str, str]
    conditions: frozenset[str] = frozenset()
    time: str = ""
    """Digest of the expression for its event time; empty if no operator needs one."""

    def filtered(self, *conditions: str) -> Lineage:
        """Returns the path with further conditions, by their digests."""
        return msgspec.structs.replace(self, conditions=self.conditions.union(conditions))

    def extended(self, columns: Mapping[str, str]) -> Lineage:
        """Returns the path with further columns, or with others of the same names."""
        return msgspec.structs.replace(self, columns={**self.columns, **columns})


Lineages = tuple[Lineage, ...]


def combine_digests(found: Iterable[tuple[str, str, str]]) -> StateFingerprint:
    """Combines triples of origin, part name and digest. The order of several digests of one part does not matter."""
    by_origin: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for origin, part, one in found:
        by_origin[origin][part].append(one)
    return {
        origin: {part: f"{VERSION}:{digest(*sorted(digests))}" for part, digests in parts.items()}
        for origin, parts in by_origin.items()
    }


def combine_ports(fingerprints: Mapping[int, StateFingerprint]) -> StateFingerprint | None:
    """Combines the fingerprints of a state that several inputs feed, by port; None if there are none.

    What arrives on another port means something else, so a state does not fit a step whose inputs are swapped.
    """
    if fingerprints.keys() <= {0}:
        return fingerprints.get(0)
    found: defaultdict[str, defaultdict[str, list[tuple[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for port, meaning in fingerprints.items():
        for origin, parts in meaning.items():
            for part, one in parts.items():
                version, _, plain = one.partition(":")
                found[origin][part].append((version, digest("port", str(port), plain)))
    return {
        origin: {
            part: f"{several[0][0]}:{digest(*sorted(one for _, one in several))}" for part, several in parts.items()
        }
        for origin, parts in found.items()
    }


def combine_times(name: str, lineages: Lineages) -> str:
    """Returns the digest of the event time of a step's results; empty if no operator needs one."""
    times = sorted({branch.time for branch in lineages if branch.time})
    return digest("event time", name, *times) if times else ""


def derive_conjuncts(predicate: Expression) -> Iterator[Expression]:
    """Yields the conditions that a predicate joins by `and`."""
    if isinstance(predicate, Call) and predicate.function == "and":
        for argument in predicate.arguments:
            yield from derive_conjuncts(argument)
    else:
        yield predicate


def digest_expression(expression: Expression, columns: Mapping[str, str]) -> str:
    """Returns the digest of an expression, given the digests of its columns."""
    match expression:
        case Literal(value=value, type=kind):
            return digest("literal", "integer" if kind.kind in _INTEGERS else kind.kind, repr(value))
        case ColumnReference(name=name):
            return columns[name]
        case FieldAccess(base=base, name=name):
            return digest("field", digest_expression(base, columns), name)
        case Cast(operand=operand, type=kind, attempt=attempt):
            inner = digest_expression(operand, columns)
            before, after = operand.type.kind, kind.kind
            if before in _INTEGERS and after in _INTEGERS and _INTEGERS.index(before) <= _INTEGERS.index(after):
                return inner
            types = [_form_of(operand.type)] if after == "string" else []
            return digest("try_cast" if attempt else "cast", inner, str(kind), *types)
        case Call(function="secret", arguments=arguments):  # by its name: a rotated key keeps the meaning
            return digest("call", "secret", *(digest_expression(argument, columns) for argument in arguments[:2]))
        case Call(function=function, arguments=arguments):
            inside = (digest_expression(argument, columns) for argument in arguments)
            return digest("call", function, *inside, *_types_of(function, arguments))
        case Lambda(parameters=parameters, body=body):  # the depth of parameters matters, not their names
            depth = str(_lambda_depth(body))
            own = {name: digest("parameter", depth, str(index)) for index, (name, _) in enumerate(parameters)}
            return digest("lambda", digest_expression(body, {**columns, **own}))
    raise TypeError(f"{type(expression).__name__} is not an expression")


def _types_of(function: str, arguments: Sequence[Expression]) -> list[str]:
    """Returns the argument types if they can change the result of a function for equal values."""
    if function == "xxhash64":
        return [str(argument.type) for argument in arguments]
    return [_form_of(argument.type) for argument in arguments] if function in ("format_string", "to_json") else []


def _form_of(kind: DataType) -> str:
    """Returns as much of a type as affects the text of its values."""
    match kind.kind:
        case "decimal":
            return f"decimal {kind.scale}"
        case "array" | "map" | "struct":
            inner = [("", one) for one in (kind.key, kind.element) if one is not None]
            return digest(kind.kind, *(part for name, one in (*inner, *kind.fields) for part in (name, _form_of(one))))
    return "integer" if kind.kind in _INTEGERS else kind.kind


def _lambda_depth(expression: Expression) -> int:
    """Returns how deeply lambda functions are nested in an expression."""
    return isinstance(expression, Lambda) + max(map(_lambda_depth, children_of(expression)), default=0)


def digest(*parts: str) -> str:
    """Returns the digest of a sequence of strings. A string may be a digest or end with one."""
    return hashlib.sha256(msgspec.json.encode(parts)).digest()[:_DIGEST_BYTES].hex()
