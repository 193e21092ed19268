"""The source of the retry topic: rows of replayed dead letters, each for the input of the step at which it failed.

The planner adds it if `dead_letters` has a `retry_topic`. It has one output for each input that a row can return to. A
row that does not fit its input becomes a dead letter again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from typing_extensions import override

from tidegate.datatypes import BINARY, DataType, entry_of
from tidegate.errors import UNDECODABLE
from tidegate.formats.dead_letters import ORIGINAL
from tidegate.formats.dead_letters.letter import DeadLetter
from tidegate.formats.failures import BadRecordPolicy
from tidegate.formats.record_parts import HEADERS_TYPE
from tidegate.formats.row_kinds import ROW_KIND, UPDATE_BEFORE
from tidegate.ids import ClusterName, OperatorName, SourceTopic
from tidegate.operators.builtin.kafka_source import MetadataColumn, SourceOperator
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.spec import DEAD, Columns, Requirement

if TYPE_CHECKING:
    from tidegate.operators.builtin.retry.runtime import RetryDelivery

RETRY: Final = OperatorName("dead_letters.retry")
"""The reserved name of the source."""

KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"

Row = dict[str, Any]
"""A row as JSON (`formats/dead_letters/frames.py`)."""


class RetryInput(msgspec.Struct, frozen=True):
    """An input that a row can return to, and what its rows have."""

    step: OperatorName
    port: int
    columns: Columns
    carries: tuple[Requirement, ...] = ()
    some_kinds: bool = False
    """Whether rows may have a row kind although not all of them have one."""
    topics: tuple[SourceTopic, ...] = ()
    """The topics that the rows come from."""
    of_records: bool = False
    """Whether each row has the partition and the offset of a record."""
    was: OperatorName = OperatorName("")
    """The former name of the step."""

    @property
    def output(self) -> str:
        """The output of the retry source that leads to this input."""
        return f"{self.step}.{self.port}" if self.port else self.step

    def find_obstacle(self, letter: DeadLetter, row: Mapping[str, Any], types: Mapping[str, str]) -> str:
        """Returns why the row of a dead letter does not fit this input; empty if it fits."""
        for name, kind in self.columns:
            wanted = str(_stored_type(kind))
            if name not in types or name not in row:
                return f"{self._place} needs the column `{name}` {kind}, which the row does not have"
            if types[name] != wanted:
                return f"the column `{name}` of {self._place} is now {kind}; in the row it is {types[name]}"
        return self._find_missing(letter, row) or self._find_foreign(letter)

    @property
    def _place(self) -> str:
        return f"`{self.step}`" if not self.port else f"input {self.port} of `{self.step}`"

    def _find_missing(self, letter: DeadLetter, row: Mapping[str, Any]) -> str:
        if Requirement.EVENT_TIME in self.carries and (row.get(TIME) is None or row.get(BEHIND) is None):
            return f"{self._place} needs event time, which the row does not have"
        if Requirement.ROW_KIND in self.carries and row.get(ROW_KIND) is None:
            return f"{self._place} needs the kind of change, which the row does not have"
        if row.get(ROW_KIND) == UPDATE_BEFORE and not self.has_kinds:
            return f"the row is a retraction, which {self._place} no longer processes"
        if Requirement.HEADERS in self.carries and letter.known != ORIGINAL:
            return f"{self._place} passes on headers, which the dead letter does not have ({letter.known})"
        return ""

    def _find_foreign(self, letter: DeadLetter) -> str:
        if self.of_records and (letter.source_partition is None or letter.source_offset is None):
            return f"{self._place} needs rows of single records, and this one is the result of several"
        if letter.source_partition is not None and self.topics and letter.source_topic not in self.topics:
            now = ", ".join(map(str, self.topics))
            return f"{self._place} no longer has rows of topic {letter.source_topic}, only of {now}"
        return ""

    @property
    def has_kinds(self) -> bool:
        """Whether rows with a row kind may arrive."""
        return self.some_kinds or Requirement.ROW_KIND in self.carries


class Fitting(msgspec.Struct, frozen=True):
    """The input that the row of a dead letter fits, or why there is none."""

    input: RetryInput | None
    row: Row
    obstacle: str = ""


class RetryOperator(SourceOperator, frozen=True, tag="retry"):
    """Reads the retry topic. Its rows leave on the output of their input (`RetryInput.output`)."""

    pipeline: str = ""
    inputs: tuple[RetryInput, ...] = ()

    @override
    def pruned_columns(self, output: str = "") -> Columns:
        return self.output

    @override
    def side_outputs(self) -> tuple[str, ...]:
        return (*(one.output for one in self.inputs), DEAD)

    @override
    def open_delivery(self) -> RetryDelivery:
        from tidegate.operators.builtin.retry.runtime import RetryDelivery

        return RetryDelivery(self)

    @override
    def describes(self) -> list[str]:
        steps = ", ".join(dict.fromkeys(one.step for one in self.inputs))
        return [f"topic {self.topics_text}: rows of replayed dead letters, for {steps}"]

    def fit(self, letter: DeadLetter) -> Fitting:
        """Finds the input at which a dead letter can be replayed. The plan and a slot decide the same."""
        obstacle = _find_unreplayable(letter)
        if obstacle:
            return Fitting(None, {}, obstacle)
        try:
            row = msgspec.json.decode(letter.row or "", type=Row)
            types = msgspec.json.decode(letter.row_types or "", type=dict[str, str])
        except UNDECODABLE as error:
            return Fitting(None, {}, f"its row cannot be read: {error}")
        found = [one for one in self.inputs if letter.step in (one.step, one.was)]
        if not found:
            return Fitting(None, row, f"`{letter.step}` is no longer a step or sink with dead letters")
        wanted = next((one for one in found if one.port == letter.port), None)
        if wanted is None:
            return Fitting(None, row, f"`{letter.step}` no longer has an input {letter.port}")
        obstacle = wanted.find_obstacle(letter, row, types)
        return Fitting(None if obstacle else wanted, row, obstacle)


def _find_unreplayable(letter: DeadLetter) -> str:
    if letter.row is None:
        return (
            "its row was omitted because it is too large" if letter.row_size else "it does not contain a row of a step"
        )
    if letter.port is None:
        return f"its row is a result of `{letter.step}`, which cannot be computed again"
    if letter.row_masked:
        return "its row contained a secret, which is replaced"
    return ""


def _stored_type(kind: DataType) -> DataType:
    """Returns the type under which a dead letter shows a column: a map is an array of its entries."""
    if kind.kind == "map":
        return DataType("array", element=_stored_type(entry_of(kind)))
    if kind.kind == "array" and kind.element is not None:
        return DataType("array", element=_stored_type(kind.element))
    if kind.kind == "struct":
        return DataType("struct", fields=tuple((name, _stored_type(field)) for name, field in kind.fields))
    return kind


def make_retry(
    topic: str, pipeline: str, kafka: dict[str, str], cluster: ClusterName, *, bounded: bool
) -> RetryOperator:
    """Creates the source; the planner adds the inputs."""
    columns = ((KEY, BINARY), (VALUE, BINARY))
    return RetryOperator(
        name=RETRY,
        topics=(topic,),
        format="raw",
        schema=columns,
        output=(*columns, (HEADERS, HEADERS_TYPE)),
        start="earliest",
        until="latest" if bounded else "never",
        bad_records=BadRecordPolicy.DEAD_LETTER,
        kafka=kafka,
        cluster=cluster,
        metadata=(MetadataColumn("headers", HEADERS, HEADERS_TYPE),),
        pipeline=pipeline,
    )
