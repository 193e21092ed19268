"""Resolves the names of sources, steps and sinks, finds cycles, and sorts everything topologically."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.config.errors import Problem
from tidegate.config.fields.base import Path
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings, SourceSettings, StepSettings
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS
from tidegate.operators.registry import choose_step_kind, step_kinds
from tidegate.operators.step import NamedInput


@dataclass(frozen=True, slots=True)
class Declared:
    """A source, step or sink as declared in the file, and its path."""

    name: str
    path: Path
    settings: SourceSettings | StepSettings | SinkSettings
    late_of: tuple[str, ...] = ()
    """The steps whose late records a sink receives."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names that it reads, as written."""
        if isinstance(self.settings, SourceSettings):
            return ()
        if self.named:
            return tuple(one.upstream for one in self.named)
        return tuple(f"{name}.late" for name in self.late_of) or self.settings.from_ or ()

    @property
    def named(self) -> tuple[NamedInput, ...]:
        """Its named inputs, in the order of their ports."""
        return choose_step_kind(self.settings).inputs(self.settings) if isinstance(self.settings, StepSettings) else ()

    @property
    def outputs(self) -> Mapping[str, Path]:
        """Its outputs that are read as `name.output`, with their places in the step."""
        return choose_step_kind(self.settings).outputs(self.settings) if isinstance(self.settings, StepSettings) else {}

    @property
    def operators(self) -> tuple[str, ...]:
        """Its operators that named inputs of other steps may read."""
        return choose_step_kind(self.settings).operators if isinstance(self.settings, StepSettings) else ()

    @property
    def readable(self) -> tuple[str, ...]:
        """The names by which it can be read; none for a sink."""
        if isinstance(self.settings, SinkSettings):
            return ()
        if isinstance(self.settings, SourceSettings):
            return (self.name,)
        return choose_step_kind(self.settings).readable(self.settings)

    def input_path(self, index: int) -> Path:
        """Returns the path of the n-th input; the list's path serves if `from` is a single name."""
        return (*self.path, *self.named[index].path) if self.named else (*self.path, "from", index)


@dataclass(slots=True)
class Scope:
    """Everything declared, in topological order; `unusable` are names that a problem leaves undefined."""

    declared: dict[str, Declared] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unusable: set[str] = field(default_factory=set)


def derive_scope(loaded: LoadedPipeline) -> Scope:
    """Resolves all names of a pipeline. Broken parts, which the loader has reported, cause no further problems."""
    scope = Scope(unusable=set(loaded.broken))
    found = _declare(loaded, scope)
    readable = {name: one.name for one in found.values() for name in one.readable}
    edges = {name: _inputs(one, found, readable, loaded, scope) for name, one in found.items()}
    order = _order(edges)
    for name in [name for name in found if name not in order]:
        scope.unusable.add(name)
    for cycle in _cycles({name: edges[name] for name in found if name not in order}):
        reader = found[cycle[0]]
        path = reader.input_path(next(index for index, name in enumerate(edges[reader.name]) if name in cycle))
        path = path if reader.named else path[:-1]
        message = f"these steps read each other: {' -> '.join([*cycle, cycle[0]])}"
        remedy = "break the cycle: in it, a watermark would wait for itself"
        scope.problems.append(loaded.problem(path, message, remedy))
    scope.declared = {name: found[name] for name in order}
    return scope


def _declare(loaded: LoadedPipeline, scope: Scope) -> dict[str, Declared]:
    settings = loaded.settings
    everything = [Declared(name, ("sources", name), source) for name, source in settings.sources.items()]
    everything += [
        Declared(step.name, ("steps", index), step)
        for index, step in zip(loaded.step_indices, settings.steps, strict=True)
    ]
    late_of: defaultdict[str, list[str]] = defaultdict(list)
    for step in settings.steps:
        late_of[getattr(step, "late", None) or ""].append(step.name)
    everything += [
        Declared(name, ("sinks", name), sink, tuple(late_of[name]) if sink.from_ is None else ())
        for name, sink in settings.sinks.items()
    ]
    found: dict[str, Declared] = {}
    for one in everything:
        if one.name == DEAD_LETTERS and settings.dead_letters is not None:
            is_step = isinstance(one.settings, StepSettings)
            message = f"the name `{DEAD_LETTERS}` is reserved for the sink of dead letters"
            path = (*one.path, "name") if is_step else one.path
            scope.problems.append(loaded.problem(path, message, "choose another", at_key=not is_step))
        earlier = found.setdefault(one.name, one)
        if earlier is not one:
            line = loaded.position(earlier.path)[0]
            is_step = isinstance(one.settings, StepSettings)
            message = f"the name `{one.name}` is already used in line {line}"
            path = (*one.path, "name") if is_step else one.path
            scope.problems.append(
                loaded.problem(
                    path,
                    message,
                    "names of sources, steps and sinks are unique: choose another one",
                    at_key=not is_step,
                )
            )
    return found


