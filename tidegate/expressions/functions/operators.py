"""Typing rules of operators, CASE and the functions for NULL, some of which are rewritten in terms of others."""

from __future__ import annotations

from tidegate.datatypes import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTERVALS,
    STRING,
    TIMESTAMP,
    VOID,
    DataType,
)
from tidegate.expressions.errors import ExpressionRefusal, with_article
from tidegate.expressions.expression import Call, Cast, Expression, Literal, text_of
from tidegate.expressions.functions.core import (
    Argument,
    Site,
    check_count,
    decimal_arithmetic,
    decimal_operand,
    resolves,
    simple,
    unify,
)
from tidegate.expressions.functions.intervals import TIME_KINDS, negate_interval, scale_interval, time_arithmetic
from tidegate.expressions.text_values import date_of_text, timestamp_of_text
from tidegate.expressions.typing_rules import (
    INTEGRAL,
    NUMERIC,
    common_type,
    rounded_decimal,
    with_type,
)

simple("any", BOOLEAN, "isnull", "isnotnull")
simple("double", BOOLEAN, "isnan")


@resolves("+", "-", "*", "/", "%", "div", takes=2)
def _arithmetic(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    name = site.name
    left, right = arguments
    kinds = {left.type.kind, right.type.kind}
    if name in ("+", "-") and not kinds.isdisjoint(TIME_KINDS):
        return time_arithmetic(site, left, right)
    if name in ("*", "/") and not kinds.isdisjoint(INTERVALS):
        return scale_interval(site, left, right)
    kind = _arithmetic_type(site, left, right)
    if kind.kind == "decimal" and (name != "/" or left.type != VOID):  # NULL / 1.5 is a double in Spark
        return decimal_arithmetic(name, left, right)
    if name == "div" and kind.kind not in INTEGRAL:
        raise site.refuse(left if left.type.kind not in INTEGRAL else right, "integers")
    if name == "div":
        kind = BIGINT
    operands = [with_type(argument.start, argument.expression, kind) for argument in arguments]
    if name == "/":  # text first becomes a bigint if the other side is an integer, so '1.5' / 2 fails
        operands = [with_type(site.start, operand, DOUBLE) for operand in operands]
        kind = DOUBLE
    return site.call(kind, *operands)


def _arithmetic_type(site: Site, left: Argument, right: Argument) -> DataType:
    for argument in (left, right):
        if argument.type.kind not in (*NUMERIC, "string", "void", "decimal"):
            raise site.refuse(argument, "numbers")
    kind = common_type(left.type, right.type)
    if kind is None or kind.kind not in (*NUMERIC, "decimal"):
        raise site.refuse(left, "numbers")
    return kind


@resolves("negative", "positive", takes=1)
def _sign(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    negates = site.name == "negative"
    if arguments[0].type.kind in INTERVALS:
        return negate_interval(arguments[0]) if negates else arguments[0].expression
    operand = site.number(arguments[0])
    return site.call(operand.type, operand) if negates else operand


@resolves("&", "|", "^", takes=2)
@resolves("~", takes=1)
def _bits(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    for argument in arguments:
        if argument.type.kind not in INTEGRAL:
            raise site.refuse(argument, "integers")
    operands = unify(site, arguments)
    return site.call(operands[0].type, *operands)


@resolves("=", "!=", "<", "<=", ">", ">=", "<=>", takes=2)
def _comparison(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return _compared(site, site.name, *arguments)


def _compared(site: Site, name: str, left: Argument, right: Argument) -> Expression:
    if name not in ("=", "<=>", "!=") and {left.type.kind, right.type.kind} & {"struct", "array"}:
        raise site.refuse(left, "values that have an order")
    for argument in (left, right):
        site.comparable(argument)
    left, right = _with_integer_bound(name, left, right)
    left, right = decimal_operand(left, right), decimal_operand(right, left)
    operands = unify(site, (left, right))
    if name == "!=":
        return Call("not", (Call("=", operands, BOOLEAN),), BOOLEAN)
    return Call(name, operands, BOOLEAN)


def _with_integer_bound(name: str, left: Argument, right: Argument) -> tuple[Argument, Argument]:
    """Replaces the decimal literal of `n > 1.5`, with an integer n, by the equivalent integer bound."""
    for value, bound, upper in ((left, right, (">=", "<")), (right, left, ("<=", ">"))):
        literal = bound.expression
        if (
            value.type.kind in INTEGRAL
            and isinstance(literal, Literal)
            and bound.type.kind == "decimal"
            and literal.value is not None
            and name in ("<", "<=", ">", ">=")
        ):
            number = rounded_decimal(literal, up=name in upper)
            if not -(1 << 63) <= number < 1 << 63:
                raise ExpressionRefusal(bound.start, f"{literal.value} exceeds bigint", "compare with a smaller number")
            whole = Argument(Literal(number, BIGINT), bound.start)
            return (value, whole) if value is left else (whole, value)
    return left, right


@resolves("and", "or", takes=2)
@resolves("not", takes=1)
def _logic(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    return site.call(BOOLEAN, *map(site.boolean, arguments))


@resolves("between", takes=3)
def _between(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    value, low, high = arguments
    return Call("and", (_compared(site, ">=", value, low), _compared(site, "<=", value, high)), BOOLEAN)


@resolves("in", takes=(2, None))
def _in(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    operands = unify(site, arguments)
    site.comparable(arguments[0])
    return site.call(BOOLEAN, *operands)


@resolves("case", takes=(2, None))
@resolves("if", takes=3)
def _case(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    """Types CASE (condition, value, ..., default). Values get their common type; without ELSE the default is NULL."""
    conditions = arguments[0 : len(arguments) - len(arguments) % 2 : 2]
    values = (*arguments[1::2], *(arguments[-1:] if len(arguments) % 2 else ()))
    typed = unify(site, values)
    default = typed[len(conditions) :] or (Literal(None, typed[0].type),)
    parts: list[Expression] = []
    for condition, value in zip(conditions, typed, strict=False):
        parts += [site.boolean(condition), value]
    return Call("case", (*parts, *default), typed[0].type)


@resolves("coalesce", takes=(1, None))
def _coalesce(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if site.function in ("nvl", "ifnull"):
        check_count(site, arguments, 2, 2)
    operands = unify(site, arguments)
    return site.call(operands[0].type, *operands)


@resolves("nullif", takes=2)
def _nullif(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    first = arguments[0].expression
    return Call("case", (_compared(site, "=", *arguments), Literal(None, first.type), first), first.type)


@resolves("nvl2", takes=3)
def _nvl2(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    present = Call("isnotnull", (arguments[0].expression,), BOOLEAN)
    return _case(site, (Argument(present, arguments[0].start), *arguments[1:]))


@resolves("date literal", "timestamp literal", "timestamp_ntz literal", takes=1)
def _literal(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    kind, text = DataType(site.name.removesuffix(" literal")), site.fixed_text(arguments[0])
    value = date_of_text(text) if kind == DATE else timestamp_of_text(text, zone=kind == TIMESTAMP)
    if value is None:
        example = "2026-01-31" if kind == DATE else "2026-01-31 12:00:00"
        problem = f"'{text}' is not {with_article(kind)}"
        raise ExpressionRefusal(arguments[0].start, problem, f"write `{kind}'{example}'`")
    return Literal(value, kind)


_TRIED = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/", "try_mod": "%"}


@resolves(*_TRIED, takes=2)
def _try(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    """Types `try_add` and the like: the operator, but NULL if it has no result or a text is not a number. An operand
    that itself fails still fails.
    """
    sign = _TRIED[site.name]
    found = _arithmetic(Site(sign, site.start), arguments)
    times = {argument.type.kind for argument in arguments} & set(TIME_KINDS)
    if times or not isinstance(found, Call) or found.function != sign:
        raise _not_tried(site, sign, arguments)
    return site.call(found.type, *_attempted(found.arguments, arguments))


def _not_tried(site: Site, sign: str, arguments: tuple[Argument, ...]) -> ExpressionRefusal:
    left, right = (text_of(argument.expression) for argument in arguments)
    remedy = f"write `{left} {sign} {right}`, which fails the record where it has no result"
    return ExpressionRefusal(site.start, f"`{site.function}` of these types is not supported", remedy)


def _attempted(operands: tuple[Expression, ...], arguments: tuple[Argument, ...]) -> tuple[Expression, ...]:
    """Returns the operands, with NULL for text that is not a number if it is cast because the other side is one."""
    return tuple(
        _attempt(operand, argument.expression) if argument.type == STRING else operand
        for operand, argument in zip(operands, arguments, strict=True)
    )


def _attempt(operand: Expression, text: Expression) -> Expression:
    if not isinstance(operand, Cast):
        return operand
    inner = operand.operand if operand.operand is text else _attempt(operand.operand, text)
    return Cast(inner, operand.type, attempt=True)


@resolves("nanvl", takes=2)
def _nan_value(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if arguments[0].type == FLOAT and arguments[1].type in (FLOAT, VOID):
        return site.call(FLOAT, *(with_type(one.start, one.expression, FLOAT) for one in arguments))
    return site.call(DOUBLE, *map(site.double, arguments))


@resolves("||", "concat", takes=(1, None))
def _concatenation(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    if all(argument.type.kind == "array" for argument in arguments):
        arrays = unify(site, arguments)
        return Call("array_concat", arrays, arrays[0].type)
    if all(argument.type.kind == "binary" for argument in arguments):
        raise ExpressionRefusal(
            site.start, f"`{site.function}` of binaries is not supported", "cast one of them to string"
        )
    return Call("concat", tuple(map(site.text, arguments)), STRING)
