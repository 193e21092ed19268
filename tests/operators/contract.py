"""What every step operator has to keep, found by running it: each finding is a sentence for the operator's author."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import polars as pl

from tests.operators.example_modules import EXAMPLE_MODULES
from tests.operators.subtasks import GROUPS, Subtasks
from tests.support.user_code import describe_here
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.expressions.bounds import Bound, derive_identities
from tidegate.formats.columns import make_column, polars_type
from tidegate.formats.row_kinds import INSERT, ROW_KIND
from tidegate.operators.async_queue import PendingCall
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.fingerprint import Lineage, digest
from tidegate.operators.runtime import END_OF_TIME, system_columns
from tidegate.operators.spec import Columns, Requirement, Rest, Slot, StepOperator
from tidegate.operators.step import StepKind
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan, Vertex
from tidegate.state.backends import choose_backend
from tidegate.state.errors import StateUnreadable
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.task.elements import Watermark
from tidegate.user_code.modules import install_modules

_SCHEMA: Final = "{id: bigint, customer: string, amount: double, at: timestamp, tags: array<string>}"
_FILE: Final = """\
version: 1
name: contract
kafka: {{bootstrap.servers: localhost:9092}}
checkpoints: {{directory: file:///tmp/contract}}
sources:
  rows: {source}
{more}steps:
{known}  - {{name: tried, {step}}}
sinks:
  out: {{from: {outputs}, topic: out}}
{late}"""
_KNOWN: Final = "{name: known, from: more, table: {key: id}}"
PARTITION: Final = "__tidegate_partition"
OFFSET: Final = "__tidegate_offset"
PROBE: Final = "__tidegate_probe"
"""A column of the engine that no operator has heard of."""
_BATCHES: Final = 6
_ROWS: Final = 10
_FIRST_MS: Final = 1_000_000

Ports = Mapping[int, tuple[Columns, tuple[str, ...]]]
"""By port the columns that arrive, and the keys of the exchange."""
Tried = tuple[StepOperator, Ports]
"""An operator as the plan has it, and what arrives at it."""
Batches = Sequence[tuple[int, pl.DataFrame]]
"""Each with the port that it arrives on."""
_Made = tuple[int, pl.DataFrame, list[pl.DataFrame]]
"""The port of a batch, the batch, and what was made of it at once."""


def plan_of(kind: StepKind, example: str, record_format: str = "json") -> Plan:
    """The plan of a pipeline with one step. Raises ConfigErrors where such a step takes no changes."""
    plan = build_plan(load(kind, example, record_format))
    install_modules(plan.modules)
    return plan


def load(kind: StepKind, example: str, record_format: str = "json") -> LoadedPipeline:
    """A pipeline with one step."""
    step = example if "from:" in example or "rows" in example.replace("rows:", "") else f"from: rows, {example}"
    source = f"{{topic: rows, format: {record_format}, schema: {_SCHEMA}}}"
    known = f"  - {_KNOWN}\n" if "known" in example else ""
    more = f"  more: {source}\n" if "more" in example or known else ""
    late = "  late: {topic: late}\n" if "late:" in example else ""
    text = _FILE.format(source=source, more=more, known=known, step=step, outputs="tried", late=late)
    first = parse_pipeline(text, "contract.yaml", {})
    if not first.settings.steps or first.settings.steps[-1].name != "tried":
        raise ConfigErrors(first.problems)
    readable = kind.readable(first.settings.steps[-1])
    if readable != ("tried",):
        named = "[" + ", ".join(readable) + "]"
        text = _FILE.format(source=source, more=more, known=known, step=step, outputs=named, late=late)
        first = parse_pipeline(text, "contract.yaml", {})
    return describe_here(first, EXAMPLE_MODULES)


def tried_of(plan: Plan) -> Iterator[Tried]:
    """The operators of the step, with what arrives at them."""
    for vertex in plan.vertices:
        for index, node in enumerate(vertex.nodes):
            spec = node.operator
            if isinstance(spec, StepOperator) and str(spec.name).partition(".")[0] == "tried":
                yield spec, _arriving(plan, vertex, index)


def _arriving(plan: Plan, vertex: Vertex, index: int) -> Ports:
    if index == 0:
        edges = sorted(plan.inputs_of(vertex.id), key=lambda edge: bool(edge.keys))  # of a port that has both, by key
        return {edge.port: (edge.columns, edge.keys) for edge in edges}
    for parent in vertex.nodes:
        if index in parent.children:
            return {0: (parent.operator.pruned_columns(), ())}
        for output, way in parent.sides.items():
            if index in way.children:
                return {0: (parent.operator.pruned_columns(output), ())}
    raise AssertionError("a node below the head has a parent")


class AnswersAtOnce:
    """A caller whose answers are rows of NULLs."""

    def __init__(self, *_: object) -> None:
        self._done: list[PendingCall] = []

    def submit(self, asked: Any) -> None:
        self._done += [call for call, _ in asked]

    def take(self) -> list[PendingCall]:
        taken, self._done = self._done, []
        return taken

    def close(self) -> None:
        """Nothing is held."""


def make_batches(spec: StepOperator, ports: Ports, changed: tuple[int, str] | None = None) -> Batches:
    """Rows of everything that an operator may be given, and nothing else. `changed`: a column of a port with other
    values.
    """
    made = [_make_batches(spec, port, columns, changed) for port, (columns, _) in sorted(ports.items())]
    return [one for batch in zip(*made, strict=True) for one in batch]


def _make_batches(spec: StepOperator, port: int, arriving: Columns, changed: tuple[int, str] | None) -> Batches:
    wanted = spec.requires(port) | {*spec.planned.carries}
    frames = []
    for batch in range(_BATCHES):
        places = range(batch * _ROWS, (batch + 1) * _ROWS)
        columns = [
            make_column(name, kind, [_value(kind.kind, place, other=(port, name) == changed) for place in places])
            for name, kind in arriving
        ]
        system: dict[str, list[int]] = {PARTITION: [place % 2 for place in places], OFFSET: [*places], PROBE: [*places]}
        if Requirement.EVENT_TIME in wanted:
            late = "late" in spec.side_outputs() and batch == _BATCHES - 1
            system[TIME] = [_FIRST_MS + 1000 * (place - (40 if late else 0)) for place in places]
            system[BEHIND] = [1000 if late else 0 for _ in places]
        if Requirement.ROW_KIND in wanted:
            system[ROW_KIND] = [INSERT for _ in places]
        kinds = {PARTITION: pl.Int32, ROW_KIND: pl.Int8}
        engine = [pl.Series(name, values, dtype=kinds.get(name, pl.Int64)) for name, values in system.items()]
        frames.append((port, pl.DataFrame([*columns, *engine])))
    return frames


def _value(kind: str, place: int, *, other: bool) -> Any:
    more = 1 if other else 0
    match kind:
        case "bigint":
            return place * 7 % 11 + 100 * more
        case "string":
            return f"{'dc'[1 - more]}{place % 5}"
        case "double":
            return float(place % 4 + 10 * more)
        case "timestamp":
            return (_FIRST_MS + place + more) * 1000
        case "array":
            return ("a",) * (place % 3 + more)
        case "boolean":
            return bool((place + more) % 2)
    raise AssertionError(f"no values of {kind}")


def find_breaches(spec: StepOperator, ports: Ports) -> list[str]:
    """What an operator does not keep; the same sentence once."""
    ports = _read_of(spec, ports)
    batches = make_batches(spec, ports)
    unopened = _find_unopened(spec)
    if unopened:
        return [unopened]
    try:
        whole, sizes = _run(spec, ports, batches, {})
        restarted, _ = _run(spec, ports, batches, {2: 3, 4: 2})
    except StateUnreadable as error:
        names = ", ".join(f"`{one.name}`" for one in spec.states(GROUPS))
        return [f"a value of the state {names} does not fit its fields: {str(error).rpartition(': ')[2]}"]
    except Exception as error:  # noqa: BLE001  # whatever an operator raises is what is wrong with it
        found = str(error).strip().splitlines() or [""]
        given = "it gets the columns of reads(), and event time only if requires() has it"
        return [f"process() raises {type(error).__name__}: {found[0]} ({given})"]
    breaches = [
        *_find_narrow(spec, ports),
        *_find_columns(spec, whole),
        *_find_provenance(spec, whole, batches),
        *_find_disorder(spec, ports, whole),
        *_find_dropped(spec, whole, sum(batch.height for _, batch in batches)),
        *_find_event_time(whole),
        *_find_state(spec, whole),
        *_find_foreign_keys(restarted),
        *_find_sizes(spec, ports, sizes),
        *_find_unremembered(spec, ports, batches),
    ]
    if _rows(whole) != _rows(restarted):
        breaches.append("emits other rows after a restart at another parallelism: it knows more than its states hold")
    return [*dict.fromkeys(breaches)]


def _read_of(spec: StepOperator, ports: Ports) -> Ports:
    """What of it the operator reads, and its keys."""
    reads = {port: {*spec.reads(port), *keys} for port, (_, keys) in ports.items()}
    return {
        port: (tuple(column for column in columns if column[0] in reads[port]), keys)
        for port, (columns, keys) in ports.items()
    }


def _find_unopened(spec: StepOperator) -> str:
    """What is wrong before a row arrives; empty if nothing is."""
    slot = Slot(GROUPS, choose_backend("memory", 1), range(GROUPS), open_caller=AnswersAtOnce, now_ms=lambda: 0)
    try:
        opened = spec.open(slot)
        if not hasattr(opened, "process"):
            return f"open() returns a {type(opened).__name__}, which is no OperatorRuntime"
        for state in opened.states.values():
            state.close()
        opened.close()
    except Exception as error:  # noqa: BLE001  # whatever an operator raises is what is wrong with it
        return f"open() raises {type(error).__name__}: {error}"
    return ""


def _subtasks(spec: StepOperator, ports: Ports) -> Subtasks:
    return Subtasks(spec, {port: keys for port, (_, keys) in ports.items()}, open_caller=AnswersAtOnce)


def _run(spec: StepOperator, ports: Ports, batches: Batches, restarts: dict[int, int]) -> tuple[Subtasks, list[_Made]]:
    """All batches, with a watermark after those of all ports, and the end of time. Also each batch with what it made at
    once.
    """
    subtasks = _subtasks(spec, ports)
    at_once = []
    for place, (port, batch) in enumerate(batches):
        if place in restarts:
            subtasks.restart(restarts[place])
        before = len(subtasks.out.batches)
        subtasks.process(batch, port)
        at_once.append((port, batch, subtasks.out.batches[before:]))
        if (place + 1) % len(ports) == 0:
            subtasks.watermark(_FIRST_MS + 1000 * (place // len(ports)) * _ROWS)
    subtasks.watermark(END_OF_TIME)
    for runtime in subtasks.runtimes:
        assert runtime.settled, "it is not settled after the end of time although poll() has nothing to do"
    return subtasks, at_once


def _find_narrow(spec: StepOperator, ports: Ports) -> Iterator[str]:
    """What is wrong when only one column of each output is read."""
    read = spec.planned.outputs or {}
    outputs = {output: tuple(name for name, _ in spec.output_columns(output)[:1]) for output in read}
    narrow = msgspec.structs.replace(spec, planned=msgspec.structs.replace(spec.planned, outputs=outputs))
    left = _read_of(narrow, ports)
    try:
        ran, _ = _run(narrow, left, make_batches(narrow, left), {})
    except Exception as error:  # noqa: BLE001  # as above
        found = str(error).strip().splitlines() or [""]
        yield f"process() raises {type(error).__name__}: {found[0]} (it gets the columns of reads() when one is needed)"
        return
    for output, frames in _outputs(ran).items():
        for name, kind in narrow.pruned_columns(output):
            if any(name not in frame.columns or frame[name].dtype != polars_type(kind) for frame in frames):
                yield f"does not emit `{name} {kind}` on {_named(output)} when nothing else is read"


def _outputs(subtasks: Subtasks) -> dict[str, list[pl.DataFrame]]:
    return {"": subtasks.out.batches, **subtasks.out.sides}


def _rows(subtasks: Subtasks) -> Counter[str]:
    return Counter(
        f"{output} {sorted(row.items())}"
        for output, frames in _outputs(subtasks).items()
        for frame in frames
        for row in frame.drop(BEHIND, TIME, strict=False).to_dicts()
    )


def _users(frame: pl.DataFrame) -> list[str]:
    return [name for name in frame.columns if name not in system_columns(frame)]


def _find_columns(spec: StepOperator, ran: Subtasks) -> Iterator[str]:
    for output, frames in _outputs(ran).items():
        declared = {name: polars_type(kind) for name, kind in spec.pruned_columns(output)}
        for frame in frames:
            emitted = {name: frame[name].dtype for name in _users(frame)}
            if emitted != declared:
                yield f"emits {_shown(emitted)} on {_named(output)}, and output_columns() has {_shown(declared)}"


def _shown(columns: dict[str, pl.DataType]) -> str:
    return "(" + ", ".join(f"{name} {kind}" for name, kind in columns.items()) + ")"


def _named(output: str) -> str:
    return f"its output `{output}`" if output else "its output"


def _find_provenance(spec: StepOperator, ran: Subtasks, batches: Batches) -> Iterator[str]:
    whole = pl.concat([batch for port, batch in batches if port == 0])
    engine = {*system_columns(whole)}
    rows = {(row[PARTITION], row[OFFSET]): row for row in whole.to_dicts()}
    for output, frames in _outputs(ran).items():
        seen: Counter[tuple[int, int]] = Counter()
        same = bool(frames)
        for frame in frames:
            lost = sorted(engine - {*frame.columns})
            if lost and spec.preserves_record(output):
                yield f"drops `{lost[0]}` of rows that keep their record: emit them with system_columns(batch)"
            if lost:
                same = False
                continue
            for row in frame.to_dicts():
                record = (row[PARTITION], row[OFFSET])
                seen[record] += 1
                same &= record in rows and all(rows[record].get(name, ...) == row[name] for name in _users(frame))
        if not spec.preserves_record(output):
            if same and max(seen.values(), default=2) == 1:
                yield f"passes records on as they came on {_named(output)}, and preserves_record() is False"
        elif seen.keys() - rows.keys():
            yield f"emits rows of no record on {_named(output)}, and preserves_record() is True"
        elif max(seen.values(), default=0) > 1 and not spec.splits_rows():
            yield f"emits a record twice on {_named(output)}, and splits_rows() is False"


def _find_disorder(spec: StepOperator, ports: Ports, ran: Subtasks) -> Iterator[str]:
    """Behind an exchange, order does not matter."""
    if len(ports) > 1 or any(keys for _, keys in ports.values()) or not spec.keeps_order():
        return
    for output, frames in _outputs(ran).items():
        offsets = [offset for frame in frames if OFFSET in frame.columns for offset in frame[OFFSET].to_list()]
        if offsets != sorted(offsets):
            yield f"emits rows in another order on {_named(output)}, and keeps_order() is True"


def _find_dropped(spec: StepOperator, ran: Subtasks, taken: int) -> Iterator[str]:
    """Rows that it takes and neither emits nor fails."""
    if spec.REST is Rest.WRITTEN:
        yield "REST is WRITTEN, which only a sink has"
        return
    preserves = all(spec.preserves_record(output) for output in ("", *spec.side_outputs()))
    if not preserves:
        if spec.REST is Rest.FILTERED:
            yield "REST is FILTERED, and its rows are results: the rows that it takes are not dropped"
        return
    emitted = sum(frame.height for frames in _outputs(ran).values() for frame in frames)
    if spec.splits_rows() or emitted + len(ran.out.failures) == taken:
        return
    if spec.REST is Rest.FOLDED:
        yield "drops rows, and REST is FOLDED: they would be counted as rows in its state"
    branch = _branch(spec.output_columns() or spec.pruned_columns(*spec.side_outputs()[:1]))
    if all(spec.lineage((branch,), output) == (branch,) for output in ("", *spec.side_outputs()) if output != "late"):
        yield "drops rows, and lineage() changes nothing: state downstream would not know that other rows arrive"
    if spec.selects_by() is None and not spec.states(GROUPS):
        yield "drops rows by their values, and selects_by() names none"


def _branch(columns: Columns, changed: str = "", time: str = "time") -> Lineage:
    names = {name: digest("other" if name == changed else "column", name) for name, _ in columns}
    return Lineage("origin", names, frozenset({digest("before")}), time)


def _find_event_time(ran: Subtasks) -> Iterator[str]:
    passed = [one.time_ms for one in ran.out.order if isinstance(one, Watermark)]
    if END_OF_TIME not in passed:
        yield "does not pass watermarks on: on_watermark() ends with out.watermark()"
    elif ran.out.order and ran.out.order[-1] != Watermark(END_OF_TIME):
        yield "emits rows after the watermark that says none follow"


def _find_state(spec: StepOperator, ran: Subtasks) -> Iterator[str]:
    declared = {one.name for one in spec.states(GROUPS)}
    for runtime in ran.runtimes:
        if {*runtime.states} != declared:
            yield f"has the states {sorted(runtime.states)} when it runs, and declares {sorted(declared)}"


def _find_foreign_keys(ran: Subtasks) -> Iterator[str]:
    """Keys in the state of a subtask whose rows arrive at another one."""
    for index, runtime in enumerate(ran.runtimes):
        for state in runtime.states.values():
            shape = state.declaration.shape
            if not state.declaration.keyed:
                continue
            end = len(shape.keys) - shape.suffix
            kinds = [field.type for field in shape.keys[shape.prefix : end]]
            keys = [key if isinstance(key, tuple) else (key,) for key in list(state.keys())]
            groups = key_groups_of_keys([key[shape.prefix : end] for key in keys], kinds, GROUPS)
            if {*groups} - {*ran.groups(index)}:
                yield f"keeps a key in the state `{state.declaration.name}` whose rows arrive at another subtask"


def _find_sizes(spec: StepOperator, ports: Ports, at_once: Sequence[_Made]) -> Iterator[str]:
    if spec.BEGINS_VERTEX or len(ports) > 1:  # it cuts what it emits itself
        return
    for port, batch, frames in at_once:
        _, made = spec.output_size(derive_identities(ports[port][0]), port)
        emitted = sum(frame[name].estimated_size() for frame in frames for name in _users(frame))
        allowed = _evaluate(made, batch)
        if emitted > allowed:
            yield "emits more bytes than output_size() allows: batches would be too large for their vertex"
            return


def _evaluate(bound: Bound, batch: pl.DataFrame) -> float:
    grows = sum(factor * batch[name].estimated_size() for name, factor in bound.factors.items() if name in batch)
    return grows + 4 * bound.constant * batch.height  # what Polars needs for small values is no matter here


def _find_unremembered(spec: StepOperator, ports: Ports, batches: Batches) -> Iterator[str]:
    """Columns that its keyed states depend on, and its fingerprint does not."""
    if not any(one.keyed for one in spec.states(GROUPS)):
        return
    held = _held(spec, ports, batches)
    if not held:
        names = ", ".join(f"`{one.name}`" for one in spec.states(GROUPS) if one.keyed)
        yield f"keeps nothing in its keyed state {names}: what it remembers is lost with the slot"
    for port, name in ((port, name) for port, (columns, _) in ports.items() for name, _ in columns):
        arriving, keys = ports[port]
        if name in keys or _held(spec, ports, make_batches(spec, ports, (port, name))) == held:
            continue
        if spec.fingerprint((_branch(arriving),), port) == spec.fingerprint((_branch(arriving, name),), port):
            yield f"its state depends on the column `{name}`, and fingerprint() does not"


def _held(spec: StepOperator, ports: Ports, batches: Batches) -> list[str]:
    subtasks = _subtasks(spec, ports)
    for port, batch in batches[: 3 * len(ports)]:
        subtasks.process(batch, port)
    (runtime,) = subtasks.runtimes
    runtime.before_snapshot()
    keyed = [state for name, state in runtime.states.items() if state.declaration.keyed]
    found = [f"{key} {state.get(key)}" for state in keyed for key in list(state.keys())]
    subtasks.close()
    return sorted(found)
