"""The contract of a kind of step: the keys that it adds to the pipeline file, and the operators that it builds. Pure,
without Polars.

A kind is a module of `kinds/` with one `StepKind`. `registry.py` finds it, the model of the file gets its keys, and the
plan calls its `build`. A user's mistakes are reported to the context with their place; they raise nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final, Protocol

import msgspec

from tidegate.config.fields.base import Path, Settings
from tidegate.datatypes import DataType
from tidegate.expressions.expression import AggregateCall, Expression
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.spec import Operator, RowKey
from tidegate.user_code.describe import CodeDescription


class NamedInput(msgspec.Struct, frozen=True):
    """One of several inputs of a step, named by the step's own keys."""

    alias: str
    """Its name in the step."""
    upstream: str
    """The source or step that it reads, as written."""
    path: Path
    """The place of that name in the file, relative to the step."""
    operator: str = ""
    """Reads the rows of this operator of that step (`StepKind.operators`) instead of its results."""

    @property
    def reads(self) -> str:
        """The name under which the planner knows what it reads."""
        return f"{self.upstream}.{self.operator}" if self.operator else self.upstream


class ColumnOrigin(msgspec.Struct, frozen=True):
    """Where rows begin, and the columns there from which a value is computed."""

    operator: Operator
    """The source, or the step whose results the rows are."""
    columns: frozenset[str]
    chosen: bool = False
    """True if a step on the way chooses rows by their values."""

    @property
    def source(self) -> SourceOperator | None:
        """The source, unless the rows are results."""
        return self.operator if isinstance(self.operator, SourceOperator) else None


class MatchedKeys(msgspec.Struct, frozen=True):
    """Keys of several inputs that are compared with each other."""

    columns: Mapping[str, tuple[str, ...]]
    """The columns that hold the keys, by alias, for `add`."""
    types: tuple[DataType, ...]
    """The types of the keys, the same on all inputs."""


class InputContext(Protocol):
    """What `build` can query about one input of a step. Paths are relative to the step: `("where",)`."""

    @property
    def columns(self) -> Mapping[str, DataType]:
        """The columns that arrive."""

    @property
    def policy(self) -> BadRecordPolicy:
        """What happens to bad records of the step."""

    @property
    def changes(self) -> bool:
        """True if the rows that arrive are changes of a table, which include retractions."""

    def expression(self, path: Path, text: str, *, condition: bool = False) -> Expression | None:
        """Returns a typed expression over `columns`, or None after reporting why the text is not valid. A condition
        must be boolean.
        """

    def aggregate(self, path: Path, text: str, *, windowed: bool = False) -> AggregateCall | None:
        """Returns a typed aggregate over `columns`, for running totals or a window, or None after reporting why not."""

    def column(self, path: Path, name: str) -> DataType | None:
        """Returns the type of a column, or None after reporting that it does not exist."""

    def key(self, path: Path, name: str) -> bool:
        """Returns True if rows can be partitioned by a column, or False after reporting that they cannot."""

    def is_window_bound(self, column: str) -> bool:
        """Returns True if a column that arrives is, in every lineage, a bound of the window whose result the row is."""

    @property
    def row_key(self) -> RowKey | None:
        """What identifies the rows that arrive, if they are those of a table (`Operator.row_key`)."""

    def origins(self, *columns: str) -> tuple[ColumnOrigin, ...]:
        """Returns where the rows that arrive begin, each with the columns there from which these are computed."""

    @property
    def has_event_time(self) -> bool:
        """True if the event time of all rows that arrive is declared, by their source or a step on the way. Otherwise
        it is the Kafka timestamp.
        """

    @property
    def in_partition_order(self) -> bool:
        """True if rows arrive that are of one record each, those of a partition in its order: they have come on one
        way, and no step in between exchanges or reorders rows.
        """


