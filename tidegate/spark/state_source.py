"""Reads state of a checkpoint or savepoint as a Spark DataFrame, in parallel tasks: `read_state`.

A part is a range of key groups with the files that contain some of them. Tidegate must be installed where tasks run,
and they must have access to the files, as for a pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark.sql.types import DataType as SparkType

from tidegate.datatypes import NESTED, DataType
from tidegate.errors import TidegateError
from tidegate.tables.files import StateFiles, choose_state, read_files, read_shape
from tidegate.tables.source import StateSnapshot, open_snapshot
from tidegate.tables.table import StateTable, read_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPTIONS: Final = frozenset({"path", "step", "state", "checkpoint", "raw", "partitions"})
PARTITIONS: Final = 8
"""The default of the option; there are never more parts than key groups with entries."""
_SIMPLE: Final[Mapping[str, SparkType]] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "smallint": ShortType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}


class StateOptionRefused(TidegateError):
    """The options of `read_state` are invalid."""

    code = "state-option-refused"
    exit_code = 2


class StateOptions(msgspec.Struct, frozen=True):
    """The options of a read."""

    path: str
    step: str
    state: str | None = None
    checkpoint: str | None = None
    raw: bool = False
    partitions: int = PARTITIONS

    def open(self) -> StateSnapshot:
        """Opens the snapshot. Raises what `open_snapshot` raises."""
        return open_snapshot(self.path, self.checkpoint, os.environ)

    def open_table(self) -> StateTable:
        """Opens the table of the state. Also raises what `choose_state` raises."""
        snapshot = self.open()
        return StateTable(read_shape(snapshot, choose_state(snapshot, self.step, self.state)), raw=self.raw)


class StatePart:
    """The input of one task: a range of key groups, and the files that contain some of them."""

    def __init__(self, options: StateOptions, files: StateFiles, first: int, end: int) -> None:
        self.options = options
        self.key_groups = range(first, end)
        self.files = files.within(self.key_groups) if files.keyed else files


def read_state(spark: SparkSession, **options: str | int | bool) -> DataFrame:
    """Returns the rows of a state.

    Example: `read_state(spark, path="/data/checkpoints", step="totals")`.
    """
    found = read_options({name: str(value) for name, value in options.items()})
    schema = derive_schema(found.open_table())
    parts = derive_parts(found)
    rows = spark.sparkContext.parallelize(parts, max(1, len(parts))).flatMap(read_part)
    return spark.createDataFrame(rows, schema, verifySchema=False)


def read_options(given: Mapping[str, str]) -> StateOptions:
    """Parses the options. Raises StateOptionRefused."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in OPTIONS:
            raise StateOptionRefused(f"the option {name!r} is unknown; there are {', '.join(sorted(OPTIONS))}")
    for name in ("path", "step"):
        if not options.get(name):
            raise StateOptionRefused(f"the option {name!r} is missing")
    try:
        return msgspec.convert(options, StateOptions, strict=False)
    except msgspec.ValidationError as error:
        raise StateOptionRefused(f"an option is of another type: {error}") from error


def derive_parts(options: StateOptions) -> list[StatePart]:
    """Divides the key groups into ranges with about the same number of entries.

    They name the checkpoint by its number, because another one may be the newest when a task begins.
    """
    snapshot = options.open()
    files = read_files(snapshot, choose_state(snapshot, options.step, options.state))
    if snapshot.retained:
        options = msgspec.structs.replace(options, checkpoint=str(snapshot.checkpoint.id))
    if not files.keyed:
        return [StatePart(options, files, 0, 1)]
    entries = dict.fromkeys(files.key_groups, 0)
    for file in files.files:
        for part in file.header.groups:
            entries[part.group] += part.entries
    most = max(1, -(-sum(entries.values()) // max(1, options.partitions)))
    parts, first, held = list[StatePart](), 0, 0
    for group, count in entries.items():
        held += count
        if held >= most:
            parts.append(StatePart(options, files, first, group + 1))
            first, held = group + 1, 0
    return [*parts, StatePart(options, files, first, files.shape.max_parallelism)] if held else parts


def read_part(part: StatePart) -> Iterator[tuple[Any, ...]]:
    """Reads the rows of a part, as Spark's values."""
    snapshot, table = part.options.open(), StateTable(part.files.shape, raw=part.options.raw)
    converters = [_converter(column.type) for column in table.columns]
    nested = [index for index, convert in enumerate(converters) if convert is not None]
    for frame in read_frames(snapshot, part.files, table, part.key_groups):
        if not nested:
            yield from frame.rows()
            continue
        for row in frame.rows():
            yield tuple(
                value if convert is None or value is None else convert(value)
                for convert, value in zip(converters, row, strict=True)
            )


def derive_schema(table: StateTable) -> StructType:
    """Derives the columns of a table for Spark."""
    return StructType([StructField(column.name, _spark_type(column.type)) for column in table.columns])


def _spark_type(kind: DataType) -> SparkType:
    if kind.kind == "map" and kind.key is not None and kind.element is not None:
        return MapType(_spark_type(kind.key), _spark_type(kind.element))
    if kind.kind == "array" and kind.element is not None:
        return ArrayType(_spark_type(kind.element))
    if kind.kind == "struct":
        return StructType([StructField(name, _spark_type(part)) for name, part in kind.fields])
    if kind.kind == "decimal":
        return DecimalType(kind.precision, kind.scale)
    return _SIMPLE[kind.kind]


_Convert = Callable[[Any], Any]


def _converter(kind: DataType) -> _Convert | None:
    """Returns the conversion from a Polars value to a Spark value; None if they are the same."""
    if kind.kind not in NESTED:
        return None
    if kind.kind == "struct":
        fields = [(name, _within(part)) for name, part in kind.fields]
        return lambda value: tuple(convert(value[name]) for name, convert in fields)
    assert kind.element is not None
    element = _within(kind.element)
    if kind.kind == "map":
        assert kind.key is not None
        key = _within(kind.key)
        return lambda value: {key(entry["key"]): element(entry["value"]) for entry in value}
    return lambda value: [element(one) for one in value]


def _within(kind: DataType) -> _Convert:
    convert = _converter(kind)
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)
