"""The typed form of an expression, which validation produces, the daemon sends to the slots, and the slots compile.

These are plain values without Polars. `parse.py` creates them from text; `tidegate.expressions.compiled`
compiles them to Polars.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from decimal import Decimal

import msgspec

from tidegate.datatypes import MAX_PRECISION, DataType
from tidegate.expressions.decimal_types import can_overflow, decimal_cast_can_fail


class Literal(msgspec.Struct, frozen=True, tag_field="node", tag="literal"):
    """A constant: timestamps in microseconds since 1970 UTC, dates in days since 1970, intervals in microseconds,
    decimals as text.
    """

    value: bool | int | float | str | None
    type: DataType


class ColumnReference(msgspec.Struct, frozen=True, tag_field="node", tag="column"):
    """A column of the input."""

    name: str
    type: DataType


class FieldAccess(msgspec.Struct, frozen=True, tag_field="node", tag="field"):
    """A field of a struct: `base.name`."""

    base: Expression
    name: str
    type: DataType


class Call(msgspec.Struct, frozen=True, tag_field="node", tag="call"):
    """A function or operator by its Spark name in lower case (`+`, `and`, `upper`, `case` ...).

    `case` has the arguments condition, value, condition, value ... [, default].
    """

    function: str
    arguments: tuple[Expression, ...]
    type: DataType
    text: str = ""
    """The user's text, which messages quote. It does not count for equality."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[str, tuple[Expression, ...], DataType]:
        return self.function, self.arguments, self.type


class Cast(msgspec.Struct, frozen=True, tag_field="node", tag="cast"):
    """A cast. `CAST` fails the record if a value cannot be cast (ANSI); `TRY_CAST` (`attempt`) returns NULL for it."""

    operand: Expression
    type: DataType
    attempt: bool = False
    text: str = ""
    """The user's text, as in `Call`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cast) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[Expression, DataType, bool]:
        return self.operand, self.type, self.attempt


class Lambda(msgspec.Struct, frozen=True, tag_field="node", tag="lambda"):
    """`x -> body`, which a function such as `transform` evaluates for each element. `type` is the type of the body.

    In the body a parameter is a `ColumnReference` with its name. It hides a column of the input with the same name.
    """

    parameters: tuple[tuple[str, DataType], ...]
    body: Expression
    type: DataType


Expression = Literal | ColumnReference | FieldAccess | Call | Cast | Lambda


class AggregateCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One aggregate function over a group, such as `count` or `sum`. `argument` is None for `count(*)`."""

    function: str
    argument: Expression | None
    type: DataType
    others: tuple[Expression, ...] = ()
    """The arguments after the first: the order value of min_by and max_by, or the fraction of percentile_approx."""
    condition: Expression | None = None
    """The condition of FILTER: only rows for which it is true count."""
    ignore_nulls: bool = False
    """Whether first and last skip rows in which the argument is NULL."""

    @property
    def is_filtered(self) -> bool:
        """Whether only some rows of a group count."""
        return self.condition is not None or self.ignore_nulls

    @property
    def arguments(self) -> tuple[Expression, ...]:
        """All arguments."""
        return () if self.argument is None else (self.argument, *self.others)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All expressions that it evaluates: the arguments, and the condition of FILTER."""
        return self.arguments if self.condition is None else (*self.arguments, self.condition)

    @property
    def columns(self) -> frozenset[str]:
        """The input columns that it reads."""
        return frozenset().union(*map(columns_of, self.expressions))

    @property
    def text(self) -> str:
        """The call as text for messages. It is not meant to be parsed again."""
        texts = ", ".join(map(text_of, self.arguments)) or "*"
        call = f"count(distinct {texts})" if self.function == "count_distinct" else f"{self.function}({texts})"
        clause = "" if self.condition is None else f" filter (where {text_of(self.condition)})"
        return f"{call}{clause}{' ignore nulls' if self.ignore_nulls else ''}"


def with_source(expression: Expression, text: str) -> Expression:
    """Sets the user's text in every part of the expression that has none, since typing adds such parts."""
    match expression:
        case Call(text="", arguments=arguments):
            typed = tuple(with_source(argument, text) for argument in arguments)
            return msgspec.structs.replace(expression, arguments=typed, text=text)
        case Cast(text="", operand=operand):
            return msgspec.structs.replace(expression, operand=with_source(operand, text), text=text)
        case FieldAccess(base=base):
            return msgspec.structs.replace(expression, base=with_source(base, text))
    return expression


def children_of(expression: Expression) -> tuple[Expression, ...]:
    """Returns the parts of which an expression directly consists."""
    match expression:
        case FieldAccess(base=part) | Cast(operand=part) | Lambda(body=part):
            return (part,)
        case Call(arguments=arguments):
            return arguments
    return ()


