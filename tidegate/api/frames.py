"""What came out of a pipeline, as Polars frames with the declared types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Final, NoReturn

from tidegate.datatypes import BOOLEAN, STRING, DataType
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.plan.graph import Plan
from tidegate.testing.parts import TOPIC_COLUMN

if TYPE_CHECKING:
    import polars as pl

ROWS_SHOWN: Final = 10


class Frames(dict[str, "pl.DataFrame"]):
    """The frames by sink, and what the pipeline has reported."""

    def __init__(
        self,
        frames: Mapping[str, pl.DataFrame],
        bad_records: Mapping[str, int],
        skipped: Sequence[str],
        late: Mapping[str, int],
        notes: Sequence[str],
    ) -> None:
        super().__init__(frames)
        self.bad_records = dict(bad_records)
        """Kind -> number of records that were skipped or became dead letters."""
        self.skipped = list(skipped)
        """A line for each record that was skipped: where it was, and why it is bad."""
        self.late = dict(late)
        """Step -> number of records that came too late for it."""
        self.notes = list(notes)
        """What may explain missing rows: late records, open windows, watermarks, rows that wait for another input."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"there is no frame {name!r}; available: {', '.join(self)}")

    def _repr_html_(self) -> str:
        shown = [
            f"<b>{escape(name)}</b>: {frame.height} row{'' if frame.height == 1 else 's'}"
            f"{frame.head(ROWS_SHOWN)._repr_html_()}"
            for name, frame in self.items()
        ]
        lines = [*(f"skipped: {line}" for line in self.skipped[:ROWS_SHOWN]), *self.notes]
        return "".join([*shown, f"<pre>{escape(chr(10).join(lines))}</pre>" if lines else ""])


def gather_rows(plan: Plan, sink: SinkOperator, kept: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Returns the rows that a sink has written: the columns of the value, then those of other parts of the record."""
    import polars as pl

    from tidegate.formats.columns import polars_type

    columns = columns_of_sink(plan, sink)
    schema = {name: polars_type(kind) for name, kind in columns.items()}
    return pl.concat([pl.DataFrame(schema=schema), *(frame.select(list(schema)) for frame in kept)])


def columns_of_sink(plan: Plan, sink: SinkOperator) -> dict[str, DataType]:
    """Returns the columns that a sink writes in its records: values, key, timestamp, partition, and tombstones."""
    reads = _input_columns(plan, sink)
    parts = [name for name in (sink.key, sink.timestamp, sink.partition) if name is not None]
    columns = dict(sink.columns) | {name: reads[name] for name in parts if name in reads}
    if sink.deleted is not None:
        columns[sink.deleted] = BOOLEAN
    return columns if isinstance(sink.topic, str) else columns | {TOPIC_COLUMN: columns.get(TOPIC_COLUMN, STRING)}


def _input_columns(plan: Plan, sink: SinkOperator) -> dict[str, DataType]:
    """Returns the columns of the rows that a sink receives."""
    for vertex in plan.vertices:
        for node in vertex.nodes:
            for output, way in node.outputs.items():
                if any(vertex.nodes[child].operator.name == sink.name for child in way.children):
                    return dict(node.operator.output_columns(output))
    return {name: kind for edge in plan.edges if str(edge.downstream) == str(sink.name) for name, kind in edge.columns}
