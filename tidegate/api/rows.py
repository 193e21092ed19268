"""Rows and records given in Python, as elements of a case's `given`, and what came out, as Polars frames.

A row has the columns of its source: those of `schema`, which become the value, and those of `metadata`, which become
other parts of the record. Values of the wrong type stay as they are: the pipeline must find them.
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from html import escape
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pydantic import ValidationError

from tidegate.config.case_checks import derive_given_problems
from tidegate.config.cases import GivenSettings
from tidegate.config.errors import PathProblem, join_remedy
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.models import SourceSettings
from tidegate.config.translate import derive_problem
from tidegate.datatypes import BOOLEAN, STRING, DataType
from tidegate.formats import keys
from tidegate.formats.plain import render_json
from tidegate.formats.registry import FORMATS
from tidegate.formats.schemas import UnknownFields
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import DELETED, TOMBSTONE, SourceOperator
from tidegate.plan.graph import Plan
from tidegate.testing.feed import ValueRefused
from tidegate.testing.parts import TOPIC_COLUMN

if TYPE_CHECKING:
    import polars as pl


if TYPE_CHECKING:
    import polars as pl

    Rows = pl.DataFrame | Iterable[Mapping[str, object]]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_RECORDS: Final = (
    "records=True takes records as `given` of a case has them: {'value': ..., 'key': ..., 'timestamp': ...}"
)


def derive_elements(
    rows: Rows, source: SourceOperator, settings: SourceSettings, *, records: bool
) -> list[GivenSettings]:
    """Returns the elements for a source. `records`: they are records, or time that passes. Raises ValueRefused."""
    given = enumerate(_list(rows, source))
    if records:
        return [_read_record(f"{source.name}, record {at}", row, settings) for at, row in given]
    if FORMATS[source.format].is_changelog:
        raise ValueRefused(f"a row of the {source.format} source `{source.name}` is not a record; {_RECORDS}")
    reader = _RowReader(source)
    return [reader.read(f"{source.name}, row {at}", row) for at, row in given]


def _list(rows: Any, source: SourceOperator) -> Iterable[Mapping[str, object]]:
    if hasattr(rows, "to_dicts"):
        found: list[Mapping[str, object]] = rows.to_dicts()
        return found
    what = f"the rows of `{source.name}` are of the type {type(rows).__name__}"
    if any(hasattr(type(rows), name) for name in ("columns", "collect")):
        raise ValueRefused(f"{what}; convert it with `polars.from_pandas`, `polars.from_arrow` or `collect`")
    if isinstance(rows, Mapping | str | bytes) or not hasattr(rows, "__iter__"):
        raise ValueRefused(f"{what}; give a polars DataFrame or a list of dicts")
    listed: Iterable[Mapping[str, object]] = rows
    return listed


class _RowReader:
    """Reads the rows of one source."""

    def __init__(self, source: SourceOperator) -> None:
        self._source = source
        fixed = FORMATS[source.format].fixed_columns
        self._types = dict(source.schema)
        self._parts = {one.name: one.part for one in source.metadata}
        if fixed is not None:
            self._parts |= {name: name for name in fixed if name != "value"}
        self._raw = fixed is not None
        self._whole = source.options.unknown_fields is not UnknownFields.SKIP
        self._known = {*self._types, *self._parts, *((DELETED,) if source.on_null == TOMBSTONE else ())}

    def read(self, where: str, row: Mapping[str, object]) -> GivenSettings:
        """Reads one row. Raises ValueRefused."""
        if not isinstance(row, Mapping):
            raise ValueRefused(f"{where} is a {type(row).__name__}; give a dict of columns")
        fields: dict[str, Any] = {}
        value: dict[str, object] = {}
        for name, item in row.items():
            if name in self._parts:
                fields |= self._read_part(f"{where}, column `{name}`", self._parts[name], item)
            elif name in self._types or (self._whole and name != DELETED):
                value[name] = _plain_in(f"{where}, column `{name}`", item, self._types.get(name))
            elif name not in self._known:
                hint = derive_suggestion(str(name), self._known, otherwise=f"it has {', '.join(sorted(self._known))}")
                raise ValueRefused(f"{where}: the source has no column `{name}`; {hint}")
        if self._raw:
            fields |= _bytes_as("value", row.get("value"))
        else:
            fields["value"] = None if row.get(DELETED) and DELETED not in self._types else value
        return GivenSettings.model_construct(_fields_set=set(fields), **fields)

    def _read_part(self, where: str, part: str, value: object) -> dict[str, Any]:
        match part:
            case "key":
                return self._read_key(value)
            case "timestamp":
                return {"timestamp": _moment_ms(where, value)}
            case "headers":
                return {"headers": _headers(where, value)}
            case "partition":
                return {} if value is None else {"partition": value}
            case "topic":
                return {} if value is None else {"topic": value}
        raise ValueRefused(f"{where}: offsets follow from the order of the rows; leave the column out")

    def _read_key(self, value: object) -> dict[str, Any]:
        if value is None:
            return {"key": None}
        if self._source.key_format in (keys.TEXT, keys.RAW):
            return _bytes_as("key", value)
        (kind,) = [one.type for one in self._source.metadata if one.part == "key"]
        return {"key": render_json(derive_plain(value, kind))}


def derive_plain(value: Any, kind: DataType | None = None) -> Any:
    """Returns a value as people write it in YAML: times as ISO text, bytes as base64, maps as objects.

    Raises TypeError for a value that no column can have.
    """
    match value:
        case dt.datetime():
            if value.tzinfo is not None:
                value = value.astimezone(dt.UTC).replace(tzinfo=None)
                return f"{value.isoformat()}Z"
            return value.isoformat()
        case dt.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {str(name): derive_plain(item, _below(kind, name)) for name, item in value.items()}
        case list() | tuple():
            if kind is not None and kind.kind == "map" and all(isinstance(one, Mapping) for one in value):
                return {_key_text(one["key"]): derive_plain(one["value"], kind.element) for one in value}
            return [derive_plain(one, None if kind is None else kind.element) for one in value]
        case str() | int() | float() | Decimal() | None:
            return value
    if hasattr(value, "item"):  # of NumPy
        return derive_plain(value.item(), kind)
    raise TypeError(f"a value of the type {type(value).__name__} is not of any column type")


def _plain_in(where: str, value: object, kind: DataType | None = None) -> Any:
    """Returns a value as `derive_plain`. Raises ValueRefused."""
    try:
        return derive_plain(value, kind)
    except TypeError as error:
        raise ValueRefused(f"{where}: {error}") from error


def _below(kind: DataType | None, name: object) -> DataType | None:
    """Returns the type of a field or of a map's values."""
    if kind is None:
        return None
    return kind.element if kind.kind == "map" else dict(kind.fields).get(str(name))


