"""The parser from the text of an expression to a typed `Expression`, or an error with line, column and remedy. Pure;
does not use Polars.

`tokens.py` splits the text and `syntax.py` builds the tree. This module resolves names and types with the registry in
`functions`. `tidegate.expressions.compiled` compiles the result.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from tidegate.datatypes import VOID, DataType
from tidegate.expressions.aggregates import AGGREGATES, derive_aggregate_names, resolve_aggregate, resolve_nulls
from tidegate.expressions.errors import ExpressionError, ExpressionRefusal
from tidegate.expressions.expression import (
    AggregateCall,
    Call,
    ColumnReference,
    Expression,
    FieldAccess,
    Lambda,
    Literal,
    children_of,
    text_of,
    with_source,
)
from tidegate.expressions.functions import REGISTRY, Argument, Function, Site
from tidegate.expressions.functions.text import GROUP
from tidegate.expressions.intervals import MONTHS, TAKING_MONTHS
from tidegate.expressions.syntax import OF_OTHER_ROWS, derive_syntax
from tidegate.expressions.syntax_tree import Apply, Arrow, CastTo, Constant, Member, Name, Qualified, Star, Syntax
from tidegate.expressions.typing_rules import derive_output_type, with_type

MAX_NODES = 2_000
MAX_TREE_DEPTH = 150
CHANGING = {
    **dict.fromkeys(
        ("now", "current_timestamp", "current_date", "curdate", "localtimestamp"), "use a timestamp of the record"
    ),
    **dict.fromkeys(("rand", "random", "randn"), "use a hash of the record: `pmod(xxhash64(id), 100)`"),
    "uuid": "use `uuid5('url', s)` of a text of the record",
    **dict.fromkeys(
        ("monotonically_increasing_id", "spark_partition_id", "input_file_name"),
        "use `metadata: {partition: p, offset: o, topic: t}` of the source",
    ),
}
"""Functions whose value would differ in a replay, and their replacements."""
_WITHOUT_BRACKETS = frozenset({"current_timestamp", "current_date", "localtimestamp"})
"""Functions that Spark calls without parentheses."""
NEAR_FUNCTION = 0.72
"""The similarity from which a name counts as a misspelling. `soundex` is not similar enough to `unhex` (0.67)."""
MIN_PART = 4
"""The minimum length of a word that is searched for in other names."""
ELSEWHERE = {
    **OF_OTHER_ROWS,
    "strpos": "`instr(s, part)`",
    "charindex": "`locate(part, s)`",
    "find_in_set": "`array_position(split(s, ','), part)`",
    "to_char": "`date_format(ts, 'yyyy-MM-dd')` or `cast(n as string)`",
    "to_varchar": "`cast(a as string)`",
    "to_number": "`cast(s as decimal(18,2))`",
    "int": "`cast(a as int)`",
    "bigint": "`cast(a as bigint)`",
    "double": "`cast(a as double)`",
    "string": "`cast(a as string)`",
    "try_to_number": "`try_cast(s as decimal(18,2))`",
    "make_interval": "`make_ym_interval` for years and months, or `make_dt_interval` for shorter units",
    "iif": "`if(c, a, b)`",
    "zip_with": "`transform(a, (x, i) -> x + get(b, i))`, which has the length of `a`",
    "map_from_arrays": "`map_from_entries(transform(keys, (k, i) -> named_struct('key', k, 'value', values[i])))`",
    "str_to_map": "`map_from_entries(transform(split(s, ';'), p -> named_struct('key', split_part(p, ':', 1), 'value', "
    "split_part(p, ':', 2))))`",
    "map_concat": "`map_from_entries(concat(map_entries(a), map_entries(b)))`",
    "any_match": "`exists(a, x -> x > 0)`",
    "all_match": "`forall(a, x -> x > 0)`",
    "format_number": "`format_string('%,.2f', d)`, which rounds half up",
    "json_tuple": "`get_json_object(s, '$.name')` for each",
    "schema_of_json": "`from_json(s, 'a int, b string')` with the schema that you know",
    "try_parse_url": "`parse_url(s, 'HOST')`, which fails the record for text that is not a URL",
    "pi": "`acos(-1)`",
    "zeroifnull": "`coalesce(a, 0)`",
    "hash": "`xxhash64(a, b)`",
    "sha256": "`sha2(s, 256)`",
    "translate": "`replace(s, 'a', 'b')` for each, if no new character is an old one",
    "substring_index": "`array_join(slice(split(s, '[.]'), 1, n), '.')`, or for -1 `split_part(s, '.', -1)`",
    "array_length": "`size(a)`",
    "struct": "`named_struct('name', value)`",
    "explode": "a step of its own: `explode: {column: item}`",
    "explode_outer": "a step of its own: `explode: {column: item, outer: true}`",
    "posexplode": "a step of its own: `explode: {column: item, position: n}`",
}
"""Function names from other engines, or from Spark but not supported here, and their replacements."""
TOTALS_ELSEWHERE = {
    **dict.fromkeys(("count_if", "countif"), "`count(*) filter (where condition)`"),
    "sum_if": "`sum(x) filter (where condition)`",
    **dict.fromkeys(("median", "percentile", "percentile_cont"), "`percentile_approx(x, 0.5)`, of a window"),
    **dict.fromkeys(("string_agg", "listagg", "group_concat"), "`collect_list(x)` of a window, then `array_join`"),
    "count_distinct": "`count(distinct x)`",
    "sum_distinct": "`collect_set(x)` of a window, then `aggregate`",
}
"""Aggregate functions from other engines, and their replacements."""

__all__ = [
    "ExpressionError",
    "check_alone",
    "find_remarks",
    "parse_aggregate",
    "parse_expression",
    "parse_qualified",
    "qualified_name",
]


def parse_expression(text: str, columns: Mapping[str, DataType]) -> Expression:
    """Parses one Spark SQL expression over `columns`.

    Raises ExpressionError for a syntax error, an unknown column or function, types that do not fit, or an expression
    that is too large.
    """
    return _placed(text, lambda: _output(text, columns))


def parse_qualified(
    text: str, inputs: Mapping[str, Mapping[str, DataType]], columns: Mapping[str, DataType]
) -> Expression:
    """Parses one Spark SQL expression over columns of several inputs, which are written `alias.column`, and `columns`.

    The expression reads a column of an input from one that is named by `qualified_name`. Raises ExpressionError like
    `parse_expression`.
    """
    return _placed(text, lambda: _output(text, columns, inputs))


def qualified_name(alias: str, column: str) -> str:
    """Returns the name of the column that holds a column of a named input."""
    return f"{alias}.{column}"


def parse_aggregate(text: str, columns: Mapping[str, DataType], *, windowed: bool = False) -> AggregateCall:
    """Parses one call of an aggregate function over an expression: `count(*)`, `sum(net * 2)`. Types are those of
    Spark.

    `windowed`: the call is computed over a window; only some functions have running totals. Raises ExpressionError like
    `parse_expression`, or if the text is not one call of an aggregate function.
    """
    return _placed(text, lambda: _aggregate(text, columns, windowed=windowed))


def names_in(text: str) -> frozenset[str]:
    """Returns the columns that a text names, whether they exist or not; none if the text is not an expression."""
    try:
        return frozenset(_names_in(derive_syntax(text)))
    except (ExpressionRefusal, RecursionError):
        return frozenset()


def _names_in(tree: Syntax) -> set[str]:
    match tree:
        case Name(name=name):
            return {name}
        case Member(base=operand) | CastTo(operand=operand):
            return _names_in(operand)
        case Arrow(parameters=parameters, body=body):
            return _names_in(body) - set(parameters)
        case Apply(arguments=arguments):
            return {name for argument in arguments for name in _names_in(argument)}
        case Qualified(call=call, condition=condition):
            return _names_in(call) | (_names_in(condition) if condition is not None else set())
    return set()


def check_alone(text: str, *, aggregate: bool) -> None:
    """Checks an expression whose columns are unknown: its grammar, and whether its functions exist.

    Raises ExpressionError for the first problem.
    """
    _placed(text, lambda: _check_functions(derive_syntax(text), aggregate=aggregate))


def find_remarks(text: str) -> tuple[ExpressionError, ...]:
    """Returns remarks on what is valid but probably not meant; none if the text is not an expression."""
    try:
        return tuple(remark.within(text) for remark in _remarks(derive_syntax(text)))
    except (ExpressionRefusal, RecursionError):
        return ()


def _remarks(tree: Syntax) -> Iterator[ExpressionRefusal]:
    match tree:
        case Member(base=inner) | CastTo(operand=inner) | Arrow(body=inner):
            yield from _remarks(inner)
        case Apply(function=function, arguments=arguments):
            if function == "regexp_replace" and len(arguments) == 3 and isinstance(arguments[2], Constant):
                yield from _groups(arguments[2])
            for argument in arguments:
                yield from _remarks(argument)


def _groups(replacement: Constant) -> Iterator[ExpressionRefusal]:
    found = GROUP.search(f"{replacement.value}") or GROUP.search(replacement.lost)
    if found:
        problem = f"`{found[0]}` in a replacement is the text `{found[1]}`, not a group"
        yield ExpressionRefusal(replacement.start, problem, f"write `${found[1]}` for the group")


_T = TypeVar("_T")


def _placed(text: str, parse: Callable[[], _T]) -> _T:
    try:
        return parse()
    except ExpressionRefusal as refusal:
        raise refusal.within(text) from None
    except RecursionError:
        raise ExpressionRefusal(0, "the expression is nested too deeply", "split it into two steps").within(
            text
        ) from None


def _output(
    text: str, columns: Mapping[str, DataType], inputs: Mapping[str, Mapping[str, DataType]] | None = None
) -> Expression:
    tree = derive_syntax(text)
    return derive_output_type(tree.start, _bounded(tree.start, _Scope(text, columns, inputs=inputs).typed(tree)))


def _check_functions(tree: Syntax, *, aggregate: bool = False) -> None:
    match tree:
        case Member(base=operand) | CastTo(operand=operand) | Arrow(body=operand):
            _check_functions(operand)
        case Apply(start=start, function=name, arguments=arguments):
            allowed = name in REGISTRY or (aggregate and name in AGGREGATES)
            if not allowed:
                raise _unknown_function(start, name)
            for argument in arguments:
                if not isinstance(argument, Star):
                    _check_functions(argument)
        case Qualified(start=start, call=call, condition=condition):
            _check_functions(call, aggregate=aggregate)
            if call.function in REGISTRY:
                raise _not_qualified(start, call.function)
            if condition is not None:
                _check_functions(condition)


def _not_qualified(start: int, name: str) -> ExpressionRefusal:
    remedy = "only aggregate functions take them: leave it out"
    return ExpressionRefusal(start, f"`{name}` does not take FILTER or IGNORE NULLS", remedy)


def _bounded(start: int, expression: Expression) -> Expression:
    nodes, level = 0, [expression]
    for _ in range(MAX_TREE_DEPTH):
        nodes += len(level)
        if nodes > MAX_NODES:
            raise ExpressionRefusal(start, f"the expression has more than {MAX_NODES} parts", "split it into two steps")
        level = [child for one in level for child in children_of(one)]
        if not level:
            return expression
    raise ExpressionRefusal(start, f"the expression is deeper than {MAX_TREE_DEPTH}", "split it into two steps")


class _Scope:
    """The columns that an expression can refer to, and the parameters of the enclosing lambda functions."""

    def __init__(
        self,
        text: str,
        columns: Mapping[str, DataType],
        parameters: Mapping[str, DataType] | None = None,
        inputs: Mapping[str, Mapping[str, DataType]] | None = None,
    ) -> None:
        """`inputs`: the columns of each named input, if columns are written `alias.column`."""
        self._text = text
        self._columns = columns
        self._parameters = parameters or {}
        self._inputs = inputs

    def typed(self, tree: Syntax) -> Expression:
        """Returns the typed form of a syntax tree. Raises ExpressionRefusal."""
        match tree:
            case Constant(value=value, type=kind):
                return Literal(value, kind)
            case Name(start=start, name=name):
                return self._named(start, name)
            case Member(start=start, base=base, name=name):
                if isinstance(base, Name) and self._inputs is not None and not _is_known(base.name, self._parameters):
                    return self._qualified(base, start, name, self._inputs)
                if isinstance(base, Name):
                    self._refuse_qualified(base, name)
                return _field(start, self.typed(base), name)
            case CastTo(start=start, operand=operand, type=kind, attempt=attempt, span=span):
                return with_source(with_type(start, self.typed(operand), kind, attempt=attempt), self._source(span))
            case Star(start=start):
                raise ExpressionRefusal(start, "`*` is only allowed in count(*)", "name the columns")
            case Apply(start=start, function=name, arguments=arguments, span=span):
                function = REGISTRY.get(name)
                if function is None:
                    raise _unknown_function(start, name)
                typed = tuple(self._argument(function, name, argument) for argument in arguments)
                found = function.typed(Site(name, start), typed)
                if isinstance(found, Call):
                    _refuse_months(start, name, found)
                return with_source(found, self._source(span))
            case Qualified(start=start, call=call):
                if call.function in REGISTRY:
                    raise _not_qualified(start, call.function)
                raise _unknown_function(call.start, call.function)
            case Arrow(start=start):
                raise ExpressionRefusal(start, "a lambda function is not allowed here", "name a column")

    def _source(self, span: tuple[int, int]) -> str:
        """Returns the text of a span on one line."""
        written = self._text[slice(*span)]
        return " ".join(written.split()) if "\n" in written else written

    def _named(self, start: int, name: str) -> Expression:
        for parameter, kind in self._parameters.items():
            if parameter.lower() == name.lower():
                return ColumnReference(parameter, kind)
        if name.lower() in _WITHOUT_BRACKETS and not _is_known(name, self._columns):
            raise _unknown_function(start, name.lower())
        if self._inputs is not None and not _is_known(name, self._columns):
            raise _unqualified(start, name, self._inputs)
        found = _find(start, name, self._columns, "column")
        return ColumnReference(found, self._columns[found])

    def _qualified(
        self, base: Name, start: int, name: str, inputs: Mapping[str, Mapping[str, DataType]]
    ) -> ColumnReference:
        """Returns the column of a named input."""
        alias = _find(base.start, base.name, inputs, "input")
        try:
            column = _find(start, name, inputs[alias], "column")
        except ExpressionRefusal as refusal:
            raise ExpressionRefusal(start, f"`{alias}` has no column `{name}`", refusal.remedy) from None
        return ColumnReference(qualified_name(alias, column), inputs[alias][column])

    def _refuse_qualified(self, base: Name, name: str) -> None:
        """Rejects `orders.id` if `id` is a column, and `a.b` if a column has that name."""
        if _is_known(base.name, self._columns) or _is_known(base.name, self._parameters):
            return
        message = f"there is no column `{base.name}`"
        if _is_known(f"{base.name}.{name}", self._columns):
            raise ExpressionRefusal(
                base.start, message, f"the column `{base.name}.{name}` has a dot: write it in backticks"
            )
        if _is_known(name, self._columns):
            raise ExpressionRefusal(base.start, message, f"write `{name}`: the name of a column has no prefix")

    def _argument(self, function: Function, called: str, tree: Syntax) -> Argument:
        if isinstance(tree, Constant):
            return Argument(self.typed(tree), tree.start, is_literal=True, lost=tree.lost)
        if not isinstance(tree, Arrow):
            return Argument(self.typed(tree), tree.start)
        if not function.lambdas:
            raise ExpressionRefusal(
                tree.start, f"`{called}` does not take a lambda function", "see `tidegate docs expressions`"
            )

        def bind(kinds: tuple[DataType, ...]) -> Lambda:
            """Returns the lambda function over parameters of these types. It may omit the last ones."""
            if len(tree.parameters) > len(kinds):
                raise ExpressionRefusal(
                    tree.start,
                    f"`{called}` has {len(kinds)} parameters for its lambda function",
                    "leave the others out",
                )
            own = dict(zip(tree.parameters, kinds, strict=False))
            hidden = {name.lower() for name in own}
            around = {name: kind for name, kind in self._parameters.items() if name.lower() not in hidden}
            body = _Scope(self._text, self._columns, own | around, self._inputs).typed(tree.body)
            return Lambda(tuple(own.items()), body, body.type)

        return Argument(Literal(None, VOID), tree.start, bind=bind)


def _unqualified(start: int, name: str, inputs: Mapping[str, Mapping[str, DataType]]) -> ExpressionRefusal:
    """Returns the error for a column without an alias."""
    if _is_known(name, inputs):
        alias = _find(start, name, inputs, "input")
        remedy = f"name a column of it, as `{alias}.{next(iter(inputs[alias]), 'id')}`"
        return ExpressionRefusal(start, f"`{name}` is an input, not a column", remedy)
    known = [(alias, column) for alias, columns in inputs.items() for column in columns]
    folded = [column.lower() for _, column in known]
    near = difflib.get_close_matches(name.lower()[:100], folded, n=1, cutoff=0.6)
    found = [f"`{alias}.{column}`" for alias, column in known if column.lower() in near]
    remedy = f"write {' or '.join(found)}" if found else f"write `input.column`; the inputs are {', '.join(inputs)}"
    return ExpressionRefusal(start, f"there is no column `{name}`", remedy)


def _refuse_months(start: int, name: str, call: Call) -> None:
    """Rejects intervals of months, except as arguments of the few functions that take them."""
    for argument in call.arguments:
        if argument.type == MONTHS and call.function not in TAKING_MONTHS:
            remedy = f"add it to a date or a timestamp: `ts + {text_of(argument)}`"
            raise ExpressionRefusal(start, f"an interval of months cannot be used in `{name}`", remedy)


def _field(start: int, base: Expression, name: str) -> Expression:
    if base.type.kind == "array" and base.type.element is not None and base.type.element.kind == "struct":
        text = text_of(base)
        remedy = f"take one element, `{text}[0].{name}`, or all of them, `transform({text}, x -> x.{name})`"
        raise ExpressionRefusal(start, f"`{name}` of every element of an array is not supported", remedy)
    if base.type.kind != "struct":
        remedy = (
            f"write `{text_of(base)}['{name}']` for the value of a key"
            if base.type.kind == "map"
            else "only structs have fields"
        )
        raise ExpressionRefusal(start, f"{base.type} has no fields, so no `{name}`", remedy)
    fields = dict(base.type.fields)
    found = _find(start, name, fields, "field")
    return FieldAccess(base, found, fields[found])


def _find(start: int, name: str, known: Collection[str], what: str) -> str:
    """Finds a column or field by name: an exact match first, then one that ignores case (as Spark does)."""
    if name in known:
        return name
    folded = [one for one in known if one.lower() == name.lower()]
    if len(folded) > 1:
        raise ExpressionRefusal(start, f"`{name}` may be any of {', '.join(sorted(folded))}", "write the exact name")
    if folded:
        return folded[0]
    raise ExpressionRefusal(start, f"there is no {what} `{name}`", _did_you_mean(name, known, f"the {what}s are"))


def _is_known(name: str, known: Iterable[str]) -> bool:
    return name.lower() in map(str.lower, known)


def _unknown_function(start: int, name: str) -> ExpressionRefusal:
    if name in AGGREGATES:
        return ExpressionRefusal(
            start, f"the aggregate function `{name}` is not allowed here", "use a step with `key` and `aggregate`"
        )
    if name in CHANGING:
        return ExpressionRefusal(
            start, f"`{name}` returns another value at each call, so a replay would differ", CHANGING[name]
        )
    if name in TOTALS_ELSEWHERE:
        remedy = f"use {TOTALS_ELSEWHERE[name]} in `aggregate` of a step with `key`"
        return ExpressionRefusal(start, f"the aggregate function `{name}` is not allowed here", remedy)
    return ExpressionRefusal(start, f"there is no function `{name}`", _other_function(name))


def _other_function(name: str) -> str:
    """Returns the replacement for another engine's name, otherwise similar names, otherwise names that share a word."""
    if name in ELSEWHERE:
        return f"use {ELSEWHERE[name]}"
    words = [one for one in REGISTRY if one.isidentifier()]
    near = difflib.get_close_matches(name[:100], words, n=1, cutoff=NEAR_FUNCTION)
    parts = {part for part in name[:100].split("_") if len(part) >= MIN_PART}
    shared = {one: len(parts.intersection(one.split("_"))) for one in words}
    near = near or sorted((one for one in words if shared[one]), key=lambda one: (-shared[one], len(one)))[:3]
    if near:
        return "did you mean " + " or ".join(f"`{one}`" for one in near) + "?"
    return "`tidegate docs expressions` lists all functions"


