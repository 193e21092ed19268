"""`python`: a step in Python, a function or a class with state and timers.

`tidegate/python` is what users import, and `running/` what runs: `rows.py` calls a step for each row, `batches.py` for
each batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec
from pydantic import Field, SecretStr, create_model
from typing_extensions import override

from tidegate.config.fields.base import Path, Settings
from tidegate.config.fields.secrets import is_secret_key, reveal
from tidegate.config.fields.types import (
    Column,
    ColumnType,
    Flag,
    GroupKeys,
    StepName,
    StepOutput,
    StepRows,
    ValueCheck,
    choice,
    describe_value,
    refusal,
)
from tidegate.datatypes import BIGINT, BOOLEAN, STRING
from tidegate.expressions.bounds import GROWING, Bound, Bounds, derive_identity, sum_bounds
from tidegate.ids import StateName
from tidegate.operators.event_time import WATERMARK
from tidegate.operators.fingerprint import (
    ARRIVING,
    EVENT_TIME,
    Lineage,
    Lineages,
    StateFingerprint,
    combine_digests,
    combine_times,
    digest,
)
from tidegate.operators.keyed import KeyedOperator
from tidegate.operators.spec import DEAD, LATE, Columns, Emits, Requirement, Rest, Slot, render_columns
from tidegate.operators.step import StepContext, StepKind
from tidegate.state.declaration import LASTS, Serializer, StateDeclaration, StateField
from tidegate.state.time_ordered import declare_time_ordered
from tidegate.user_code.describe import CodeDescription, DeclaredState
from tidegate.user_code.modules import reference_check

if TYPE_CHECKING:
    from tidegate.operators.runtime import OperatorRuntime

ROW: Final = "row"
BATCH: Final = "batch"
SAME: Final = "same"


def _settings(value: object) -> dict[str, Any]:
    """Checks `with`. Secrets are values of the mapping itself, where the file's loader finds them to mask them."""
    if not isinstance(value, dict):
        raise refusal(f"{describe_value(value)} is not a mapping", "for instance {gap: 30m}")
    found: dict[str, Any] = {}
    for name, one in value.items():
        if not isinstance(name, str):
            raise refusal(f"the name {describe_value(name)} is not a text", "write it in quotes")
        plain = one if isinstance(one, SecretStr) else _make_plain(name, one)
        found[name] = SecretStr(plain) if isinstance(plain, str) and is_secret_key(name) else plain
    return found


def _make_plain(name: str, value: object) -> object:
    """Returns a value of JSON. Refuses values that a plan could not carry to the slots as they are, such as dates."""
    if isinstance(value, dict):
        if any(not isinstance(key, str) for key in value):
            key = next(key for key in value if not isinstance(key, str))
            raise refusal(f"the name {describe_value(key)} is not a text", "write it in quotes", at=name)
        return {key: _make_plain(name, one) for key, one in value.items()}
    if isinstance(value, list):
        return [_make_plain(name, one) for one in value]
    if isinstance(value, SecretStr):
        raise refusal("a secret is within a list or a mapping", "write it directly under `with`: {token: ...}", at=name)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise refusal(f"{describe_value(value)} is not finite", "write it in quotes", at=name)
        return float(value)  # what the file's loader returns is a class of its own
    if value is not None and not isinstance(value, str | int):
        raise refusal(
            f"{describe_value(value)} is neither a text, a number, true nor false", "write it in quotes", at=name
        )
    return value


_REFERENCE = Annotated[
    str | None,
    reference_check("visits:Visits"),
    Field(
        description="`module:Class`, derived from `tidegate.python.Step`, or `module:function`: a function that gets a "
        "row as a dict and returns a dict, a list of dicts, or None (`tidegate docs python`)."
    ),
]
_WITH = Annotated[
    dict[str, Any],
    ValueCheck(_settings, {"type": "object"}),
    Field(
        description="Settings that `open` gets, or a function as its second argument: `{gap: 30m}`. "
        "Secrets by `${file:...}`, which are never shown."
    ),
]