def _inputs(
    one: Declared, found: Mapping[str, Declared], known: Mapping[str, str], loaded: LoadedPipeline, scope: Scope
) -> list[str]:
    """Returns the names of what it reads. `known` maps names that can be read to what they belong to."""
    inputs: list[str] = list(one.late_of)
    for index, name in enumerate(one.inputs if not one.late_of else ()):
        if name in known:
            inputs.append(known[name])
            operator = one.named[index].operator if one.named else ""
            if operator and operator not in found[known[name]].operators:
                scope.unusable.add(one.name)
                scope.problems.append(loaded.problem(one.input_path(index), *_of_another_kind(name, operator, found)))
            continue
        scope.unusable.add(one.name)
        base = name.partition(".")[0]
        if base in found:
            problem = _not_an_output(name, found[base])
        elif base in scope.unusable or "" in scope.unusable:
            continue
        else:
            others = [other for other, step in known.items() if step != one.name]
            problem = (
                f"there is no source or step `{name[:60]}`",
                derive_suggestion(name, others, otherwise="define it under `sources` or `steps`"),
            )
        scope.problems.append(loaded.problem(one.input_path(index), *problem))
    return inputs


def _of_another_kind(name: str, operator: str, found: Mapping[str, Declared]) -> tuple[str, str]:
    """Returns message and remedy for a step without the operator that a named input reads."""
    choices = " or ".join(f"`{kind.key}`" for kind in step_kinds() if operator in kind.operators)
    others = [other for other, one in found.items() if operator in one.operators]
    missing = f"add a step with {choices} that reads `{name}`, and name it here"
    remedy = derive_suggestion(name, others, otherwise=missing) if others else missing
    return f"`{name}` is not a step with {choices}", remedy


def _not_an_output(name: str, of: Declared) -> tuple[str, str]:
    """Returns message and remedy for a name that begins with the name of something declared."""
    output = name.partition(".")[2]
    if not of.readable:
        return f"`{of.name}` is a sink: nothing can be read from it", "read what the sink reads"
    if not output:
        first = of.readable[0]
        return (
            f"`{name}` has several outputs, which are read by name",
            f"read {_listed(of.readable)}, as `from: {first}`",
        )
    if not of.outputs:
        return f"`{of.name}` has one output, which has no name", f"read `{of.name}`"
    return f"`{of.name}` has no output `{output}`", derive_suggestion(name, of.readable)


def _listed(names: Sequence[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


def _order(edges: Mapping[str, list[str]]) -> list[str]:
    """Sorts by Kahn's algorithm, stable in the order of the file; names on or after a cycle are omitted."""
    waiting = {name: set(inputs) for name, inputs in edges.items()}
    order: list[str] = []
    while ready := [name for name, inputs in waiting.items() if not inputs]:
        order += ready
        for name in ready:
            del waiting[name]
        for inputs in waiting.values():
            inputs.difference_update(ready)
    return order


def _cycles(edges: Mapping[str, list[str]]) -> list[list[str]]:
    """Returns one cycle through each group of names that read each other, beginning with the first in the file."""
    cycles: list[list[str]] = []
    seen: set[str] = set()
    for start in edges:
        trail: list[str] = []
        name: str | None = start
        while name is not None and name not in seen:
            seen.add(name)
            trail.append(name)
            name = next((below for below in edges[name] if below in edges), None)
        if name in trail:
            cycle = trail[trail.index(name) :]
            first = min(range(len(cycle)), key=lambda place: list(edges).index(cycle[place]))
            cycles.append([*cycle[first:], *cycle[:first]][::-1])
    return [[cycle[-1], *cycle[:-1]] for cycle in cycles]
