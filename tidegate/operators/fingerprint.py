"""What a state means, in digests: which records reach it and how its parts are computed from them. Pure.

A total of `sum(net)` that goes on as `sum(net * 2)` is neither. Digests are of the typed expressions with columns
resolved down to the source: formatting, names of steps in between, the order of filters and of columns, and wider
integers do not matter; other types of columns do where texts or hashes are made of them. `plan/state_fingerprints.py`
follows the graph; each kind of operator says what it does to a `Lineage`.

A change of this module or of how an expression is typed changes digests: raise `VERSION` then, from the first release
on. Digests of another version are not compared.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.datatypes import DataType
from tidegate.expressions.expression import Call, Cast, ColumnReference, Expression, FieldAccess, Lambda, Literal

VERSION: Final = 1
_DIGEST_BYTES: Final = 8
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_BITS: Final = re.compile("%[^%A-Za-z]*[oxX]")
"""What a format makes of a negative integer goes by its width."""

EVENT_TIME: Final = "the event time"
"""The part of a step that goes by it: where it does so only before or only after a change, as totals that get a `ttl`,
there is nothing to compare.
"""

Parts = dict[str, str]
"""The choice of records, the keys, and the aggregates or columns of a step -> digest."""

StateFingerprint = dict[str, Parts]
"""By what feeds the step: the name of a source, or of another step with state."""


class Lineage(msgspec.Struct, frozen=True):
    """One way that records go: where it begins, digests of its columns and of the conditions that they have passed."""

    origin: str
    columns: Mapping[str, str]
    conditions: frozenset[str] = frozenset()
    time: str = ""
    """Digest of what its event time is read from; empty where nobody needs one."""


Lineages = tuple[Lineage, ...]


def combine_digests(found: Iterable[tuple[str, str, str]]) -> StateFingerprint:
    """Of what feeds a step, the name of a part, and a digest of it; the order of several of one part does not count."""
    by_origin: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for origin, part, one in found:
        by_origin[origin][part].append(one)
    return {
        origin: {part: f"{VERSION}:{digest(*sorted(digests))}" for part, digests in parts.items()}
        for origin, parts in by_origin.items()
    }


def combine_ports(fingerprints: Mapping[int, StateFingerprint]) -> StateFingerprint | None:
    """Of a state that several inputs feed, by their ports; None where there is none.

    What arrives on another port means something else, so a state does not fit a step whose inputs are exchanged.
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
    """Of the event time of what a step makes of its records; empty where nobody needs one."""
    times = sorted({branch.time for branch in lineages if branch.time})
    return digest("event time", name, *times) if times else ""


def derive_conjuncts(predicate: Expression) -> Iterator[Expression]:
    """The conditions that a predicate joins by `and`."""
    if isinstance(predicate, Call) and predicate.function == "and":
        for argument in predicate.arguments:
            yield from derive_conjuncts(argument)
    else:
        yield predicate


def digest_expression(expression: Expression, columns: Mapping[str, str]) -> str:
    """Of an expression over columns that have digests themselves."""
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
        case Call(function="secret", arguments=arguments):  # by its name: another key is no other meaning
            return digest("call", "secret", *(digest_expression(argument, columns) for argument in arguments[:2]))
        case Call(function=function, arguments=arguments):
            inside = (digest_expression(argument, columns) for argument in arguments)
            return digest("call", function, *inside, *_types_of(function, arguments))
        case Lambda(parameters=parameters, body=body):  # names of parameters do not matter, how deep they are does
            depth = str(_lambda_depth(body))
            own = {name: digest("parameter", depth, str(index)) for index, (name, _) in enumerate(parameters)}
            return digest("lambda", digest_expression(body, {**columns, **own}))
    raise TypeError(f"{type(expression).__name__} is not an expression")


def _types_of(function: str, arguments: Sequence[Expression]) -> list[str]:
    """The types by which a function makes other results of values that are equal."""
    first = arguments[0] if arguments else None
    bits = function == "format_string" and isinstance(first, Literal) and _BITS.search(str(first.value))
    if function == "xxhash64" or bits:
        return [str(argument.type) for argument in arguments]
    return [_form_of(argument.type) for argument in arguments] if function in ("format_string", "to_json") else []


def _form_of(kind: DataType) -> str:
    """A type as far as the text of a value goes by it."""
    match kind.kind:
        case "decimal":
            return f"decimal {kind.scale}"
        case "array" | "map" | "struct":
            inner = [("", one) for one in (kind.key, kind.element) if one is not None]
            return digest(kind.kind, *(part for name, one in (*inner, *kind.fields) for part in (name, _form_of(one))))
    return "integer" if kind.kind in _INTEGERS else kind.kind


def _lambda_depth(expression: Expression) -> int:
    """How many lambda functions are inside one another in an expression."""
    match expression:
        case FieldAccess(base=operand) | Cast(operand=operand):
            return _lambda_depth(operand)
        case Call(arguments=arguments):
            return max(map(_lambda_depth, arguments), default=0)
        case Lambda(body=body):
            return 1 + _lambda_depth(body)
    return 0


def digest(*parts: str) -> str:
    """Of words in order, which may be digests or end with one."""
    return hashlib.sha256(msgspec.json.encode(parts)).digest()[:_DIGEST_BYTES].hex()