def parts_of(expression: Expression) -> Iterator[Expression]:
    """Yields an expression and all its parts, each before its own."""
    yield expression
    for child in children_of(expression):
        yield from parts_of(child)


def column_types_of(expression: Expression) -> dict[str, DataType]:
    """Returns the input columns that an expression reads, with their types."""
    if isinstance(expression, ColumnReference):
        return {expression.name: expression.type}
    found = {name: kind for child in children_of(expression) for name, kind in column_types_of(child).items()}
    if isinstance(expression, Lambda):
        hidden = {name for name, _ in expression.parameters}
        return {name: kind for name, kind in found.items() if name not in hidden}
    return found


def columns_of(expression: Expression | None) -> frozenset[str]:
    """Returns the input columns that an expression reads."""
    return frozenset() if expression is None else frozenset(column_types_of(expression))


_INTEGRAL = frozenset({"tinyint", "smallint", "int", "bigint"})
_WIDTH = {"tinyint": 1, "smallint": 2, "int": 3, "bigint": 4, "float": 5, "double": 6}
_DIGITS = {"tinyint": 2, "smallint": 4, "int": 9, "bigint": 18}
"""All decimals with up to this many integer digits fit into the type."""
_OVERFLOWING = frozenset({"+", "-", "*", "negative", "abs", "round", "bround"})
_DIVISIONS = frozenset({"/", "%", "div", "pmod"})
_FALLIBLE = frozenset(
    {"map", "map_from_entries"}  # a key that is repeated or NULL
    | {
        "[]",
        "element_at",
        "try_element_at",
        "to_timestamp",
        "to_timestamp_ntz",
        "to_date",
        "date_add",
        "date_sub",
        "add_months",
    }
    | {"make_date", "timestamp_millis", "timestamp_seconds", "timestamp_micros", "date_from_unix_date"}
    | {"encode", "decode", "unbase64", "url_encode", "url_decode", "parse_url"}
    | {"aes_encrypt", "aes_decrypt"}
    | {"get_json_object", "from_json", "to_json", "json_array_length", "json_object_keys"}
    | {"make_timestamp", "from_utc_timestamp", "to_utc_timestamp", "format_string"}
    | {"slice", "sequence", "transform", "transform_keys", "transform_values", "aggregate"}
    | {"make_dt_interval", "make_ym_interval", "multiply_interval", "divide_interval", "timestampadd", "timestampdiff"}
    | {"floor", "ceil", "date_trunc", "trunc", "date_format", "last_day"}  # for dates after the year 9999
)


_GROWING = frozenset({"repeat", "concat", "concat_ws", "replace", "regexp_replace", "array_join", "hex", "base64"})
_MORE_ARRAY = frozenset({"array_append", "array_prepend", "array_concat", "array_union", "array_repeat"})
_HOLDING = frozenset({"array", "named_struct", "map"})
_SIZED = frozenset({"string", "binary", "array", "struct", "map"})


def can_be_too_large(call: Call) -> bool:
    """Returns whether a function can make its arguments so much larger that a result does not fit
    (`growth.MAX_VALUE_BYTES`).
    """
    if call.function in _HOLDING:
        held = call.arguments[1::2] if call.function == "named_struct" else call.arguments
        return any(argument.type.kind in _SIZED for argument in held)
    return call.function in _GROWING or call.function in _MORE_ARRAY


def cast_can_fail(source: DataType, target: DataType) -> bool:
    """Returns whether some value of `source` has no counterpart in `target`, which fails the record in ANSI mode."""
    before, after = source.kind, target.kind
    if source == target or before == "void":
        return False
    if before == "array" and source.element is not None and target.element is not None:
        return cast_can_fail(source.element, target.element)
    if after == "string":
        return before in ("binary", "date", "timestamp", "timestamp_ntz")  # not UTF-8, or after the year 9999
    if before == "string":
        return after != "binary"
    if after == "decimal":
        return before not in (*_INTEGRAL, "boolean", "decimal") or decimal_cast_can_fail(source, target)
    if before == "boolean":
        return False
    if before == "decimal":
        return after == "timestamp" or (after in _INTEGRAL and source.precision - source.scale > _DIGITS[after])
    if after in _INTEGRAL:
        return (before == "timestamp" and after != "bigint") or _WIDTH.get(before, 0) > _WIDTH[after]
    return after == "timestamp" and before in _WIDTH


def divides_safely(function: str, divisor: Expression) -> bool:
    """Returns whether a division by this divisor cannot fail: it is a literal other than 0, and not `div -1`.

    `div -1` can overflow, because the smallest bigint has no positive counterpart.
    """
    if not isinstance(divisor, Literal) or divisor.value is None:
        return False
    if divisor.type.kind == "decimal":
        return bool(Decimal(str(divisor.value)))
    return bool(divisor.value) and not (function == "div" and divisor.value == -1)


