"""A function of the expression language as the planner sees it: a name, a documented signature, a typing rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegate.datatypes import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVALS,
    STRING,
    TIMESTAMP,
    VOID,
    DataType,
    holds_kind,
)
from tidegate.expressions.decimal_types import decimal_for, derive_result
from tidegate.expressions.errors import ExpressionRefusal, with_article
from tidegate.expressions.expression import Call, Expression, Lambda, Literal, text_of
from tidegate.expressions.typing_rules import (
    INTEGRAL,
    NUMERIC,
    common_type,
    derive_cast_remedy,
    literal_as_decimal,
    with_type,
)

_ATOMIC = (*NUMERIC, "decimal", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "void")
_TARGETS = {
    **dict.fromkeys(("numbers", "a number"), DOUBLE),
    **dict.fromkeys(("integers", "an integer"), BIGINT),
    **dict.fromkeys(("a string", "a string or binary"), STRING),
    "a timestamp": TIMESTAMP,
    "a date": DATE,
    "binary": BINARY,
}
"""An accepted type for each kind of requirement."""
_MOMENTS = ("timestamp", "timestamp_ntz", "date", "string", "void")


@dataclass(frozen=True, slots=True)
class Argument:
    """A typed argument and its offset in the text.

    For a lambda function, `bind` returns the typed form for given parameter types, and `expression` has no meaning.
    """

    expression: Expression
    start: int
    is_literal: bool = False
    """Whether it is written as a literal, as opposed to a cast of one."""
    bind: Callable[[tuple[DataType, ...]], Lambda] | None = None
    lost: str = ""
    """The lost escape of a string literal, as in `Token`."""

    @property
    def type(self) -> DataType:
        """The type of the expression."""
        return self.expression.type


@dataclass(frozen=True, slots=True)
class Site:
    """A function call at one place in the text. Its methods convert arguments as the function needs, or reject them."""

    function: str
    start: int

    def refuse(self, argument: Argument, wanted: str, target: DataType | None = None) -> ExpressionRefusal:
        """Returns the refusal of an argument by its type. The remedy is a cast to `target`, if possible."""
        problem = f"`{self.function}` needs {wanted}, not {argument.type}"
        if argument.type.kind == "interval":
            return ExpressionRefusal(argument.start, problem, "count whole units: `timestampdiff(SECOND, a, b)`")
        if argument.type.kind in INTERVALS:
            remedy = f"add it to a date or a timestamp: `ts + {text_of(argument.expression)}`"
            return ExpressionRefusal(argument.start, problem, remedy)
        return ExpressionRefusal(
            argument.start, problem, derive_cast_remedy(argument.expression, target or _TARGETS.get(wanted))
        )

    def _of(self, argument: Argument, kinds: tuple[str, ...], target: DataType, wanted: str) -> Expression:
        if argument.type.kind not in kinds:
            raise self.refuse(argument, wanted, target)
        return with_type(argument.start, argument.expression, target)

    def any(self, argument: Argument) -> Expression:
        """Accepts any type."""
        return argument.expression

    def text(self, argument: Argument) -> Expression:
        """Returns a string. Other atomic types are cast."""
        return self._of(argument, _ATOMIC, STRING, "a string")

    def bytes(self, argument: Argument) -> Expression:
        """Accepts a string or binary unchanged."""
        if argument.type == VOID:
            return Literal(None, STRING)
        if argument.type.kind not in ("string", "binary"):
            raise self.refuse(argument, "a string or binary")
        return argument.expression

    def double(self, argument: Argument) -> Expression:
        """Returns a double. Numbers and strings are cast."""
        return self._of(argument, (*NUMERIC, "string", "void", "decimal"), DOUBLE, "a number")

    def number(self, argument: Argument) -> Expression:
        """Accepts a number unchanged. A string is cast to double."""
        if argument.type.kind in (*NUMERIC, "decimal"):
            return argument.expression
        return self.double(argument)

    def integer(self, argument: Argument) -> Expression:
        """Returns an int. A bigint is cast and may overflow."""
        return self._of(argument, ("tinyint", "smallint", "int", "bigint", "void"), INT, "an int")

    def boolean(self, argument: Argument) -> Expression:
        """Accepts a boolean."""
        return self._of(argument, ("boolean", "void"), BOOLEAN, "a boolean")

    def timestamp(self, argument: Argument) -> Expression:
        """Returns a timestamp. Dates and strings are cast."""
        return self._of(argument, _MOMENTS, TIMESTAMP, "a timestamp")

    def moment(self, argument: Argument) -> Expression:
        """Accepts any value that can be cast to a timestamp of either kind, unchanged."""
        if argument.type.kind not in _MOMENTS:
            raise self.refuse(argument, "a timestamp")
        return argument.expression

    def date(self, argument: Argument) -> Expression:
        """Returns a date. Timestamps and strings are cast."""
        return self._of(argument, _MOMENTS, DATE, "a date")

    def comparable(self, argument: Argument) -> None:
        """Rejects maps, which cannot be compared."""
        if holds_kind(argument.type, ("map",)):
            text = text_of(argument.expression)
            raise ExpressionRefusal(
                argument.start, "maps cannot be compared", f"compare values of keys: `{text}['key']`"
            )

    def array(self, argument: Argument) -> Expression:
        """Accepts an array."""
        if argument.type.kind != "array":
            raise self.refuse(argument, "an array")
        return argument.expression

    def fixed_text(self, argument: Argument) -> Expression:
        """Accepts a string literal, for values that must be known before the first record."""
        expression = argument.expression
        if not isinstance(expression, Literal) or argument.type.kind != "string" or expression.value is None:
            raise ExpressionRefusal(
                argument.start, f"`{self.function}` needs a string literal here", "write the text in quotes"
            )
        return expression

    def fixed_integer(self, argument: Argument) -> Expression:
        """Accepts an integer literal."""
        expression = argument.expression
        integral = argument.type.kind in ("tinyint", "smallint", "int")
        if not isinstance(expression, Literal) or not integral or expression.value is None:
            raise ExpressionRefusal(
                argument.start, f"`{self.function}` needs an integer literal here", "write the number itself"
            )
        return with_type(argument.start, expression, INT)


Resolve = Callable[[Site, tuple[Argument, ...]], Expression]
Result = DataType | Callable[[tuple[Expression, ...]], DataType]


@dataclass(frozen=True, slots=True)
class Function:
    """A function. `signature` and `summary` are published in docs/expressions. `resolve` types a call, and may raise
    ExpressionRefusal.

    `lambdas`: arguments may be lambda functions, and `resolve` checks which ones are.
    """

    name: str
    group: str
    signature: str
    summary: str
    resolve: Resolve
    aliases: tuple[str, ...] = ()
    lambdas: bool = False


def simple(name: str, parameters: str, result: Result) -> Resolve:
    """Returns the typing rule of an ordinary function.

    `parameters` are names of `Site` methods; `?` after a name makes it optional, and `*` repeats the last one.
    """
    words = parameters.split()
    repeated = bool(words) and words[-1].endswith("*")
    required = sum(not word.endswith(("?", "*")) for word in words)
    methods = [word.rstrip("?*") for word in words]

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, required, None if repeated else len(words))
        wanted = methods + methods[-1:] * (len(arguments) - len(methods))
        typed: tuple[Expression, ...] = tuple(
            getattr(site, method)(argument) for method, argument in zip(wanted, arguments, strict=False)
        )
        return Call(name, typed, result if isinstance(result, DataType) else result(typed))

    return resolve


def check_count(site: Site, arguments: tuple[Argument, ...], least: int, most: int | None) -> None:
    """Raises ExpressionRefusal for a wrong number of arguments."""
    if len(arguments) >= least and (most is None or len(arguments) <= most):
        return
    wanted = str(least) if most == least else f"at least {least}" if most is None else f"{least} to {most}"
    raise ExpressionRefusal(
        site.start,
        f"`{site.function}` takes {wanted} argument{'s' * (wanted != '1')}, not {len(arguments)}",
        "see `tidegate docs expressions`",
    )


def unify(site: Site, arguments: tuple[Argument, ...]) -> tuple[Expression, ...]:
    """Returns all arguments in their common type.

    Raises ExpressionRefusal at the first argument that has no common type with those before it, and at a text column
    next to another type. Spark casts such a column, and every record whose text is not such a value would fail: nothing
    in `a = 5` shows that `a` is meant as a number. A text literal is allowed, because it is known now.
    """
    kind = arguments[0].type
    for argument in arguments[1:]:
        found = common_type(kind, argument.type)
        if found is None:
            raise ExpressionRefusal(
                argument.start,
                f"`{site.function}`: {argument.type} cannot be combined with {kind}",
                derive_cast_remedy(argument.expression, kind),
            )
        kind = found
    for argument in arguments:
        if argument.type == STRING and kind != STRING and not isinstance(argument.expression, Literal):
            text = text_of(argument.expression)
            raise ExpressionRefusal(
                argument.start,
                f"`{text}` is a string, but is used as {kind}: every record whose text is not {with_article(kind)} "
                "would fail",
                f"write the cast: `cast({text} as {kind})`, `try_cast({text} as {kind})` for NULL instead, or cast "
                "the other side to string",
            )
    return tuple(with_type(argument.start, argument.expression, kind) for argument in arguments)


def decimal_operand(argument: Argument, other: Argument) -> Argument:
    """Converts an integer literal next to a decimal to the smallest decimal that holds it, except a tinyint literal."""
    found = argument.expression
    if other.type.kind != "decimal" or argument.type.kind not in INTEGRAL[1:] or not argument.is_literal:
        return argument
    assert isinstance(found, Literal)
    return Argument(literal_as_decimal(found), argument.start)


def decimal_arithmetic(name: str, left: Argument, right: Argument) -> Call:
    """Types `+ - * / % div pmod` of two numbers, of which one is a decimal and none a float or double."""
    operands = (_as_decimal(left, right), _as_decimal(right, left))
    kind = BIGINT if name == "div" else derive_result(name, operands[0].type, operands[1].type)
    return Call(name, operands, kind)


def _as_decimal(argument: Argument, other: Argument) -> Expression:
    argument = decimal_operand(argument, other)
    kind = other.type if argument.type.kind == "void" else argument.type
    return with_type(argument.start, argument.expression, decimal_for(kind))
