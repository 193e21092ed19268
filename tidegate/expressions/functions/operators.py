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
    TIMESTAMP_NTZ,
    VOID,
    DataType,
)
from tidegate.expressions.errors import ExpressionRefusal, with_article
from tidegate.expressions.expression import Call, Cast, Expression, Literal, text_of
from tidegate.expressions.functions.core import (
    Argument,
    Function,
    Resolve,
    Site,
    check_count,
    decimal_arithmetic,
    decimal_operand,
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


def _arithmetic(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
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
        return Call(name, tuple(operands), kind)

    return resolve


def _arithmetic_type(site: Site, left: Argument, right: Argument) -> DataType:
    for argument in (left, right):
        if argument.type.kind not in (*NUMERIC, "string", "void", "decimal"):
            raise site.refuse(argument, "numbers")
    kind = common_type(left.type, right.type)
    if kind is None or kind.kind not in (*NUMERIC, "decimal"):
        raise site.refuse(left, "numbers")
    return kind


def _sign(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1, 1)
        if arguments[0].type.kind in INTERVALS:
            return negate_interval(arguments[0]) if name == "negative" else arguments[0].expression
        operand = site.number(arguments[0])
        return operand if name == "positive" else Call(name, (operand,), operand.type)

    return resolve


def _bits(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1 if name == "~" else 2, 1 if name == "~" else 2)
        for argument in arguments:
            if argument.type.kind not in INTEGRAL:
                raise site.refuse(argument, "integers")
        operands = unify(site, arguments)
        return Call(name, operands, operands[0].type)

    return resolve


def _comparison(name: str) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
        left, right = arguments
        if name not in ("=", "<=>", "!=") and {left.type.kind, right.type.kind} & {"struct", "array"}:
            raise site.refuse(left, "values that have an order")
        for argument in arguments:
            site.comparable(argument)
        left, right = _with_integer_bound(name, left, right)
        left, right = decimal_operand(left, right), decimal_operand(right, left)
        operands = unify(site, (left, right))
        if name == "!=":
            return Call("not", (Call("=", operands, BOOLEAN),), BOOLEAN)
        return Call(name, operands, BOOLEAN)

    return resolve


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


def _logic(name: str) -> Resolve:
    count = 1 if name == "not" else 2

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, count, count)
        return Call(name, tuple(map(site.boolean, arguments)), BOOLEAN)

    return resolve


def _between(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 3)
    value, low, high = arguments
    at_least = _comparison(">=")(site, (value, low))
    at_most = _comparison("<=")(site, (value, high))
    return Call("and", (at_least, at_most), BOOLEAN)


def _in(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, None)
    operands = unify(site, arguments)
    site.comparable(arguments[0])
    return Call("in", operands, BOOLEAN)


def _case(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    """Types CASE (condition, value, ..., default). Values get their common type; without ELSE the default is NULL."""
    check_count(site, arguments, 2, None)
    conditions = arguments[0 : len(arguments) - len(arguments) % 2 : 2]
    values = (*arguments[1::2], *(arguments[-1:] if len(arguments) % 2 else ()))
    typed = unify(site, values)
    default = typed[len(conditions) :] or (Literal(None, typed[0].type),)
    parts: list[Expression] = []
    for condition, value in zip(conditions, typed, strict=False):
        parts += [site.boolean(condition), value]
    return Call("case", (*parts, *default), typed[0].type)


def _if(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 3)
    return _case(site, arguments)


def _coalesce(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    two = site.function in ("nvl", "ifnull")
    check_count(site, arguments, 2 if two else 1, 2 if two else None)
    operands = unify(site, arguments)
    return Call("coalesce", operands, operands[0].type)


def _nullif(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    first = site.any(arguments[0])
    return Call("case", (_comparison("=")(site, arguments), Literal(None, first.type), first), first.type)


def _nvl2(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 3, 3)
    present = Call("isnotnull", (site.any(arguments[0]),), BOOLEAN)
    return _case(site, (Argument(present, arguments[0].start), *arguments[1:]))


def _literal(kind: DataType) -> Resolve:
    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 1, 1)
        literal = arguments[0].expression
        text = str(literal.value) if isinstance(literal, Literal) else ""
        value = date_of_text(text) if kind == DATE else timestamp_of_text(text, zone=kind == TIMESTAMP)
        if value is None:
            example = "2026-01-31" if kind == DATE else "2026-01-31 12:00:00"
            raise ExpressionRefusal(
                arguments[0].start, f"'{text}' is not {with_article(kind)}", f"write `{kind}'{example}'`"
            )
        return Literal(value, kind)

    return resolve


def _try_divide(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    quotient = _arithmetic("/")(Site("/", site.start), arguments)
    if not isinstance(quotient, Call) or quotient.function != "/":
        raise _not_tried(site, "/", arguments)
    if quotient.type.kind == "decimal":
        return Call("try_divide", quotient.arguments, quotient.type)
    operands = _attempted(quotient.arguments, arguments)
    zero = Call("=", (operands[1], Literal(0.0, DOUBLE)), BOOLEAN)
    return Call("case", (zero, Literal(None, DOUBLE), Call("/", operands, DOUBLE)), DOUBLE)


def _try(name: str) -> Resolve:
    """Types `try_add` and the like: the operator, but NULL if it has no result or a text is not a number. An operand
    that itself fails still fails.
    """
    sign = _TRIED[name]

    def resolve(site: Site, arguments: tuple[Argument, ...]) -> Expression:
        check_count(site, arguments, 2, 2)
        found = _arithmetic(sign)(Site(sign, site.start), arguments)
        times = {argument.type.kind for argument in arguments} & set(TIME_KINDS)
        if times or not isinstance(found, Call) or found.function != sign:
            raise _not_tried(site, sign, arguments)
        return Call(name, _attempted(found.arguments, arguments), found.type)

    return resolve


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


_TRIED = {"try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_mod": "%"}


def _nan_value(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 2, 2)
    if arguments[0].type == FLOAT and arguments[1].type in (FLOAT, VOID):
        return Call("nanvl", tuple(with_type(one.start, one.expression, FLOAT) for one in arguments), FLOAT)
    return Call("nanvl", tuple(map(site.double, arguments)), DOUBLE)


def _concatenation(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, None)
    if all(argument.type.kind == "array" for argument in arguments):
        arrays = unify(site, arguments)
        return Call("array_concat", arrays, arrays[0].type)
    if all(argument.type.kind == "binary" for argument in arguments):
        raise ExpressionRefusal(
            site.start, f"`{site.function}` of binaries is not supported", "cast one of them to string"
        )
    return Call("concat", tuple(map(site.text, arguments)), STRING)


FUNCTIONS = (
    Function(
        "+",
        "operators",
        "a + b",
        "Sum; an integer overflow fails the record. Also date + int, timestamp + interval.",
        _arithmetic("+"),
    ),
    Function(
        "-",
        "operators",
        "a - b",
        "Difference; also timestamp - interval, and timestamp - timestamp for comparing with an interval.",
        _arithmetic("-"),
    ),
    Function("*", "operators", "a * b", "Product; an integer overflow fails the record.", _arithmetic("*")),
    Function(
        "/",
        "operators",
        "a / b",
        "Quotient, a decimal or a double; zero fails the record.",
        _arithmetic("/"),
    ),
    Function(
        "%",
        "operators",
        "a % b",
        "Remainder with the sign of a; division by zero fails the record.",
        _arithmetic("%"),
        ("mod",),
    ),
    Function("div", "operators", "a div b", "Integer quotient, rounded towards zero, a bigint.", _arithmetic("div")),
    Function("negative", "operators", "-a", "The negated number.", _sign("negative")),
    Function("positive", "operators", "+a", "The number itself.", _sign("positive")),
    Function("&", "operators", "a & b", "Bitwise and of integers.", _bits("&")),
    Function("|", "operators", "a | b", "Bitwise or of integers.", _bits("|")),
    Function("^", "operators", "a ^ b", "Bitwise exclusive or of integers.", _bits("^")),
    Function("~", "operators", "~a", "Bitwise not of an integer.", _bits("~")),
    Function("=", "operators", "a = b, a == b", "Equal; NULL if either is NULL. NaN equals NaN.", _comparison("=")),
    Function("!=", "operators", "a != b, a <> b", "Not equal.", _comparison("!=")),
    Function("<", "operators", "a < b", "Less.", _comparison("<")),
    Function("<=", "operators", "a <= b", "Less or equal.", _comparison("<=")),
    Function(">", "operators", "a > b", "Greater; NaN is greater than any number.", _comparison(">")),
    Function(">=", "operators", "a >= b", "Greater or equal.", _comparison(">=")),
    Function(
        "<=>",
        "operators",
        "a <=> b",
        "Equal, where NULL equals NULL; also `a is not distinct from b`.",
        _comparison("<=>"),
    ),
    Function("and", "operators", "a and b", "Three-valued; b is not evaluated if a is false.", _logic("and")),
    Function("or", "operators", "a or b", "Three-valued; b is not evaluated if a is true.", _logic("or")),
    Function("not", "operators", "not a, !a", "Three-valued.", _logic("not")),
    Function("between", "operators", "a [not] between b and c", "b <= a and a <= c.", _between),
    Function("in", "operators", "a [not] in (b, c, ...)", "Equal to one of them; NULL if that is unknown.", _in),
    Function("||", "operators", "a || b", "Concatenation, as `concat`.", _concatenation),
    Function("date literal", "operators", "date'2026-01-31'", "A date constant.", _literal(DATE)),
    Function(
        "timestamp literal",
        "operators",
        "timestamp'2026-01-31 12:00:00'",
        "A timestamp constant, in UTC or with an offset.",
        _literal(TIMESTAMP),
    ),
    Function(
        "timestamp_ntz literal",
        "operators",
        "timestamp_ntz'2026-01-31 12:00:00'",
        "A date and a time of day without zone; an offset is ignored.",
        _literal(TIMESTAMP_NTZ),
    ),
    Function(
        "case",
        "conditions",
        "case when c then a [...] [else b] end",
        "The first branch whose condition is true; others are not evaluated.",
        _case,
    ),
    Function("if", "conditions", "if(c, a, b)", "a if c is true, else b.", _if),
    Function(
        "coalesce",
        "conditions",
        "coalesce(a, b, ...)",
        "The first value that is not NULL.",
        _coalesce,
        ("nvl", "ifnull"),
    ),
    Function("nullif", "conditions", "nullif(a, b)", "NULL if a equals b, else a.", _nullif),
    Function("nvl2", "conditions", "nvl2(a, b, c)", "b if a is not NULL, else c.", _nvl2),
    Function(
        "isnull", "conditions", "a is [not] null, isnull(a)", "Whether a is NULL.", simple("isnull", "any", BOOLEAN)
    ),
    Function("isnotnull", "conditions", "isnotnull(a)", "Whether a is not NULL.", simple("isnotnull", "any", BOOLEAN)),
    Function(
        "isnan", "conditions", "isnan(a)", "Whether a is NaN; false for NULL.", simple("isnan", "double", BOOLEAN)
    ),
    Function("nanvl", "conditions", "nanvl(a, b)", "b if a is NaN, else a.", _nan_value),
    *(
        Function(name, "operators", f"{name}(a, b)", f"a {sign} b, or NULL if it fails.", _try(name))
        for name, sign in _TRIED.items()
    ),
    Function(
        "try_divide",
        "operators",
        "try_divide(a, b)",
        "a / b, or NULL if b is zero or the result does not fit.",
        _try_divide,
    ),
    Function(
        "concat",
        "text",
        "concat(a, b, ...)",
        "All texts, or all arrays, concatenated; NULL if one is NULL.",
        _concatenation,
    ),
)
