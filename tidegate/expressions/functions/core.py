"""What a function of the expression language is to the planner: a name, a documented signature, a typing rule."""

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
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Lambda, Literal, text_of
from tidegate.expressions.typing_rules import NUMERIC, common_type, derive_cast_remedy, with_type

_ATOMIC = (*NUMERIC, "decimal", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz", "void")
_TARGETS = {
    **dict.fromkeys(("numbers", "a number"), DOUBLE),
    **dict.fromkeys(("integers", "an integer"), BIGINT),
    **dict.fromkeys(("a string", "a string or binary"), STRING),
    "a timestamp": TIMESTAMP,
    "a date": DATE,
    "binary": BINARY,
}
"""By what a function needs, a type that it takes."""
_MOMENTS = ("timestamp", "timestamp_ntz", "date", "string", "void")


@dataclass(frozen=True, slots=True)
class Argument:
    """A typed argument and where it starts in the text.

    Of a lambda function `bind` gives the typed form for the types of its parameters, and `expression` is nothing.
    """

    expression: Expression
    start: int
    is_literal: bool = False
    """Whether it is written as a literal, and not a cast of one."""
    bind: Callable[[tuple[DataType, ...]], Lambda] | None = None
    lost: str = ""
    """Of a string literal: see `Token`."""

    @property
    def type(self) -> DataType:
        """The type of the expression."""
        return self.expression.type


@dataclass(frozen=True, slots=True)
class Site:
    """One place where a function is called: turns arguments into what the function needs, or refuses them there."""

    function: str
    start: int

    def refuse(self, argument: Argument, wanted: str, target: DataType | None = None) -> ExpressionRefusal:
        """The refusal of an argument by its type. The remedy is a cast to `target`, where there is one."""
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
        """Any type."""
        return argument.expression

    def text(self, argument: Argument) -> Expression:
        """A string; other atomic types are cast."""
        return self._of(argument, _ATOMIC, STRING, "a string")

    def bytes(self, argument: Argument) -> Expression:
        """A string or binary, as it is."""
        if argument.type == VOID:
            return Literal(None, STRING)
        if argument.type.kind not in ("string", "binary"):
            raise self.refuse(argument, "a string or binary")
        return argument.expression

    def double(self, argument: Argument) -> Expression:
        """A double; numbers and strings are cast."""
        return self._of(argument, (*NUMERIC, "string", "void", "decimal"), DOUBLE, "a number")

    def number(self, argument: Argument) -> Expression:
        """A number as it is; a string becomes a double."""
        if argument.type.kind in (*NUMERIC, "decimal"):
            return argument.expression
        return self.double(argument)

    def integer(self, argument: Argument) -> Expression:
        """An int; a bigint is cast and may overflow."""
        return self._of(argument, ("tinyint", "smallint", "int", "bigint", "void"), INT, "an int")

    def boolean(self, argument: Argument) -> Expression:
        """A boolean."""
        return self._of(argument, ("boolean", "void"), BOOLEAN, "a boolean")

    def timestamp(self, argument: Argument) -> Expression:
        """A timestamp; dates and strings are cast."""
        return self._of(argument, _MOMENTS, TIMESTAMP, "a timestamp")

    def moment(self, argument: Argument) -> Expression:
        """What can be cast to a timestamp of either kind, as it is."""
        if argument.type.kind not in _MOMENTS:
            raise self.refuse(argument, "a timestamp")
        return argument.expression

    def date(self, argument: Argument) -> Expression:
        """A date; timestamps and strings are cast."""
        return self._of(argument, _MOMENTS, DATE, "a date")

    def comparable(self, argument: Argument) -> None:
        """Refuse maps, which are neither equal nor different."""
        if holds_kind(argument.type, ("map",)):
            text = text_of(argument.expression)
            raise ExpressionRefusal(
                argument.start, "maps cannot be compared", f"compare values of keys: `{text}['key']`"
            )

    def array(self, argument: Argument) -> Expression:
        """An array."""
        if argument.type.kind != "array":
            raise self.refuse(argument, "an array")
        return argument.expression

    def fixed_text(self, argument: Argument) -> Expression:
        """A string literal: what must be known before the first record."""
        expression = argument.expression
        if not isinstance(expression, Literal) or argument.type.kind != "string" or expression.value is None:
            raise ExpressionRefusal(
                argument.start, f"`{self.function}` needs a string literal here", "write the text in quotes"
            )
        return expression

    def fixed_integer(self, argument: Argument) -> Expression:
        """An integer literal."""
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
    """`signature` and `summary` make docs/expressions.md; `resolve` types a call (it may raise `ExpressionRefusal`).

    `lambdas`: arguments may be lambda functions, and `resolve` looks at which of them are.
    """

    name: str
    group: str
    signature: str
    summary: str
    resolve: Resolve
    aliases: tuple[str, ...] = ()
    lambdas: bool = False


def simple(name: str, parameters: str, result: Result) -> Resolve:
    """The typing rule of an ordinary function.

    :param parameters: names of `Site` methods; `?` after one makes it optional, `*` repeats the last one.
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
    """Refuse a wrong number of arguments."""
    if len(arguments) >= least and (most is None or len(arguments) <= most):
        return
    wanted = str(least) if most == least else f"at least {least}" if most is None else f"{least} to {most}"
    raise ExpressionRefusal(
        site.start,
        f"`{site.function}` takes {wanted} argument{'s' * (wanted != '1')}, not {len(arguments)}",
        "see `tidegate docs expressions`",
    )


def unify(site: Site, arguments: tuple[Argument, ...]) -> tuple[Expression, ...]:
    """All arguments in their common type.

    :raises Refusal: at the first argument that has no type in common with those before it, and at text of a record
        beside another type: Spark casts it, and every record whose text is no such value would fail. Nothing in `a = 5`
        says that `a` is meant as a number; a text literal is known now.
    """
    kind = arguments[0].type
    for argument in arguments[1:]:
        found = common_type(kind, argument.type)
        if found is None:
            raise ExpressionRefusal(
                argument.start,
                f"`{site.function}`: {argument.type} does not go with {kind}",
                derive_cast_remedy(argument.expression, kind),
            )
        kind = found
    for argument in arguments:
        if argument.type == STRING and kind != STRING and not isinstance(argument.expression, Literal):
            text = text_of(argument.expression)
            raise ExpressionRefusal(
                argument.start,
                f"`{text}` is text beside {kind}: every record whose text is no {kind} would fail",
                f"write what is meant: `cast({text} as {kind})`, `try_cast({text} as {kind})` for NULL instead, or the "
                "other side as text",
            )
    return tuple(with_type(argument.start, argument.expression, kind) for argument in arguments)