def _did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    folded = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower()[:100], list(folded), n=1, cutoff=0.6)
    if near:
        return f"did you mean `{folded[near[0]]}`?"
    shown = sorted(folded.values())[:12]
    return (
        f"{otherwise} {', '.join(shown)}{' ...' if len(folded) > len(shown) else ''}"
        if shown
        else "there are none here"
    )


def _no_aggregate(tree: Syntax, *, windowed: bool) -> ExpressionRefusal:
    names = derive_aggregate_names(windowed=windowed)
    if isinstance(tree, Apply) and tree.function not in REGISTRY:
        near = difflib.get_close_matches(tree.function[:100], AGGREGATES, n=1, cutoff=NEAR_FUNCTION)
        remedy = f"did you mean `{near[0]}`?" if near else f"use one of {names}"
        if tree.function in TOTALS_ELSEWHERE:
            remedy = f"use {TOTALS_ELSEWHERE[tree.function]}"
        return ExpressionRefusal(tree.start, f"there is no aggregate function `{tree.function}`", remedy)
    return ExpressionRefusal(tree.start, "this is not a single call of an aggregate function", f"use one of {names}")


def _aggregate(text: str, columns: Mapping[str, DataType], *, windowed: bool) -> AggregateCall:
    tree = derive_syntax(text)
    call = tree.call if isinstance(tree, Qualified) else tree
    if not isinstance(call, Apply) or call.function not in AGGREGATES:
        raise _no_aggregate(call, windowed=windowed)
    scope = _Scope(text, columns)
    arguments: list[Argument] = []
    for argument in call.arguments:
        if not isinstance(argument, Star):
            typed = _bounded(argument.start, scope.typed(argument))
            arguments.append(Argument(typed, argument.start, is_literal=isinstance(argument, Constant)))
        elif call.function != "count" or len(call.arguments) > 1:
            raise ExpressionRefusal(
                argument.start, "`*` is only allowed in count(*)", f"name a column: {call.function}(x)"
            )
    if not call.arguments:
        raise ExpressionRefusal(
            call.start, f"`{call.function}` takes an argument", "add an argument, or write `count(*)`"
        )
    found = resolve_aggregate(call.function, call.start, tuple(arguments), windowed=windowed)
    if not isinstance(tree, Qualified):
        return found
    if tree.condition is not None:
        found = msgspec.structs.replace(found, condition=_condition(tree.condition, scope))
    return (
        found
        if tree.ignore_nulls is None
        else resolve_nulls(found, call.function, tree.start, ignore=tree.ignore_nulls)
    )


def _condition(tree: Syntax, scope: _Scope) -> Expression:
    condition = _bounded(tree.start, scope.typed(tree))
    if condition.type.kind != "boolean":
        problem = f"FILTER needs a boolean, not {condition.type}"
        raise ExpressionRefusal(tree.start, problem, "compare it with something, for instance `x > 0`")
    return condition
