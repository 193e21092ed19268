"""What a kind of step adds to the pipeline file, and how it becomes operators. Pure, without Polars.

A kind is a module of `kinds/` with one `StepKind`: `registry.py` finds it, the file's model gets its keys, and the plan
calls its `build`. Problems go to the context with their place; nothing is raised for what a user wrote.
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
from tidegate.operators.spec import Operator


class NamedInput(msgspec.Struct, frozen=True):
    """One of several inputs of a step, which the step's own keys name."""

    alias: str
    """Its name in the step."""
    upstream: str
    """The source or step that it reads, as written."""
    path: Path
    """Where that is written, below the step."""


class MatchedKeys(msgspec.Struct, frozen=True):
    """Keys of several inputs that are compared with each other."""

    columns: Mapping[str, tuple[str, ...]]
    """By alias the columns that hold them, for `add`."""
    types: tuple[DataType, ...]
    """The types that they have on all inputs."""


class InputContext(Protocol):
    """What `build` may ask about one input of a step. Paths are below the step: `("where",)`."""

    @property
    def columns(self) -> Mapping[str, DataType]:
        """The columns that arrive."""

    @property
    def policy(self) -> BadRecordPolicy:
        """What happens to its bad records."""

    @property
    def changes(self) -> bool:
        """Whether the rows that arrive are changes of a table's rows, some of which are taken back."""

    def expression(self, path: Path, text: str) -> Expression | None:
        """A typed expression over `columns`; None when it is none, which is reported."""

    def aggregate(self, path: Path, text: str, *, windowed: bool = False) -> AggregateCall | None:
        """A typed aggregate over `columns`, for running totals or for a window; None when it is none, which is
        reported.
        """

    def column(self, path: Path, name: str) -> DataType | None:
        """The type of a column; None when there is none of that name, which is reported."""

    def key(self, path: Path, name: str) -> bool:
        """Whether rows can be partitioned by a column; if not, that is reported."""

    def is_window_bound(self, column: str) -> bool:
        """Whether a column that arrives is, on every way, a bound of the window that the row is a result of."""


class StepContext(InputContext, Protocol):
    """What `build` may ask of the plan. As an InputContext it is about the only input, or the first one; its policy is
    about all.
    """

    @property
    def name(self) -> OperatorName:
        """The step's own."""

    @property
    def several(self) -> bool:
        """Whether several inputs are listed."""

    def of(self, alias: str) -> InputContext:
        """Return a named input."""

    def problem(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        """Report what is wrong, with what to write in its place."""

    def warn(self, path: Path, message: str, remedy: str = "", *, at_key: bool = False) -> None:
        """Report what is probably not meant; the pipeline can run all the same."""

    def match_keys(self, keys: Mapping[Path, Mapping[str, str]], preserved: Collection[str] = ()) -> MatchedKeys | None:
        """Give keys that are compared with each other one type, ahead of the exchange; None when they have none, which
        is reported.

        `keys`: by the place of a key in the file, its column on each named input. A row with a NULL key matches
        nothing and is dropped; of a `preserved` input it skips the exchange and arrives on the same port.
        """

    def declare_columns(self, columns: Mapping[str, DataType], output: str = "") -> None:
        """The columns of the step, or of a side output, for those that read it; without this call nothing downstream is
        looked at.
        """

    def add(self, operator: Operator, keys: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()) -> None:
        """An operator after what the step has added before, or reads; with `keys` rows are exchanged by them.

        The first one of a step with named inputs gets each on a port of its own, in their order; `keys` are by alias.
        """


NEEDS_RETRACTION: Final = "needs retraction, which is not supported yet: a delete would count as a row"
"""Of steps that count or keep rows, and cannot take one back (ADR 51)."""


class StepKind:
    """One kind of step."""

    word: ClassVar[str]
    """The key that makes a step one of this kind; empty for the kind of a step without such a key."""
    needs: ClassVar[Mapping[str, str]] = {}
    """Other keys that it cannot do without, and what to do when one is missing."""
    extends: ClassVar[str] = ""
    """The word of another kind: a step that has both words is one of this kind, with the keys of both."""
    examples: ClassVar[tuple[str, ...]] = ()
    """The keys of such steps in a file, which the contract test runs. There are the columns `id bigint, customer
    string, amount double, at timestamp, tags array<string>`.
    """
    settings: ClassVar[type[Settings]] = Settings
    """Its keys, all optional: they become keys of every step of the file."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of its settings besides `word`."""
        return tuple(name for name in self.settings.model_fields if name != self.word)

    def expressions(self, step: Any) -> Mapping[Path, str]:  # noqa: ARG002  # for those with expressions
        """The expressions of a step: their grammar is checked although the columns that arrive are unknown."""
        return {}

    def aggregates(self, step: Any) -> Mapping[Path, str]:  # noqa: ARG002  # for those with aggregates
        """The same for aggregates."""
        return {}

    def outputs(self, step: Any) -> tuple[str, ...]:  # noqa: ARG002  # for those with outputs that have names
        """The outputs of a step that are read as `step.output`. A step that has any is read by them only."""
        return ()

    def inputs(self, step: Any) -> tuple[NamedInput, ...]:  # noqa: ARG002  # for those with several
        """The named inputs of a step, the first on port 0. A step that has any has no `from`."""
        return ()

    def counts(self, step: Any) -> bool:  # noqa: ARG002  # for those that do
        """Whether a result that is given again would count twice."""
        return False

    def refuses_changes(self, step: Any) -> str:  # noqa: ARG002  # for those that refuse them
        """Why its rows may not be changes of a table's rows, deletes among them, as the end of a sentence; empty: they
        may.
        """
        return ""

    def build(self, step: Any, context: StepContext) -> None:
        """Add the operators of a step whose inputs are usable, or report why there are none."""
        raise NotImplementedError
