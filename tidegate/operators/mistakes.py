"""Mistakes of an operator's author, found when kinds are registered and when a plan is built. Pure.

Each mistake names the operator and the fault. Mistakes in a pipeline file are checked elsewhere. Faults that only show
when rows are processed are found by the contract test (`tests/operators/test_contract.py`).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from tidegate.datatypes import DataType
from tidegate.errors import TidegateError
from tidegate.expressions.bounds import derive_identities
from tidegate.operators.fingerprint import Lineage, StateFingerprint, digest
from tidegate.operators.keyed import KeyedKind, KeyedOperator
from tidegate.operators.spec import Columns, Operator, Planned, StepOperator
from tidegate.operators.step import StepKind

_GROUPS: Final = 128
_ORIGIN: Final = "origin"
T = TypeVar("T")


class OperatorMistake(TidegateError):
    """An operator breaks the contract: a bug of its author, not of a pipeline file."""

    code = "operator-mistake"

    def __init__(self, subject: str, mistakes: Iterable[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__(f"{subject}: {'; '.join(self.mistakes)}")


# -- at registration ---------------------------------------------------------------------------------------------------


def check_specs(specs: Collection[type[Operator]]) -> None:
    """Raises OperatorMistake for a spec as which a plan could not be decoded."""
    by_tag: dict[object, type[Operator]] = {}
    for spec in specs:
        mistakes = []
        tag = spec.__struct_config__.tag
        if tag == spec.__name__:
            mistakes.append('has no tag: write `class ...(StepOperator, frozen=True, tag="...")`')
        elif tag in by_tag:
            mistakes.append(f"has the tag `{tag}` of {by_tag[tag].__name__}: give it one of its own")
        by_tag.setdefault(tag, spec)
        if "bad_records" not in spec.__struct_fields__:
            mistakes.append("has no field `bad_records`, which decides what happens to rows that fail in it")
        if issubclass(spec, StepOperator) and spec.open is StepOperator.open and not _has_runtime(spec.__module__):
            mistakes.append("has no `open`, and there is no module `runtime` next to it: nothing would run")
        if mistakes:
            raise OperatorMistake(f"operator {spec.__name__} ({spec.__module__})", mistakes)


def _has_runtime(module: str) -> bool:
    return hasattr(sys.modules[module], "__path__") and importlib.util.find_spec(f"{module}.runtime") is not None


def check_step_kinds(kinds: Mapping[str, StepKind | None]) -> None:
    """Raises OperatorMistake for a kind (by module name) that no step of a file could be."""
    by_key: dict[str, str] = {}
    fields: dict[str, tuple[str, object]] = {}
    for module, kind in kinds.items():
        if kind is None:
            raise OperatorMistake(f"kind {module}", ["has no `KIND`: no step of a file would be of this kind"])
        mistakes = [*_find_undeclared(kind)]
        if mistakes:
            raise OperatorMistake(f"kind {module}", mistakes)
        own = kind.settings.model_fields
        if kind.key in by_key:
            mistakes.append(f"has the key `{kind.key}` of {by_key[kind.key]}")
        by_key.setdefault(kind.key, module)
        if kind.key and kind.key not in own:
            mistakes.append(f"has the key `{kind.key}`, which is no key of {kind.settings.__name__}")
        mistakes += [
            f"requires `{name}` of every step of a file: give it a default"
            for name, one in own.items()
            if one.is_required()
        ]
        for name, one in own.items():
            where, annotation = fields.setdefault(name, (module, one.annotation))
            if annotation != one.annotation:
                mistakes.append(f"has the key `{name}` with another type than {where}")
        mistakes += [
            f"needs `{name}`, which is no key of {kind.settings.__name__}"
            for name in kind.needs
            if name not in own and name not in kind.other_keys
        ]
        if mistakes:
            raise OperatorMistake(f"kind {module}", mistakes)


def _find_undeclared(kind: object) -> Iterator[str]:
    if not isinstance(kind, StepKind):
        name = kind.__name__ if isinstance(kind, type) else "..."
        yield f"`KIND` is no StepKind: write `KIND = {name}()`"
        return
    if not hasattr(kind, "key"):
        yield "has no `key`: the key of the file that makes a step one of this kind"
    if type(kind).build is StepKind.build:
        yield "has no `build`"
    if isinstance(kind, KeyedKind) and type(kind).build is KeyedKind.build:
        if not hasattr(kind, "operator"):
            yield "has no `operator`: the class of its operator"
        if type(kind).fields is KeyedKind.fields:
            yield "has no `fields`: the operator would be made without its settings"


# -- when a plan is built ----------------------------------------------------------------------------------------------


class Port(NamedTuple):
    """What arrives at an operator on one of its ports, and the keys of the exchange before it."""

    columns: Columns
    keys: tuple[str, ...] = ()


Ports = Mapping[int, Port]


def check_operator(operator: Operator, ports: Ports) -> None:
    """Raises OperatorMistake for an operator that contradicts itself or its input."""
    mistakes = [*find_mistakes(operator, ports)]
    if mistakes:
        raise OperatorMistake(f"operator `{operator.name}` ({type(operator).__name__})", mistakes)


def check_given(operator: Operator, given: Mapping[str, Mapping[str, DataType]]) -> None:
    """Raises OperatorMistake if a step declares other columns than its last operator emits. `given`: by output."""
    mistakes = []
    for output, columns in given.items():
        emitted = dict(operator.output_columns(output))
        what = f"output `{output}`" if output else "the step"
        mistakes += [f"{what} declares `{name}`, which the operator does not emit" for name in columns.keys() - emitted]
        mistakes += [f"the operator emits `{name}`, which {what} does not declare" for name in emitted.keys() - columns]
        mistakes += [
            f"`{name}` of {what} is {columns[name]}, and the operator emits {emitted[name]}"
            for name in columns.keys() & emitted
            if columns[name] != emitted[name]
        ]
    if mistakes:
        raise OperatorMistake(f"operator `{operator.name}` ({type(operator).__name__})", sorted(mistakes))


def find_mistakes(operator: Operator, ports: Ports) -> Iterator[str]:
    """Yields the faults of an operator, without running it."""
    for number, port in ports.items():
        reads = operator.reads(number)
        names = {name for name, _ in port.columns}
        yield from (f"reads() has `{name}`, which does not arrive" for name in sorted(reads - names))
        yield from (f"reads() lacks `{key}`, by which its rows are exchanged" for key in port.keys if key not in reads)
        yield from _find_size_mistakes(operator, number, port)
    for output in ("", *operator.side_outputs()):
        found = [name for name, _ in operator.output_columns(output)]
        yield from (f"emits `{name}` twice" for name in sorted({one for one in found if found.count(one) > 1}))
    decoded = msgspec.json.decode(msgspec.json.encode(operator), type=type(operator))
    yield from (
        f"field `{name}` is another one in the slots: make it a plain, typed value"
        for name in operator.__struct_fields__
        if getattr(decoded, name) != getattr(operator, name)
    )
    yield from _find_state_mistakes(operator, ports)
    yield from _find_lineage_mistakes(operator, ports)
    if any(one.keyed for one in operator.states(_GROUPS)):
        for number, port in ports.items():
            yield from _find_fingerprint_mistakes(operator, number, port)


def _find_state_mistakes(operator: Operator, ports: Ports) -> Iterator[str]:
    declared = operator.states(_GROUPS)
    states = [one.name for one in declared]
    yield from (f"declares the state `{name}` twice" for name in sorted({n for n in states if states.count(n) > 1}))
    unread = msgspec.structs.replace(operator, planned=Planned(outputs={}))
    if _shapes(unread) != _shapes(operator):
        yield ("states() depends on what is read of it (`pruned_columns`): keep the columns that the step itself names")
    for one in declared:
        if not one.keyed:
            continue
        shape = one.shape
        own = tuple(field.name for field in shape.keys[shape.prefix : len(shape.keys) - shape.suffix])
        if not all(port.keys for port in ports.values()):
            yield f"has the keyed state `{one.name}` and is added without keys: `context.add(operator, keys)`"
        elif len(ports) == 1 and own != ports[0].keys:  # each of several inputs may name its keys freely
            keys = ", ".join(ports[0].keys)
            yield f"has the state `{one.name}` by {', '.join(own)}, and its rows are exchanged by {keys}"
        if not shape.values and not shape.prefix:
            yield f"has the state `{one.name}` without values: state_values() returns none"


def _branch(port: Port) -> Lineage:
    columns = {name: digest("column", name) for name, _ in port.columns}
    return Lineage(_ORIGIN, columns, frozenset({digest("before")}), "time")


def _find_lineage_mistakes(operator: Operator, ports: Ports) -> Iterator[str]:
    for output in ("", *operator.side_outputs()):
        passing = [port for number, port in ports.items() if not (operator.preserves_record(output) and number)]
        lineages = tuple(map(_branch, passing))
        passed, wrong = _attempt("lineage()", partial(operator.lineage, lineages, output))
        yield from wrong
        emitted = [name for name, _ in operator.output_columns(output)]
        lacking = {name for one in passed or () for name in emitted if name not in one.columns}
        yield from (f"lineage() has no digest of the column `{name}` that it emits" for name in sorted(lacking))


def _find_fingerprint_mistakes(operator: Operator, number: int, port: Port) -> Iterator[str]:
    branch = _branch(port)
    fingerprint, wrong = _attempt("fingerprint()", lambda: operator.fingerprint((branch,), number))
    yield from wrong
    if wrong:
        return
    if not fingerprint:
        if fingerprint is None:
            yield "has keyed state and no fingerprint: fingerprint() returns None"
        return  # nothing of this input is in its state
    for key in port.keys:
        other = msgspec.structs.replace(branch, columns={**branch.columns, key: digest("another")})
        if operator.fingerprint((other,), number) == fingerprint:
            yield f"fingerprint() is the same whatever the key `{key}` is made of"
    other = msgspec.structs.replace(branch, conditions=frozenset({digest("another")}))
    if operator.fingerprint((other,), number) == fingerprint:
        yield "fingerprint() is the same whichever records arrive (`Lineage.conditions`)"
    if not isinstance(operator, KeyedOperator):  # whose parameters() says what counts
        yield from _find_forgotten_numbers(operator, number, branch, fingerprint)


def _find_forgotten_numbers(
    operator: Operator, number: int, branch: Lineage, fingerprint: StateFingerprint
) -> Iterator[str]:
    """Yields numbers and switches of the step that affect neither its fingerprint nor the shape of its states."""
    for name in operator.__struct_fields__:
        value = getattr(operator, name)
        if not isinstance(value, int):
            continue
        changed = msgspec.structs.replace(operator, **{name: not value if isinstance(value, bool) else value + 1})
        if changed.fingerprint((branch,), number) == fingerprint and _shapes(changed) == _shapes(operator):
            yield f"fingerprint() is the same whatever `{name}` is"


def _shapes(operator: Operator) -> list[object]:
    return [one.shape for one in operator.states(_GROUPS)]


def _find_size_mistakes(operator: Operator, number: int, port: Port) -> Iterator[str]:
    arriving = derive_identities(port.columns)
    sizes, wrong = _attempt("output_size()", lambda: operator.output_size(arriving, number)[0])
    yield from wrong
    if sizes is None:
        return
    for output in ("", *operator.side_outputs()):
        missing = [name for name, _ in operator.output_columns(output) if name not in sizes]
        yield from (f"output_size() has no size of the column `{name}` that it emits" for name in missing)


def _attempt(method: str, call: Callable[[], T]) -> tuple[T | None, list[str]]:
    """Returns the result of a method, or the error that it raises as text."""
    try:
        return call(), []
    except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        return None, [f"{method} raises {type(error).__name__}: {error}"]
