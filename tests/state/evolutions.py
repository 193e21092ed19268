"""The table of evolutions: what was tried, the verdict, what both backends make of it, and what Avro says about it.

`python -m tests.state.evolutions` prints docs/state-evolution.md, which a test compares.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import fastavro

from tests.state.evolving import BACKENDS, declare, restore, write
from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    TINYINT,
    DataType,
    decimal_of,
    map_of,
)
from tidegate.state.compatibility import Fit
from tidegate.state.declaration import Evolution, StateField
from tidegate.state.errors import StateUnreadable
from tidegate.state.verdict import judge


class Case(NamedTuple):
    """Values `v` of one type that are to be another, or whole rows."""

    what: str
    old: tuple[StateField, ...]
    new: tuple[StateField, ...]
    value: tuple[Any, ...]
    evolution: Evolution = Evolution()
    begins: dict[str, Any] = {}  # noqa: RUF012  # never changed


def typed(old: DataType, new: DataType, value: Any) -> Case:
    """A column that has another type."""
    return Case(f"{old} → {new}", (StateField("v", old),), (StateField("v", new),), (value,))


def struct(*fields: tuple[str, DataType]) -> DataType:
    return DataType("struct", fields=fields)


def array(element: DataType) -> DataType:
    return DataType("array", element=element)


A, B, C = StateField("a", INT), StateField("b", STRING), StateField("c", DOUBLE)
PLACE, TOWN = struct(("city", STRING), ("no", INT)), struct(("no", BIGINT), ("town", STRING))
N, NET = StateField("n.count", BIGINT, nullable=False), StateField("net.sum", DOUBLE)

CASES: Final = (
    typed(TINYINT, SMALLINT, -7),
    typed(SMALLINT, INT, -700),
    typed(INT, BIGINT, 7),
    typed(BIGINT, INT, 7),
    typed(INT, decimal_of(12, 2), 7),
    typed(INT, decimal_of(10, 2), 7),
    typed(BIGINT, decimal_of(19), 2**63 - 1),
    typed(BIGINT, decimal_of(18), 7),
    typed(SMALLINT, FLOAT, 7),
    typed(INT, FLOAT, 7),
    typed(INT, DOUBLE, 7),
    typed(BIGINT, DOUBLE, 2**53),
    typed(BIGINT, DOUBLE, 2**53 + 1),
    typed(FLOAT, DOUBLE, 1.5),
    typed(DOUBLE, FLOAT, 1.5),
    typed(DOUBLE, BIGINT, 1.0),
    typed(decimal_of(10, 2), decimal_of(12, 2), Decimal("1.50")),
    typed(decimal_of(10, 2), decimal_of(12, 4), Decimal("1.50")),
    typed(decimal_of(10, 2), decimal_of(10, 4), Decimal("1.50")),
    typed(decimal_of(10, 2), decimal_of(10, 1), Decimal("1.50")),
    typed(decimal_of(10, 2), DOUBLE, Decimal("1.50")),
    typed(decimal_of(10), BIGINT, Decimal(7)),
    typed(DATE, TIMESTAMP, 1),
    typed(DATE, TIMESTAMP_NTZ, 1),
    typed(DATE, INT, 1),
    typed(TIMESTAMP, DATE, 0),
    typed(TIMESTAMP, TIMESTAMP_NTZ, 0),
    typed(TIMESTAMP, BIGINT, 0),
    typed(STRING, BINARY, "a"),
    typed(BINARY, STRING, b"a"),
    typed(BOOLEAN, INT, True),
    typed(INT, STRING, 7),
    typed(array(INT), array(BIGINT), (1, None)),
    typed(array(INT), array(DOUBLE), (1, None)),
    typed(array(INT), array(STRING), (1,)),
    typed(array(INT), INT, (1,)),
    typed(map_of(STRING, INT), map_of(STRING, DOUBLE), (("a", 1), ("b", None))),
    typed(map_of(INT, INT), map_of(BIGINT, INT), ((1, 1),)),
    typed(map_of(STRING, INT), map_of(INT, INT), (("a", 1),)),
    typed(PLACE, struct(("no", BIGINT), ("city", STRING)), ("rome", 1)),
    typed(PLACE, struct(("city", STRING), ("no", INT), ("zip", STRING)), ("rome", 1)),
    typed(PLACE, struct(("city", STRING)), ("rome", 1)),
    typed(array(PLACE), array(struct(("city", STRING), ("no", DOUBLE))), (("rome", 1), None)),
    Case("a is new, nullable", (B,), (A, B), ("x",)),
    Case("a is new, with a default", (B,), (B, A), ("x",), Evolution(defaults={"a": 7})),
    Case("a is new, not null", (B,), (B, StateField("a", INT, nullable=False)), ("x",)),
    Case(
        "a is new, not null, with a default",
        (B,),
        (StateField("a", INT, nullable=False), B),
        ("x",),
        Evolution(defaults={"a": 7}),
    ),
    Case("a is gone", (A, B), (B,), (1, "x")),
    Case("a is gone, named in `drop`", (A, B), (B,), (1, "x"), Evolution(dropped=frozenset({"a"}))),
    Case("a and b change places", (A, B), (B, A), (1, "x")),
    Case("a is renamed to c, nothing said", (A,), (C,), (1,)),
    Case("a is renamed to c, and widened", (A, B), (C, B), (1, "x"), Evolution(columns={"c": "a"})),
    Case("a and c exchange their names", (A, C), (A, C), (1, 2.0), Evolution(columns={"a": "c", "c": "a"})),
    Case("a not null → nullable", (StateField("a", INT, nullable=False),), (A,), (1,)),
    Case("a nullable → not null, no NULL there", (A,), (StateField("a", INT, nullable=False),), (1,)),
    Case("a nullable → not null, NULL there", (A,), (StateField("a", INT, nullable=False),), (None,)),
    Case(
        "v.city is renamed to v.town, v.no widened and moved",
        (StateField("v", PLACE),),
        (StateField("v", TOWN),),
        (("rome", 1),),
        Evolution(columns={"v.town": "v.city"}),
    ),
    Case(
        "v.no is gone, named in `drop`",
        (StateField("v", PLACE),),
        (StateField("v", struct(("city", STRING))),),
        (("rome", 1),),
        Evolution(dropped=frozenset({"v.no"})),
    ),
    Case("total n is new", (NET,), (NET, N), (2.5,), begins={"n.count": 0}),
    Case("total n is gone, named in `drop`", (NET, N), (NET,), (2.5, 3), Evolution(dropped=frozenset({"n"}))),
    Case("total net is another kind", (NET,), (StateField("net.max", DOUBLE),), (2.5,), begins={"net.max": None}),
)


class Outcome(NamedTuple):
    """What came of a case."""

    fit: Fit
    reason: str
    result: str
    """What both backends have then, or why they refuse."""
    avro: str


def play(case: Case, backends: Sequence[str] = BACKENDS) -> Outcome:
    """Verdict, and the results of the backends, which must be the same; of files of each of them."""
    old, new = declare(case.old), declare(case.new, evolution=case.evolution, begins=case.begins)
    verdict = judge(old.shape, new)
    results = {_restored(case, writer, reader) for writer in backends for reader in backends}
    assert len(results) == 1, f"{case.what}: {results}"
    return Outcome(verdict.fit, verdict.reason, results.pop(), avro_verdict(case))


def _restored(case: Case, writer: str, reader: str) -> str:
    files = write(declare(case.old), {("k",): case.value}, writer)
    try:
        found = restore(files, declare(case.new, evolution=case.evolution, begins=case.begins), reader)
    except StateUnreadable as error:
        assert "state s of step" in error.message
        return "refused" if "was written as" in error.message else "refused at the entry"
    (value,) = found.values()
    return repr(value)


# -- Avro --------------------------------------------------------------------------------------------------------------

_PLAIN: Final[dict[str, Any]] = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
}


def avro_verdict(case: Case) -> str:
    """Whether fastavro's resolution reads a row of the old schema as one of the new; empty where Avro has no such type.

    A logical type is its annotation there: what is under it decides, so those are left out. It has no totals.
    """
    if case.begins or any("." in field.name for field in (*case.old, *case.new)):
        return "—"
    try:
        schemas = [
            {"type": "record", "name": "Row", "fields": list(_fields(fields, case.evolution if new else Evolution()))}
            for fields, new in ((case.old, False), (case.new, True))
        ]
    except KeyError:
        return "—"
    row = _plain(case.old, case.value)
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schemas[0]), row)
    target.seek(0)
    try:
        read = fastavro.schemaless_reader(target, fastavro.parse_schema(schemas[0]), fastavro.parse_schema(schemas[1]))
    except Exception:  # noqa: BLE001  # whatever it does not read
        return "refuses"
    wanted = {field.name for field in case.new}
    assert isinstance(read, dict)
    assert set(read) == wanted
    return "reads"


def _fields(fields: Sequence[StateField], rules: Evolution, path: str = "") -> Iterator[dict[str, Any]]:
    for field in fields:
        name = path + field.name
        schema = _schema(field.type, rules, f"{name}.")
        one: dict[str, Any] = {"name": field.name, "type": ["null", schema] if field.nullable else schema}
        if name in rules.columns:
            one["aliases"] = [rules.columns[name].rpartition(".")[2]]
        if name in rules.defaults:
            one["type"] = [schema, "null"] if field.nullable else schema
            one["default"] = rules.defaults[name]
        elif field.nullable:
            one["default"] = None
        yield one


def _schema(kind: DataType, rules: Evolution, path: str) -> Any:
    """Raises KeyError for what Avro has not, or only as an annotation."""
    if kind.kind == "array" and kind.element is not None:
        return {"type": "array", "items": ["null", _schema(kind.element, rules, path)]}
    if kind.kind == "map" and kind.element is not None and kind.key == STRING:
        return {"type": "map", "values": ["null", _schema(kind.element, rules, path)]}
    if kind.kind == "struct":
        inner = [StateField(name, part) for name, part in kind.fields]
        return {"type": "record", "name": f"Inner{len(path)}", "fields": list(_fields(inner, rules, path))}
    return _PLAIN[kind.kind]


def _plain(fields: Sequence[StateField], values: Sequence[Any]) -> dict[str, Any]:
    return {field.name: _value(field.type, value) for field, value in zip(fields, values, strict=True)}


def _value(kind: DataType, value: Any) -> Any:
    if value is None:
        return None
    if kind.kind == "array" and kind.element is not None:
        return [_value(kind.element, one) for one in value]
    if kind.kind == "map" and kind.element is not None:
        return {key: _value(kind.element, one) for key, one in value}
    if kind.kind == "struct":
        return _plain([StateField(name, part) for name, part in kind.fields], value)
    return value


# -- the page ----------------------------------------------------------------------------------------------------------

HEAD: Final = """\
# What happens to state when a column changes