def _key_text(key: object) -> str:
    plain = derive_plain(key)
    return plain if isinstance(plain, str) else render_json(plain)


def _bytes_as(name: str, value: object) -> dict[str, Any]:
    """Returns bytes or text as the part `name` of a record."""
    if isinstance(value, bytes):
        return {f"{name}_base64": value}
    return {name: None if value is None else str(value)}


def _moment_ms(where: str, value: object) -> int | None:
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // _MILLISECOND
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueRefused(f"{where} is a {type(value).__name__}; give a datetime, or the ms since 1970")


def _headers(where: str, value: object) -> tuple[tuple[str, bytes | None], ...]:
    found = []
    for one in value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,):
        pair = (one.get("key"), one.get("value")) if isinstance(one, Mapping) else one
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueRefused(f"{where}: headers are pairs of a name and its bytes: [('source', b'web')]")
        name, data = pair
        found.append((name, data.encode() if isinstance(data, str) else data))
    return tuple(found)


# -- whole records -----------------------------------------------------------------------------------------------------


def _read_record(where: str, given: Mapping[str, object], settings: SourceSettings) -> GivenSettings:
    if not isinstance(given, Mapping):
        raise ValueRefused(f"{where} is a {type(given).__name__}; {_RECORDS}")
    fields: dict[str, object] = {}
    for name, value in given.items():
        if name in ("key", "value") and isinstance(value, bytes):
            fields[f"{name}_base64"] = base64.b64encode(value).decode()
        elif isinstance(value, dt.timedelta):
            fields[name] = f"{value // _MILLISECOND}ms"
        elif name == "headers":
            fields[name] = None if value is None else [_header_text(pair) for pair in _headers(where, value)]
        else:
            fields[name] = _plain_in(f"{where}, `{name}`", value)
    try:
        element = GivenSettings.model_validate(fields)
    except ValidationError as error:
        raise _refused(where, derive_problem(error.errors()[0])) from error
    for problem in derive_given_problems((), element, settings):
        raise _refused(where, problem)
    return element


def _refused(where: str, one: PathProblem) -> ValueRefused:
    at = f", `{'.'.join(map(str, one.path))}`" if one.path else ""
    return ValueRefused(f"{where}{at}: {join_remedy(one.message, one.remedy)}")


def _header_text(pair: tuple[str, bytes | None]) -> list[Any]:
    name, data = pair
    return [name, None if data is None else {"base64": base64.b64encode(data).decode()}]


# -- what came out -----------------------------------------------------------------------------------------------------

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
