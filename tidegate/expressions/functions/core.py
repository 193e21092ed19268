"""A function of the expression language as the planner sees it: how many arguments it takes, and a typing rule.

The pages in docs/expressions describe the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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
    """The name in the text, which may be an alias."""
    start: int

    @property
    def name(self) -> str:
        """The name under which the function is compiled."""
        return ALIASES.get(self.function, self.function)

    def call(self, kind: DataType, *arguments: Expression | str | int) -> Call:
        """Returns the typed call. Text and integers become literals."""
        return Call(self.name, tuple(map(_as_literal, arguments)), kind)

    def refuse(self, argument: Argument, wanted: str, target: DataType | None = None) -> ExpressionRefusal:
        """Returns the refusal of an argument by its type. The remedy is a cast to `target`, if possible."""
        given = "a lambda function" if argument.bind is not None else argument.type
        problem = f"`{self.function}` needs {wanted}, not {given}"
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

    def characters(self, argument: Argument) -> Expression:
        """Returns a string like `text`, but rejects binary, of which Spark would take the bytes."""
        if argument.type == BINARY:
            raise ExpressionRefusal(
                argument.start,
                f"`{self.function}` of bytes is not supported",
                f"write `cast({text_of(argument.expression)} as string)` for its characters",
            )
        return self.text(argument)

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
        return self._of(argument, (*INTEGRAL, "void"), INT, "an int")

    def bigint(self, argument: Argument) -> Expression:
        """Returns a bigint. Smaller integers are cast."""
        return self._of(argument, (*INTEGRAL, "void"), BIGINT, "an integer")

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

    def column(self, argument: Argument, wanted: str) -> Expression:
        """Accepts a value that can be part of a column: neither a bare NULL nor an interval."""
        if argument.type.kind in ("void", *INTERVALS):
            raise self.refuse(argument, wanted)
        return argument.expression

    def array(self, argument: Argument) -> DataType:
        """Accepts an array, and returns the type of its elements."""
        if argument.type.kind != "array" or argument.type.element is None:
            raise self.refuse(argument, "an array")
        return argument.type.element

    def map(self, argument: Argument) -> tuple[DataType, DataType]:
        """Accepts a map, and returns the types of keys and values."""
        if argument.type.key is None or argument.type.element is None:
            raise self.refuse(argument, "a map")
        return argument.type.key, argument.type.element

    def fixed_text(self, argument: Argument) -> str:
        """Returns the text of a string literal, for values that must be known before the first record."""
        expression = argument.expression
        if not isinstance(expression, Literal) or argument.type.kind != "string" or expression.value is None:
            raise ExpressionRefusal(
                argument.start, f"`{self.function}` needs a string literal here", "write the text in quotes"
            )
        return str(expression.value)

    def fixed_integer(self, argument: Argument) -> int:
        """Returns the number of an integer literal."""
        expression = argument.expression
        integral = argument.type.kind in ("tinyint", "smallint", "int")
        if not isinstance(expression, Literal) or not integral or expression.value is None:
            raise ExpressionRefusal(
                argument.start, f"`{self.function}` needs an integer literal here", "write the number itself"
            )
        return int(expression.value)

    def one_of(self, argument: Argument, known: Collection[str], what: str, fold: Callable[[str], str] = str) -> str:
        """Returns the text of a string literal that is one of `known` after `fold`."""
        text = fold(self.fixed_text(argument))
        if text not in known:
            raise ExpressionRefusal(argument.start, f"`{text}` is not {what}", "use one of " + ", ".join(known))
        return text


def _as_literal(value: Expression | str | int) -> Expression:
    if isinstance(value, str):
        return Literal(value, STRING)
    return Literal(value, INT) if isinstance(value, int) else value


Resolve = Callable[[Site, tuple[Argument, ...]], Expression]


@dataclass(frozen=True, slots=True)
class Function:
    """A function or operator. `resolve` types a call with `least` to `most` arguments, and may raise ExpressionRefusal.

    `lambdas`: arguments may be lambda functions, and `resolve` checks which ones are.
    """

    resolve: Resolve
    least: int
    most: int | None
    lambdas: bool = False

    def typed(self, site: Site, arguments: tuple[Argument, ...]) -> Expression:
        """Types a call. Raises ExpressionRefusal."""
        check_count(site, arguments, self.least, self.most)
        return self.resolve(site, arguments)


FUNCTIONS: dict[str, Function] = {}
"""By the name in `Call.function`. The other modules of this package fill it."""
ALIASES = {
    "mod": "%", "nvl": "coalesce", "ifnull": "coalesce", "ucase": "upper", "lcase": "lower", "len": "length",
    "char_length": "length", "character_length": "length", "substr": "substring", "position": "locate",
    "regexp_like": "rlike", "regexp": "rlike", "sha": "sha1", "printf": "format_string", "ceiling": "ceil",
    "pow": "power", "log": "ln", "signum": "sign", "dayofmonth": "day", "date_part": "extract", "datepart": "extract",
    "to_unix_timestamp": "unix_timestamp", "timediff": "timestampdiff", "dateadd": "date_add",
    "date_diff": "datediff", "cardinality": "size", "array_size": "size", "reduce": "aggregate",
}  # fmt: skip
"""Other names of functions."""


def resolves(*names: str, takes: int | tuple[int, int | None], lambdas: bool = False) -> Callable[[Resolve], Resolve]:
    """Registers a `Resolve` for these functions. `takes`: the number of arguments, or the least and the most."""
    least, most = takes if isinstance(takes, tuple) else (takes, takes)

    def register(resolve: Resolve) -> Resolve:
        for name in names:
            if name in FUNCTIONS:
                raise KeyError(f"two typing rules for {name}")
            FUNCTIONS[name] = Function(resolve, least, most, lambdas)
        return resolve

    return register


def simple(parameters: str, result: DataType, *names: str) -> None:
    """Registers functions that only need their arguments converted.

    `parameters` are names of `Site` methods; `?` after a name makes it optional.
    """
    words = parameters.split()
    methods = [word.rstrip("?") for word in words]

    @resolves(*names, takes=(sum(not word.endswith("?") for word in words), len(words)))
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        converted = zip(methods, arguments, strict=False)
        return site.call(result, *(getattr(site, method)(argument) for method, argument in converted))


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