A restore reads a step's state into the definition that the pipeline file has now. Each state file records how it was
written, so the two definitions are compared before anything runs
([Changing a pipeline](operations/upgrades.md#changing-a-pipeline), ADR 54). There are four verdicts:

| verdict | what happens |
| --- | --- |
| as is | nothing |
| after reconfiguration | the bytes stay; the reader is told the wider type or the new name |
| after migration | before the first record, every entry is read as it was written, converted, and written again |
| incompatible | the pipeline does not start, and the message names the state, the columns and the choices |

Some problems show only in an entry: a NULL in a column that must not be NULL, or a bigint that no double represents
exactly. They are found while entries are migrated. The start then fails and names the key.

Each line below was written and restored by both backends, in all four combinations, with the same result. The last
column shows the result of [Avro's rules](https://avro.apache.org/docs/1.12.0/specification/#schema-resolution)
(fastavro). A dash stands for types that Avro expresses only as an annotation, such as decimals and dates. A default in
the pipeline file corresponds to the default of the reader's schema in Avro, and a rename to an alias.

"""
TAIL: Final = """
Where this differs from Avro, and why:

- Avro drops a field that the reader does not have. Here you have to name it (`state: {drop: [column]}`), so that a
  typing error cannot delete a column with data.
- Avro widens a long to a float or double and an int to a float, whether that is exact or not. Here the conversion has
  to be exact, either for the whole type or for each value.
- Avro reads a string as bytes and bytes as a string. Here they are different types.
- Whether a column may be NULL is decided for each value, as in Avro: if the reader's column must not be NULL, a NULL
  fails when it is read.

Keys keep their order and their key groups. A key column may be renamed, an integer may become a wider integer, and a
decimal may get more digits with the same scale. For any other change of `key`, the state starts empty
(`state: reset`).

An aggregate that is added to a step starts with the first record after the change, also for existing keys and windows.
Aggregates of changes (of Debezium) and `first` without a window cannot start in this way, because the rows before the
change are not known. An aggregate that is removed has to be named. An aggregate that becomes another kind (`sum` to
`max`, or a sum of decimals of another scale) needs another name, or `state: reset`. Rows in flight and calls that wait
for an answer are not converted: stop the pipeline once with SIGTERM, whose final checkpoint contains neither.

A step in Python declares its states, and each of them evolves by the table above: the value of `clicks = Value("int")`
is a column `value`. A `Value`, `Map`, `List` or timer that is added begins empty, so that a `Value` has its default.
One that is removed has to be named (`state: {drop: [clicks]}`), and one with another name is a new one. Only the last
timer of a step cannot be given up by itself: leave it declared, or reset the step. Whether changed code may continue
with its state only its author knows: `tidegate upgrade` and the log of the start note the change, and nothing is
refused. If old state must not be continued, raise `version` of the class: the start then asks for `state: keep` or
`state: reset`.
"""


def render(backends: Sequence[str] = BACKENDS) -> str:
    """The page."""
    lines = ["| change | verdict | reason | result, both backends | Avro |", "| --- | --- | --- | --- | --- |"]
    for case in CASES:
        one = play(case, backends)
        before = f"`{case.value!r}` → " if not one.result.startswith("refused") else f"`{case.value!r}`: "
        result = f"{before}`{one.result}`" if not one.result.startswith("refused") else f"{before}{one.result}"
        lines.append(f"| {case.what} | {one.fit} | {one.reason or 'nothing differs'} | {result} | {one.avro} |")
    return HEAD + "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    print(render(), end="")