class StepContext(InputContext, Protocol):
    """What `build` can query and request from the plan. As an InputContext it describes the only input or the first
    one, but its policy applies to all inputs.
    """

    @property
    def name(self) -> OperatorName:
        """The name of the step."""

    @property
    def several(self) -> bool:
        """True if several inputs are listed."""

    def of(self, alias: str) -> InputContext:
        """Returns a named input."""

    def qualified(
        self,
        path: Path,
        text: str,
        aliases: Collection[str],
        columns: Mapping[str, DataType] | None = None,
        *,
        condition: bool = False,
    ) -> Expression | None:
        """Returns a typed expression over columns of these named inputs, or None after reporting why it is not valid.

        A column is written `alias.column`. The expression reads it from a column of that name (`qualified_name`).
        `columns`: others, which are written without an alias.
        """

    def problem(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        """Reports a problem, with what to write instead."""

    def warn(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        """Reports what is probably unintended. The pipeline can still run."""

    def match_keys(self, keys: Mapping[Path, Mapping[str, str]], preserved: Collection[str] = ()) -> MatchedKeys | None:
        """Converts keys that are compared with each other to a common type ahead of the exchange. Reports the problem
        and returns None if there is no such type.

        `keys` maps the place of a key in the file to its column on each named input. A row with a NULL key matches
        nothing and is dropped. If its input is in `preserved`, it skips the exchange instead and arrives on the same
        port.
        """

    def code(self, path: Path) -> CodeDescription | None:
        """Returns what the reference at a place of `StepKind.code` names, or None after reporting that it cannot be
        used.
        """

    def declare_columns(self, columns: Mapping[str, DataType], output: str = "") -> None:
        """Declares the columns of the step, or of a side output, to its readers, which are not checked without it."""

    def add(self, operator: Operator, keys: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()) -> None:
        """Adds an operator after those that the step has added, or after its input. With `keys`, rows are exchanged by
        them.

        The first operator of a step with named inputs receives each input on its own port, in their order; `keys` are
        by alias.
        """


NEEDS_RETRACTION: Final = "needs retraction, which is not supported yet: a delete would count as a row"
"""The refusal of steps that count or keep rows and cannot process a retraction (ADR 51)."""


class StepKind:
    """One kind of step."""

    key: ClassVar[str]
    """The key that makes a step one of this kind; empty for the kind of a step without such a key."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Other keys that it requires, and the remedy if one is missing."""
    other_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of other kinds that its steps may have. Even if one is the key of its kind, the step is of this kind."""
    examples: ClassVar[tuple[str, ...]] = ()
    """The keys of example steps in a file, which the contract test runs. The input columns are `id bigint, customer
    string, amount double, at timestamp, tags array<string>`.
    """
    settings: ClassVar[type[Settings]] = Settings
    """Its keys, all optional: they become keys of every step of the file."""

    operators: ClassVar[tuple[str, ...]] = ()
    """Operators besides the last one that other kinds may read, by the part of the name after that of the step."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its settings besides `key`."""
        return tuple(name for name in self.settings.model_fields if name != self.key)

    def expressions(self, step: Any) -> Mapping[Path, str]:  # noqa: ARG002  # for overrides
        """Returns the expressions of a step, so that their grammar is checked even if the input columns are unknown."""
        return {}

    def aggregates(self, step: Any) -> Mapping[Path, str]:  # noqa: ARG002  # for overrides
        """Returns the aggregates of a step, so that their grammar is checked even if the input columns are unknown."""
        return {}

    def code(self, step: Any) -> Mapping[Path, str]:  # noqa: ARG002  # for overrides
        """Returns the references to user code of a step (`module:name`), by their place."""
        return {}

    def outputs(self, step: Any) -> Mapping[str, Path]:  # noqa: ARG002  # for overrides
        """Returns the outputs of a step that are read as `step.output`, with the place where each is named."""
        return {}

    def readable(self, step: Any) -> tuple[str, ...]:
        """Returns the names by which a step is read. A step with outputs is read only through them unless it has a main
        output as well.
        """
        return tuple(f"{step.name}.{output}" for output in self.outputs(step)) or (step.name,)

    def inputs(self, step: Any) -> tuple[NamedInput, ...]:  # noqa: ARG002  # for overrides
        """Returns the named inputs of a step, the first on port 0. `from` may be one of them; a step that names others
        has no `from`.
        """
        return ()

    def counts(self, step: Any) -> bool:  # noqa: ARG002  # for overrides
        """Returns True if a result that is emitted again would be counted twice."""
        return False

    def refuses_changes(self, step: Any) -> str:  # noqa: ARG002  # for overrides
        """Returns why its input must not be changes of a table, deletes among them, as the end of a sentence; empty: it
        may.
        """
        return ""

    def build(self, step: Any, context: StepContext) -> None:
        """Adds the operators of a step whose inputs are usable, or reports why there are none."""
        raise NotImplementedError
