"""A trial of expressions before anything runs: compiled as in the slots, and run on no row and on one row of NULLs.

`python -m tidegate.expressions.compiled.probe` reads a JSON list of expressions and writes a JSON list of texts: the
problem of each expression, or an empty text. It is a separate process: a process that starts Spark must not have loaded
Polars, and an expression that crashes the process must not crash the daemon.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec
import polars as pl

from tidegate.expressions.compiled.compiler import compile_projection
from tidegate.expressions.expression import Call, Expression, Lambda, children_of, column_types_of, columns_of
from tidegate.expressions.secrets import find_secrets, put_stand_ins
from tidegate.formats.bisection import first_line
from tidegate.formats.columns import polars_type

_DECIDED_BY_FIRST = frozenset({"and", "or", "case", "coalesce"})
"""Functions of which only the first argument is evaluated for every record."""


def find_problem(expression: Expression) -> str:
    """Returns why an expression cannot be run, or fails every record that reaches it; empty if no problem is known."""
    try:
        expression = put_stand_ins(expression)
        compiled = compile_projection([("value", expression)])
        kinds = column_types_of(expression)
        schema = {name: polars_type(kind) for name, kind in kinds.items()} | {"__tidegate_offset": pl.Int64()}
        for height in (0, 1):
            found, _ = compiled.apply(pl.DataFrame({name: [None] * height for name in schema}, schema=schema))
            if found["value"].dtype != polars_type(expression.type):
                return f"is computed as {found['value'].dtype} instead of {expression.type}"
        return next((failure for part in _constants(expression) if (failure := _failure(part))), "")
    except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001  # any error is a finding
        return f"cannot be computed: {type(error).__name__}: {first_line(error)}"


def _constants(expression: Expression) -> Iterator[Expression]:
    """Yields the largest parts without columns that are evaluated for every record, unless a NULL comes before them.

    Parts that contain a secret are omitted: what is decrypted with the key is not known here.
    """
    if isinstance(expression, Lambda):
        return
    if not columns_of(expression) and next(find_secrets(expression), None) is None:
        yield expression
        return
    children = children_of(expression)
    decided = isinstance(expression, Call) and expression.function in _DECIDED_BY_FIRST
    for child in children[:1] if decided else children:
        yield from _constants(child)


def _failure(constant: Expression) -> str:
    _, failures = compile_projection([("value", constant)]).apply(pl.DataFrame({"__tidegate_offset": [0]}))
    return f"fails for every record: {failures[0]}" if failures else ""


def main() -> None:
    """Reads expressions from standard input and writes their problems to standard output."""
    expressions = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Expression])
    sys.stdout.buffer.write(msgspec.json.encode([find_problem(expression) for expression in expressions]))


if __name__ == "__main__":
    main()