class OutputSettings(Settings):
    """The keys of a step that declares the columns of its outputs."""

    key: GroupKeys = None
    output: StepOutput = None
    outputs: Annotated[
        dict[StepName, Annotated[dict[Column, ColumnType], Field(min_length=1)]],
        Field(
            description="Further outputs by name, each with all its columns. An output is read as `step.output`, for "
            "instance `visits.ended`."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    per: Annotated[
        str,
        choice(ROW, BATCH),
        Field(
            description="`row`: the code is called for each row. `batch`: for all rows of a batch together, as a "
            "Polars frame."
        ),
    ] = ROW
    rows: StepRows = None
    pure: Annotated[
        Flag,
        Field(
            description="The result of a row depends on its values alone, and is the same each time. Required for the "
            "changes of a table."
        ),
    ] = False


_FIELDS: dict[str, Any] = {"python": (_REFERENCE, None), "with": (_WITH, {})}
PythonSettings = create_model(
    "PythonSettings", __base__=OutputSettings, __doc__="The keys of a step in Python.", **_FIELDS
)
"""Created dynamically, since `with` is a Python keyword and cannot be the name of a declared attribute."""


_CODE: Final[Path] = ("python",)

Problem = tuple[Path, str, str]
"""Place in the step, message, remedy."""


def find_problems(step: Any, description: CodeDescription) -> Iterator[Problem]:
    """Yields the problems of a step whose code can be imported."""
    name = step.python.partition(":")[2]
    if description.is_async:
        yield _CODE, f"`{name}` is async", "a step with `async: ...` calls it, or write `def` without `async`"
    elif description.is_class and not description.is_step:
        yield _CODE, f"the class `{name}` is not a step", "derive it from `tidegate.python.Step`"
    else:
        yield from _find_key_problems(name, step, description)
        yield from _find_output_problems(name, step, description)
        yield from _find_settings_problems(name, step, description)
        yield from (_find_batch_problems if step.per == BATCH else _find_row_problems)(name, step, description)


def _find_key_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    kept = [*(one.name for one in description.states), *(one.name for one in description.timers)]
    if kept and step.key is None:
        yield _CODE, f"`{name}` declares `{kept[0]}`, and the step has no key", "add `key`: state belongs to a key"
    if step.pure and step.key is not None:
        yield ("pure",), "a step with `key` depends on more than its row", "remove it, or `key`"


def _find_output_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    for output in step.outputs:
        if output in (DEAD, LATE):
            yield ("outputs", output), f"the name `{output}` is reserved", "choose another name"
    if step.outputs and not description.is_class:
        remedy = "write a class derived from `tidegate.python.Step`, which emits to it with `out.to(...)`"
        yield ("outputs",), f"the function `{name}` has only one output, its return value", remedy


def _find_settings_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    if not getattr(step, "with"):
        return
    if not description.is_class and not description.takes_settings:
        argument = "frame" if step.per == BATCH else "row"
        remedy = f"write `def {name}({argument}, settings)`, or remove `with`"
        yield ("with",), f"the function `{name}` takes no settings", remedy
    if description.is_class and "open" not in description.methods:
        remedy = "define `def open(self, settings)`, or remove `with`"
        yield ("with",), f"the class `{name}` has no `open`, which gets these settings", remedy


def _find_row_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    if step.rows == SAME:
        yield ("rows",), "is for `per: batch`: a row may emit any number of rows", "remove it"
    elif step.rows is not None:
        yield ("rows",), f"`{step.rows}` is for `join`", "remove it"
    if description.is_class and "process" not in description.methods:
        remedy = "define `def process(self, row, out)`, or add `per: batch` for its `process_batch`"
        yield _CODE, f"the class `{name}` has no `process`", remedy


def _find_batch_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    if step.rows not in (None, SAME):
        yield ("rows",), f"`{step.rows}` is for `join`", "write `rows: same`, or remove it"
    for state in description.states:
        if state.form != "value":
            message = f"`{state.name}` of `{name}` is a {state.form.capitalize()}, and batches only have a Value"
            yield ("per",), message, "use Value, for instance of an array, or remove `per: batch`"
    for timer in description.timers:
        message = f"`{timer.name}` of `{name}` is a Timer, and batches have none"
        yield ("per",), message, "remove `per: batch`: timers are set for a row and its key"
    if not description.is_class:
        return
    wanted = "self, frame, out" if step.key is None else "self, keys, frame, out"
    if "process_batch" not in description.methods:
        remedy = f"define `def process_batch({wanted})`, or remove `per: batch`, which calls `process` for each row"
        yield ("per",), f"the class `{name}` has no `process_batch`", remedy
    elif description.takes_keys != (step.key is not None):
        missing = (
            "gets the keys of the batch, and the step has no key" if step.key is None else "does not take the keys"
        )
        yield _CODE, f"`process_batch` of `{name}` {missing}", f"write `def process_batch({wanted})`"


EVENT_TIMERS: Final = StateName("event_timers")
HELD_TIMERS: Final = StateName("held_timers")
"""Timers in event time that were set while those of an end of time fired: only a watermark makes them due. Otherwise a
timer that sets itself again would fire until the end of the calendar.
"""
CLOCK_TIMERS: Final = StateName("clock_timers")
_TIMER: Final = (
    StateField("at_ms", BIGINT, nullable=False),
    StateField("queued_ms", BIGINT, nullable=False),
    StateField("row_ms", BIGINT),
    StateField("held", BOOLEAN, nullable=False),
)
"""When a timer is due, its time in the queue, the event time of the row that has set it, and which queue it is in."""
VALUE_BYTES: Final = 4096
"""The assumed size of a text that is emitted when batches are sized. Large results leave in parts."""


class PythonOperator(KeyedOperator, frozen=True, tag="python"):
    """Calls a user's code. Without keys, it has neither state nor timers."""

    description: CodeDescription
    settings: dict[str, Any]
    main: Columns
    """All columns of the main output."""
    others: dict[str, Columns]
    """The other outputs, with all columns."""
    timed: bool = False
    """Whether rows have an event time."""
    per_batch: bool = False
    same_rows: bool = False
    """For batches: whether a result has as many rows as its batch, which it belongs to one by one."""
    pure: bool = False
    secrets: tuple[str, ...] = ()
    """The names of the settings that are secrets, which no message may show."""

    @property
    def REST(self) -> Rest:  # type: ignore[override]  # noqa: N802  # what rows are depends on the code
        """What rows are that emit nothing: dropped, or in the state of a step with results of its own."""
        return Rest.FILTERED if self.preserves_record() else Rest.FOLDED

    @property
    def reference(self) -> str:
        """The user's code, as `module:name`."""
        return self.description.reference

    # -- columns and traits --------------------------------------------------------------------------------------------

    @override
    def output_columns(self, output: str = "") -> Columns:
        return self.others.get(output, ()) if output else self.main

    @override
    def side_outputs(self) -> tuple[str, ...]:
        return tuple(self.others)

    @override
    def reads(self, port: int = 0) -> set[str]:
        """Returns all columns, since the code gets the whole row."""
        return {name for name, _ in self.columns}

    @override
    def requires(self, port: int = 0) -> frozenset[Requirement]:
        return frozenset({Requirement.EVENT_TIME} if self.timed else ())

    @override
    def preserves_record(self, output: str = "") -> bool:
        """Returns True where each row that is emitted belongs to one row: not where timers emit, or batches."""
        if self.per_batch:
            return self.same_rows and not output
        return not self.description.timers

    @override
    def loses_time(self, output: str = "") -> bool:
        return self.per_batch and not self.preserves_record(output)

    @override
    def splits_rows(self) -> bool:
        return not self.same_rows

    @override
    def selects_by(self) -> frozenset[str] | None:
        return None if self.same_rows else frozenset(self.reads())

    @override
    def emits(self) -> Emits:
        return Emits.PASSED if self.preserves_record() and not self.keys else Emits.INSERTS

    @property
    def _declares(self) -> bool:
        """Whether the code declares state or timers."""
        return bool(self.description.states or self.description.timers)

    # -- state ---------------------------------------------------------------------------------------------------------

    @override
    def states(self, max_parallelism: int) -> tuple[StateDeclaration, ...]:
        return (
            *(self._declare(one, max_parallelism) for one in self.description.states),
            *self._declare_timers(max_parallelism),
        )

    def _declare(self, one: DeclaredState, max_parallelism: int) -> StateDeclaration:
        """Declares a state: a value by the keys, or entries by the keys and the key or index of an entry."""
        value = StateField("value", one.type, nullable=one.form != "value")
        shape = self.shape((value,), max_parallelism)
        if one.form != "value":
            name, kind = ("key", one.key_type or STRING) if one.form == "map" else ("index", BIGINT)
            entry = StateField(self._free_name(name), kind, nullable=False)
            shape = msgspec.structs.replace(shape, keys=(*shape.keys, entry), suffix=1)
        if one.ttl is not None:
            serializer = Serializer(parameters={LASTS: one.ttl.lasts})
            shape = msgspec.structs.replace(shape, expires=True, serializer=serializer)
        return StateDeclaration(StateName(one.name), shape)

    def _free_name(self, name: str) -> str:
        """Returns a name that no key of the step has."""
        while name in self.keys:
            name += "_"
        return name

    def _declare_timers(self, max_parallelism: int) -> Iterator[StateDeclaration]:
        """Yields the state of each timer, and a queue of timers in the order of their times for each clock."""
        timers = self.description.timers
        for one in timers:
            yield StateDeclaration(StateName(one.name), self.shape(_TIMER, max_parallelism))
        shape = self.shape((), max_parallelism)
        name = StateField(self._free_name("timer"), STRING, nullable=False)
        queue = msgspec.structs.replace(shape, keys=(*shape.keys, name), suffix=1)
        for state, clock in ((EVENT_TIMERS, False), (HELD_TIMERS, False), (CLOCK_TIMERS, True)):
            if any(one.clock == clock for one in timers):
                yield declare_time_ordered(StateDeclaration(state, queue))
        if timers or (self.timed and self.keys and not self.per_batch):
            yield WATERMARK

    @override
    def lineage(self, lineages: Lineages, output: str = "") -> Lineages:
        """Gives results that depend on state, or are of no record, a new origin. Other results depend on their row."""
        columns = self.output_columns(output)
        if self._declares or not self.preserves_record(output):
            digests = {name: digest(self.kind, self.name, output, name) for name, _ in columns}
            return (Lineage(self.name, digests, time=combine_times(self.name, lineages)),)
        return tuple(
            msgspec.structs.replace(
                branch,
                columns={name: digest(*self._row_parts(branch), output, name, str(kind)) for name, kind in columns},
                conditions=branch.conditions | {digest(*self._row_parts(branch), output)},
            )
            for branch in lineages
        )

    def _row_parts(self, branch: Lineage) -> tuple[str, ...]:
        """Returns digests of what the results of a row depend on."""
        return self.kind, self.reference, *(branch.columns[name] for name, _ in sorted(self.columns))

    @override
    def fingerprint(self, lineages: Lineages, port: int = 0) -> StateFingerprint | None:
        """Returns the version of the code, what arrives, and each state and timer. The code itself is no part of it."""
        if not self._declares:
            return None
        return combine_digests(chain.from_iterable(map(self._parts, lineages)))

    @override
    def _parts(self, branch: Lineage) -> Iterator[tuple[str, str, str]]:
        description, origin = self.description, branch.origin
        yield origin, "the version of the step", digest("version", str(description.version))
        keys = (branch.columns[name] for name in self.keys)
        yield origin, "which rows arrive", digest("python", *keys, *sorted(branch.conditions))
        for name, _ in self.columns:
            if name not in self.keys:
                yield origin, f"{ARRIVING} `{name}`", branch.columns[name]
        if self.timed:
            yield origin, EVENT_TIME, branch.time
        for state in description.states:
            yield origin, f"`{state.name}`", digest(state.form)
        for timer in description.timers:
            yield origin, f"`{timer.name}`", digest("clock" if timer.clock else "event time")

    # -- size ----------------------------------------------------------------------------------------------------------

    @override
    def output_size(self, columns: Bounds, port: int = 0) -> tuple[Bounds, Bound]:
        """Counts texts that are emitted at a fixed size, because nothing is known of them. Results leave in parts."""
        outputs = list(chain.from_iterable(map(self.output_columns, ("", *self.side_outputs()))))
        made = {name: Bound({}, derive_identity(name, kind).constant) for name, kind in outputs}
        growing = Bound({}, VALUE_BYTES * sum(kind.kind in GROWING for _, kind in outputs))
        return made, sum_bounds([*columns.values(), *made.values(), growing])

    # -- explanations --------------------------------------------------------------------------------------------------

    @override
    def describes(self) -> list[str]:
        described = self.description
        keys = f" by {', '.join(self.keys)}" if self.keys else ""
        lines = [f"{self.reference} per {BATCH if self.per_batch else ROW}{keys}, version {described.version}"]
        lines += [f"state {one.name}: {_render_state(one)}" for one in described.states]
        lines += [f"timer {one.name} by {'the clock' if one.clock else 'event time'}" for one in described.timers]
        lines += [f"output {name}: {render_columns(columns)}" for name, columns in self.others.items()]
        return lines

    @override
    def user_code(self) -> CodeDescription:
        return self.description

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        if self.per_batch:
            from tidegate.operators.kinds.python.running.batches import BatchesRuntime

            return BatchesRuntime(self, slot)
        if self.description.timers:
            from tidegate.operators.kinds.python.running.timers import TimersRuntime

            return TimersRuntime(self, slot)
        from tidegate.operators.kinds.python.running.rows import RowsRuntime

        return RowsRuntime(self, slot)


def _render_state(one: DeclaredState) -> str:
    entry = f"{one.key_type} to {one.type}" if one.form == "map" else str(one.type)
    default = "" if one.default is None else f", default {one.default}"
    lasts = "" if one.ttl is None else f", for {one.ttl}"
    return f"{one.form} of {entry}{default}{lasts}"


class PythonKind(StepKind):
    """The kind of a step with `python`."""

    key = "python"
    needs: ClassVar[Mapping[str, str]] = {
        "output": "add all columns that the step emits: `output: {user: string, clicks: bigint}`"
    }
    settings = PythonSettings
    examples = (
        "python: visits:Visits, key: customer, with: {first: 1}, output: {customer: string, visits: bigint}",
        "python: visits:Sessions, key: customer, output: {u: string, n: int}, outputs: {ended: {u: string, n: int}}",
        "python: visits:tags, output: {customer: string, tag: string}",
        "python: visits:Sorted, output: {id: bigint}, outputs: {odd: {id: bigint}}",
        "python: visits:Totals, key: customer, per: batch, output: {customer: string, total: bigint}",
        "python: visits:double, per: batch, rows: same, output: {id: bigint, twice: double}",
    )

    @override
    def code(self, step: Any) -> Mapping[Path, str]:
        return {} if step.python is None else {("python",): step.python}

    @override
    def outputs(self, step: Any) -> Mapping[str, Path]:
        return {name: ("outputs", name) for name in step.outputs}

    @override
    def readable(self, step: Any) -> tuple[str, ...]:
        return (step.name, *(f"{step.name}.{output}" for output in step.outputs))

    @override
    def counts(self, step: Any) -> bool:
        return step.key is not None

    @override
    def refuses_changes(self, step: Any) -> str:
        if step.key is not None:
            return "with `key` needs retraction, which is not supported yet: a delete would be one more row"
        if step.per == BATCH and step.rows != SAME:
            return "needs `rows: same`: the result of a delete has to be known"
        return "" if step.pure else "needs `pure: true`: the result of a delete has to be that of its insert"

    @override
    def build(self, step: Any, context: StepContext) -> None:
        context.declare_columns(step.output)
        for name, columns in step.outputs.items():
            context.declare_columns(columns, name)
        keys: tuple[str, ...] = step.key or ()
        usable = [context.key(("key", index), key) for index, key in enumerate(keys)]
        description = context.code(("python",))
        problems = [] if description is None else [*find_problems(step, description)]
        for problem in problems:
            context.problem(*problem)
        if description is None or problems or not all(usable):
            return
        operator = PythonOperator(
            context.name,
            keys,
            tuple(context.columns.items()),
            context.policy,
            description,
            reveal(getattr(step, "with")),
            tuple(step.output.items()),
            {name: tuple(columns.items()) for name, columns in step.outputs.items()},
            timed=_uses_event_time(description) or (step.per == ROW and context.has_event_time),
            per_batch=step.per == BATCH,
            same_rows=step.rows == SAME,
            pure=step.pure,
            secrets=tuple(name for name, value in getattr(step, "with").items() if isinstance(value, SecretStr)),
        )
        context.add(operator, keys)


def _uses_event_time(description: CodeDescription) -> bool:
    """Returns whether a timer or the `ttl` of a state is in event time."""
    ttls = [one.ttl for one in description.states if one.ttl is not None]
    return not all(one.clock for one in description.timers) or not all(ttl.processing for ttl in ttls)


KIND = PythonKind()
