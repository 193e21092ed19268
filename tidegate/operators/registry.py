"""Finds all operators: the modules of `kinds/` are the kinds of steps; the planner adds those of `builtin/`."""

from __future__ import annotations

import functools
import operator
from types import ModuleType
from typing import Any

from tidegate.modules import import_modules
from tidegate.operators import builtin, kinds
from tidegate.operators.mistakes import check_specs, check_step_kinds
from tidegate.operators.spec import Operator
from tidegate.operators.step import StepKind


@functools.cache
def kind_modules() -> tuple[ModuleType, ...]:
    """Returns the modules of `kinds/`, ordered by name."""
    return tuple(import_modules(kinds).values())


@functools.cache
def step_kinds() -> tuple[StepKind, ...]:
    """Returns the kinds of steps. Those with few keys come first, as in messages and in the reference."""
    found = {module.__name__: getattr(module, "KIND", None) for module in kind_modules()}
    check_step_kinds(found)
    return tuple(sorted(filter(None, found.values()), key=lambda kind: len(kind.settings.model_fields)))


def choose_step_kind(step: Any) -> StepKind:
    """Returns the kind whose key the step has, or the kind without a key if it has none."""
    given = kinds_in(step)
    return given[0] if given else next(kind for kind in step_kinds() if not kind.key)


def kinds_in(step: Any) -> list[StepKind]:
    """Returns the kinds whose keys a step has, except those whose key is an other key of the step's kind."""
    given = [kind for kind in step_kinds() if kind.key and getattr(step, kind.key) is not None]
    taken = {key for kind in given for key in kind.other_keys}
    own = [kind for kind in given if kind.key not in taken]
    taken = {key for kind in own for key in kind.other_keys}
    return [*own, *(kind for kind in given if kind not in own and kind.key not in taken)]


def keys_of(kind: StepKind) -> tuple[str, ...]:
    """Returns the keys that a step of this kind may have besides its own."""
    return (*kind.keys, *kind.other_keys)


def operator_union() -> Any:
    """Returns the union of all specs, distinguished by their tags. A plan is decoded as this type."""
    specs: list[type[Operator]] = []
    for module in (*import_modules(builtin).values(), *kind_modules()):
        found = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Operator)]
        specs += [one for one in found if one.__module__ == module.__name__]
    check_specs(specs)
    return functools.reduce(operator.or_, specs)
