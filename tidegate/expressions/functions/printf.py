"""Typing rule of `format_string`."""

from __future__ import annotations

from tidegate.datatypes import STRING
from tidegate.expressions.errors import ExpressionRefusal
from tidegate.expressions.expression import Call, Expression, Literal
from tidegate.expressions.functions.core import Argument, Function, Site, check_count
from tidegate.expressions.printf import KINDS, FormatRefused, derive_format


def _format(site: Site, arguments: tuple[Argument, ...]) -> Expression:
    check_count(site, arguments, 1, None)
    literal = site.fixed_text(arguments[0])
    try:
        pieces = derive_format(str(literal.value) if isinstance(literal, Literal) else "")
    except FormatRefused as refused:
        raise ExpressionRefusal(
            arguments[0].start,
            f"the format has {refused}, which is not supported",
            "use %d %x %X %o %e %f %s %S %b %% %n",
        ) from refused
    for piece in pieces:
        if not piece.conversion:
            continue
        if piece.argument + 1 >= len(arguments):
            raise ExpressionRefusal(
                arguments[0].start, f"the format needs {piece.argument + 1} values", "add what is missing"
            )
        argument = arguments[piece.argument + 1]
        if argument.type.kind not in (*KINDS[piece.conversion], "void"):
            raise ExpressionRefusal(
                argument.start, f"`%{piece.conversion}` does not take {argument.type}", "cast it, to a string for %s"
            )
    return Call("format_string", (literal, *(site.any(argument) for argument in arguments[1:])), STRING)


FUNCTIONS = (
    Function(
        "format_string",
        "text",
        "format_string('%05d %s', a, b, ...)",
        "Values in a format of Java's: %d %x %X %o %e %f %s %S %b %% %n, with flags, width and precision.",
        _format,
        ("printf",),
    ),
)