def _can_overflow(call: Call) -> bool:
    kinds = {argument.type.kind for argument in call.arguments}
    if "decimal" not in kinds:
        return call.function in _OVERFLOWING and bool(kinds - {"float", "double"})
    if call.function in ("round", "bround"):
        return call.type.precision == MAX_PRECISION
    if call.function in ("+", "-", "*", *_DIVISIONS) and call.type.kind == "decimal":
        return can_overflow(call.function, *(argument.type for argument in call.arguments))
    return call.function == "div"


def can_fail(expression: Expression) -> bool:
    """Returns whether evaluation may fail for some record. A cheap over-estimate: False is always correct."""
    match expression:
        case Cast(operand=operand, type=target, attempt=False) if cast_can_fail(operand.type, target):
            return True
        case Call(function=function, arguments=arguments):
            divides = function in _DIVISIONS and not divides_safely(function, arguments[1])
            if divides or function in _FALLIBLE or can_be_too_large(expression) or _can_overflow(expression):
                return True
    return any(map(can_fail, children_of(expression)))


MAX_TEXT_CHARACTERS = 120
_PLAIN_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_INFIX = frozenset({"+", "-", "*", "/", "%", "div", "=", "<", "<=", ">", ">=", "<=>", "and", "or", "&", "|", "^", "||"})


def quote_column(name: str) -> str:
    """Returns the name of a column as it is written in an expression."""
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def argument_text(call: Call, index: int) -> str:
    """Returns the user's text for an argument of a call, without a cast that typing has added."""
    argument = call.arguments[index]
    while isinstance(argument, Cast) and argument.text == call.text:
        argument = argument.operand
    return text_of(argument)


def text_of(expression: Expression) -> str:
    """Returns the user's text or a generated one, cut to `MAX_TEXT_CHARACTERS`. It is not meant to be parsed again."""
    text = _text(expression, 12)
    return text if len(text) <= MAX_TEXT_CHARACTERS else text[: MAX_TEXT_CHARACTERS - 1] + "…"


def _text(expression: Expression, depth: int) -> str:
    if depth == 0:
        return "…"

    def inner(one: Expression) -> str:
        text = _text(one, depth - 1)
        return f"({text})" if isinstance(one, Call) and one.function in _INFIX else text

    match expression:
        case Literal(value=value, type=kind):
            return _literal_text(value, kind)
        case Call(text=text) | Cast(text=text) if text:
            return text
        case ColumnReference(name=name):
            return name if all(map(_PLAIN_NAME.fullmatch, name.split("."))) else f"`{name}`"  # `alias.column` too
        case FieldAccess(base=base, name=name):
            return f"{inner(base)}.{name}"
        case Cast(operand=operand, type=target, attempt=attempt):
            return f"{'try_cast' if attempt else 'cast'}({_text(operand, depth - 1)} as {target})"
        case Call(function="negative", arguments=(operand,)):
            return f"-{inner(operand)}"
        case Call(function="secret", arguments=(name, form, *_)):  # a third argument is the key itself
            return f"secret({_text(name, depth - 1)}, {_text(form, depth - 1)})"
        case Call(function="[]", arguments=(base, index)):
            return f"{inner(base)}[{_text(index, depth - 1)}]"
        case Call(function=function, arguments=(left, right)) if function in _INFIX:
            return f"{inner(left)} {function} {inner(right)}"
        case Call(function=function, arguments=arguments):
            return f"{function}({', '.join(_text(one, depth - 1) for one in arguments)})"
        case Lambda(parameters=parameters, body=body):
            names = ", ".join(name for name, _ in parameters)
            return f"{names if len(parameters) == 1 else f'({names})'} -> {_text(body, depth - 1)}"


def _literal_text(value: bool | float | str | None, kind: DataType) -> str:
    if value is None:
        return "NULL"
    if kind.kind == "string":
        return "'" + str(value).replace("'", "''") + "'"
    if kind.kind in ("date", "timestamp", "timestamp_ntz"):
        unit = datetime.timedelta(days=1) if kind.kind == "date" else datetime.timedelta(microseconds=1)
        moment = datetime.datetime(1970, 1, 1) + int(value) * unit  # noqa: DTZ001  # UTC
        return f"{kind.kind}'{moment.date() if kind.kind == 'date' else moment}'"
    if kind.kind == "interval":
        return f"interval {int(value) / 1_000_000:g} seconds"
    if kind.kind == "months":
        return f"interval {value} months"
    return str(value).lower() if kind.kind == "boolean" else str(value)
