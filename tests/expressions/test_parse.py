"""Expressions are parsed and typed, or refused with place and remedy."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tidegate.datatypes import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    DataType,
)
from tidegate.expressions.expression import (
    Call,
    Cast,
    ColumnReference,
    Expression,
    Literal,
    can_fail,
    columns_of,
    text_of,
)
from tidegate.expressions.functions import REGISTRY
from tidegate.expressions.parse import ExpressionError, parse_aggregate, parse_expression, parse_qualified

ADDRESS = DataType("struct", fields=(("city", STRING), ("Zip", INT)))
COLUMNS = {
    "id": BIGINT,
    "qty": INT,
    "amount": DOUBLE,
    "ratio": FLOAT,
    "name": STRING,
    "Name2": STRING,
    "paid": BOOLEAN,
    "at": TIMESTAMP,
    "day": DATE,
    "tags": DataType("array", element=STRING),
    "address": ADDRESS,
    "order": INT,
    "a.b": INT,
}


def refused(text: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text, COLUMNS)
    return caught.value


DIGITS = "9" * 5_000
"""More than Python makes a number of."""


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("id + qty", BIGINT),
        ("qty / 2", DOUBLE),
        ("null / 1.5", DOUBLE),
        ("1.5 / null", DataType("decimal", precision=8, scale=6)),
        ("qty * ratio", DOUBLE),
        ("round(amount / 1.2, 2)", DOUBLE),
        ("name || qty", STRING),
        ("amount >= 100", BOOLEAN),
        ("address.zip + 1", INT),
        ("tags[0]", STRING),
        ("at + interval 1 day", TIMESTAMP),
        ("day + 1", DATE),
        ("at - at > interval 1 hour", BOOLEAN),
        ("case when paid then qty else id end", BIGINT),
        ("cast(name as double)", DOUBLE),
        ("name::int", INT),
        ("split(name, ',')", DataType("array", element=STRING)),
        ("NAME", STRING),
        ("lpad(unhex(name), 3, ' ')", STRING),
        ("`order` + 1", INT),
        ("order", INT),
        ("count", STRING),
    ],
)
def test_the_type_of_an_expression_is_sparks(text: str, kind: DataType) -> None:
    columns = {**COLUMNS, "count": STRING}
    assert parse_expression(text, columns).type == kind


@pytest.mark.parametrize(
    "text",
    [
        r"name rlike '\\d+'",
        r"name rlike r'\d+\b'",
        r"name rlike 'it\'s \"a\" \n\t tab'",
        r"name rlike '\u0041\101'",
        r"name = '\d'",
        r"name like '50\%'",
        r"name = '\U0010ffff\U0001F600\ud83d'",
    ],
)
def test_escapes_that_keep_their_meaning_are_taken(text: str) -> None:
    assert parse_expression(text, COLUMNS).type == BOOLEAN


@pytest.mark.parametrize(
    ("text", "column", "problem", "remedy"),
    [
        ("amont + 1", 1, "no column `amont`", "did you mean `amount`?"),
        ("orders.qty + 1", 1, "no column `orders`", "write `qty`: the name of a column has no prefix"),
        ("1 + a.b", 5, "no column `a`", "the column `a.b` has a dot: write it in backticks"),
        ("qty as quantity", 5, "unexpected `as`", "leave it out: the name of a column is its key"),
        ("WHERE qty > 1", 1, "unexpected `WHERE`", "leave it out: this is an expression, not a statement"),
        ("*", 1, "unexpected `*`", '{"*": all}'),
        ("address.`*`", 9, "no field `*`", "Zip, city"),
        ("orders.*", 8, "unexpected `*`", '{"*": all}'),
        ("qty\u200b > 1", 4, "the invisible character U+200B", "remove it"),
        ("day = current_date", 7, "`current_date` returns another value at each call", "a timestamp of the record"),
        ("uuid()", 1, "`uuid` returns another value at each call", "`uuid5('url', s)`"),
        ("rand() < 0.1", 1, "`rand` returns another value at each call", "`pmod(xxhash64(id), 100)`"),
        (
            "monotonically_increasing_id()",
            1,
            "returns another value at each call",
            "`metadata: {partition: p, offset: o, topic: t}` of the source",
        ),
        ("hash(id)", 1, "no function `hash`", "`xxhash64(a, b)`"),
        (
            "count_if(paid)",
            1,
            "the aggregate function `count_if` is not allowed here",
            "`count(*) filter (where condition)`",
        ),
        ("address['zip']", 1, "`[]` needs an array, not struct<", "write `.zip`: the fields of a struct have names"),
        (r"name rlike '\d+'", 12, r"`\d` in a string literal is only `d`", r"write `\\d`"),
        (r"name rlike '\bann'", 12, r"`\b` in a string literal is a backspace", r"write `\\b`"),
        (r"regexp_replace(name, 'a', '\$1')", 27, r"`\$` in a string literal is only `$`", r"write `\\$`"),
        (r"regexp_extract(name, 'it''s \. here', 0)", 22, r"`\.` in a string literal is only `.`", r"write `\\.`"),
        ("name rlike 'a{,3}'", 12, "the pattern has `{` that is not a quantifier, which is", r"write '\\{'"),
        ("name rlike '(?x)a'", 12, "the pattern has the flags `(?x)`, which is not supported", "(?i) and (?s) alone"),
        ("name rlike '*.csv'", 12, "`*` without anything to repeat", r"for the character itself write '\\*'"),
        (r"name like 'C:\Udeadbeef%'", 14, r"there is no character `\Udeadbeef`", r"write `\\` for a backslash"),
        (r"name = 'é' 'a\U00110000'", 14, r"`\U00110000`; the last one is U+10FFFF", "for a backslash"),
        (f"name rlike 'a{{{DIGITS}}}'", 12, "more than 1000 repetitions", ""),
        (
            f"cast(qty as decimal({DIGITS}))",
            21,
            "a precision is a number from 1 to 38, not `999",
            "write decimal(18,2)",
        ),
        (
            f"cast(qty as decimal(38, {DIGITS}))",
            25,
            "a scale is a number from 0 to 38, not `999",
            "write decimal(18,2)",
        ),
        ("regexp_replace(name, 'a', '$')", 27, "the replacement has `$` without a group", r"write '\\$'"),
        ("split(name, '|')", 13, "can match an empty text", "write '[|]' for the character"),
        ("regexp_replace(name, '^', 'x')", 22, "can match an empty text", "write the text to match"),
        (
            "aggregate(transform(tags, t -> 1.25), 0.0, (a, x) -> a + x)",
            44,
            "the lambda function returns decimal(4,2), but `aggregate` needs decimal(1,1)",
            "start with a type that holds all results, `cast(0 as decimal(38,2))`, and cast each result to it",
        ),
        ("id + upperr(name)", 6, "no function `upperr`", "did you mean `upper`?"),
        ("translate(name, 'ab', 'ba')", 1, "no function `translate`", "for each, if no new character is an old one"),
        (
            "substring_index(name, '.', 2)",
            1,
            "no function",
            "`array_join(slice(split(s, '[.]'), 1, n), '.')`, or for -1 ",
        ),
        ("find_in_set('a', name)", 1, "no function `find_in_set`", "`array_position(split(s, ','), part)`"),
        ("strpos(name, 'x')", 1, "no function `strpos`", "use `instr(s, part)`"),
        ("regexp_counts(name, 'x')", 1, "no function `regexp_counts`", "did you mean `regexp"),
        ("json_array_lengths(name)", 1, "no function `json_array_lengths`", "did you mean `"),
        ("zzz(name)", 1, "no function `zzz`", "`tidegate docs expressions` lists all functions"),
        ("address.town", 9, "no field `town`", "Zip, city"),
        ("name.x", 6, "string has no fields", "only structs"),
        ("map('a', id).b", 14, "map<string, bigint> has no fields", "write `map('a', id)['b']` for the value of a key"),
        ("array(address).zip", 16, "`zip` of every element", "`transform(array(address), x -> x.zip)`"),
        ("cast(address as struct<zip: string>)", 17, "casts to a struct are not supported", "named_struct("),
        ("explode(tags)", 1, "no function `explode`", "a step of its own: `explode: {column: item}`"),
        ("paid + 1", 1, "`+` needs numbers, not boolean", "write `cast(paid as double)`"),
        ("id > 'abc'", 6, "'abc' is not a bigint", "same type"),
        ("amount = 'abc'", 10, "'abc' is not a double", "same type"),
        ("paid = 'maybe'", 8, "'maybe' is not a boolean", "same type"),
        ("day > '2026-02-30'", 7, "'2026-02-30' is not a date", "same type"),
        ("at > 'soon'", 6, "'soon' is not a timestamp", "same type"),
        ("at > '2026-01-01 00:00:00 Europe/Paris'", 6, "is not a timestamp", "same type"),
        ("cast('5.5' as int)", 1, "'5.5' is not an int", "correct the text"),
        ("cast('1,5' as float)", 1, "'1,5' is not a float", "correct the text"),
        ("id = '99999999999999999999'", 6, "is not a bigint", "correct the text"),
        ("name > 5", 1, "`name` is a string, but is used as bigint", "cast(name as bigint)"),
        ("5 <= name", 6, "`name` is a string, but is used as bigint", "try_cast"),
        ("id in (1, name)", 11, "`name` is a string, but is used as bigint", "cast(name as bigint)"),
        ("qty between name and 5", 13, "`name` is a string, but is used as", "cast"),
        (
            "upper(name) <=> amount",
            1,
            "`upper(name)` is a string, but is used as double",
            "cast the other side to string",
        ),
        ("coalesce(name, 0)", 10, "`name` is a string, but is used as bigint", "cast"),
        ("case name when 5 then 1 end", 6, "`name` is a string, but is used as bigint", "cast"),
        ("if(paid, day, name)", 15, "`name` is a string, but is used as date", "cast"),
        ("case when paid then amount else name end", 33, "`name` is a string, but is used as double", "cast"),
        ("name rlike '((a{1,100}){1,100}){1,100}'", 12, "multiply to more than", "without it"),
        ("cast(4e38 as float) + cast(1" + "0" * 39 + ".0 as float)", 28, "has more than 38 digits", "1.5D"),
        ("amount > 0." + "3" * 39, 10, "has more than 38 digits", "1.5D"),
        ("cast(12.5 as decimal(3,2))", 1, "12.5 does not fit into decimal(3,2)", "wider"),
        ("cast('x' as decimal(3,2))", 1, "'x' is not a decimal(3,2)", "correct"),
        ("cast(name as decimal(39,1))", 22, "a precision is a number from 1 to 38, not `39`", "decimal(18,2)"),
        ("cast(name as decimal(3,4))", 24, "a scale is a number from 0 to 3, not `4`", "decimal(18,2)"),
        ("1e999", 1, "`1e999` does not fit into double", "smaller"),
        ("1" * 5_000, 1, "the number has more than", "smaller"),
        ("id = '" + "9" * 5_000 + "'", 6, "is not a bigint", "correct"),
        ("case when paid then 1", 22, "ends too early", "expected WHEN, ELSE or END"),
        ("case when paid then 1 2 end", 23, "unexpected `2`", "CASE WHEN a THEN b ELSE c END"),
        ("case when paid then 1 else 2 3 end", 30, "unexpected `3`", "expected END"),
        ("cast(id as varchar(10))", 12, "the type `varchar` is not supported yet", "write `string`"),
        ("cast(id as strng)", 12, "`strng` is not a type", "did you mean"),
        ("null", 1, "bare NULL", "cast(null as string)"),
        ("at - at", 4, "interval cannot be a column", "`timestampdiff(SECOND, at, at)`"),
        ("now()", 1, "another value at each call", "timestamp of the record"),
        ("upper(distinct name)", 7, "DISTINCT is not supported in `upper`", "count(distinct x)"),
        ("sum(qty) + 1", 1, "aggregate function `sum`", "`key` and `aggregate`"),
        ("sum(qty) over (partition by id)", 1, "window function", "aggregate"),
        ("(select max(id) from x)", 1, "subquery", "step"),
        ("id in (select 1)", 7, "subquery", "step"),
        ("upper(t -> t)", 7, "`upper` does not take a lambda function", "tidegate docs expressions"),
        ("qty + (t -> t)", 8, "a lambda function is only allowed as an argument", "transform(a, x -> x + 1)"),
        ("transform(tags, qty)", 17, "`transform` needs a lambda function", "x -> x + 1"),
        ("transform(t -> t, tags)", 11, "needs an array, not a lambda function", "another type"),
        ("transform(tags, (t, i, j) -> t)", 17, "`transform` has 2 parameters", "leave the others out"),
        ("transform(tags, (t, T) -> t)", 17, "two parameters", "rename"),
        ("transform(tags, __tidegate_t -> 1)", 17, "begin with `__tidegate`", "rename"),
        ("transform(tags, t -> tt)", 22, "no column `tt`", "the columns are"),
        ("filter(tags, t -> length(t))", 14, "returns int, but `filter` needs boolean", "cast"),
        ("aggregate(tags, 0L, (n, t) -> 1)", 21, "returns int, but `aggregate` needs bigint", "cast"),
        ("aggregate(tags, 0, n -> 1)", 20, "needs 2 parameters", "(a, b)"),
        ("aggregate(tags, '', (s, t) -> s || t)", 17, "to string is not supported", "array_join"),
        ("array_append(tags, 5)", 20, "array<string> has no elements of type int", "cast"),
        ("array_sort(address)", 12, "`array_sort` needs an array", "another type"),
        ("repeat(name, 10001)", 14, "repeats a text at most 10,000 times", "smaller"),
        ("lpad(name, 10001, '-')", 12, "pads to at most 10,000 characters", "smaller"),
        ("array_repeat(name, 100000)", 20, "at most 10,000", "smaller"),
        ("regexp_extract_all(name, '^(a)')", 26, "not supported in `regexp_extract_all`", "group 0"),
        ("regexp_count(name, 'a*')", 20, "match an empty text", "+ instead"),
        ("try_add(at, 1)", 1, "timestamp + int is not defined", "`ts + 1 * interval 1 second`"),
        ("array_repeat(name, cast(null as int))", 20, "needs an integer literal", "number itself"),
        ("replace(name, cast(null as string), '')", 15, "needs a string literal", "quotes"),
        ("named_struct('a', interval 1 month)", 19, "needs a value that can be a column, not months", "to a date"),
        ("least(interval 1 month, interval 2 months)", 1, "cannot be used in `least`", "`ts + interval 1 months`"),
        ("nvl(qty)", 1, "`nvl` takes 2 arguments, not 1", "tidegate docs expressions"),
        ("ifnull(qty, 1, 2)", 1, "`ifnull` takes 2 arguments, not 3", "tidegate docs expressions"),
        ("upper(name, 2)", 1, "takes 1 argument, not 2", "tidegate docs expressions"),
        ("upper(*)", 7, "`*` is only allowed", "columns"),
        ("cast(name as money)", 14, "`money` is not a type", "decimal(p,s)"),
        ("cast(day as int)", 1, "date cannot be cast to int", "another"),
        ("qty +", 6, "the expression ends too early", "expected"),
        ("qty qty", 5, "unexpected `qty`", "put an operator before it"),
        ("name = 'abc", 8, "the quote ' is never closed", "close it"),
        ("coalesce(qty, paid)", 15, "boolean cannot be combined with int", "cast"),
        ("if(qty, 1, 2)", 4, "`if` needs a boolean, not int", "cast"),
        ("name rlike '(?=a)'", 12, "look-around", "without it"),
        (
            "substring(encode(name, 'utf-8'), 1, 2)",
            11,
            "`substring` of bytes is not supported",
            "as string)` for its characters",
        ),
        ("reverse(unhex(name))", 9, "`reverse` of bytes is not supported", "as string)` for its characters"),
        ("at + interval 'infinity' day", 6, "`infinity` is not a number", "write `interval 1 day`"),
        ("at + interval 'nan' second", 6, "`nan` is not a number", "write `interval 1 day`"),
        ("at + interval '1e999999999' second", 6, "`1e999999999` is not a number", "write `interval 1 day`"),
        ("at + interval '1_0' day", 6, "`1_0` is not a number", "write `interval 1 day`"),
        ("at + interval '999999999999999999999999999999' second", 6, "the interval is too long", "use a shorter one"),
        ("lpad(unhex(name), 10)", 6, "`lpad` of bytes is not supported", "as string)` for its characters"),
        ("rpad(unhex(name), 10)", 6, "`rpad` of bytes is not supported", "as string)` for its characters"),
        ("left(unhex(name), 1)", 6, "`left` of bytes is not supported", "as string)` for its characters"),
        ("name rlike qty", 12, "needs a string literal", "quotes"),
        ("regexp_replace(name, 'a*', '')", 22, "match an empty text", "+ instead"),
        (
            "regexp_extract(name, 'a(b|$)')",
            22,
            "`$` in group 1 is not supported by `regexp_extract`",
            "after the group",
        ),
        ("regexp_extract(name, '(a)', 2)", 22, "has no group 2", "group 0"),
        ("date_trunc('eon', at)", 12, "`eon` is not a unit", "year"),
        ("at + interval 1 fortnight", 6, "not a unit of an interval", "week"),
        ("date'2026-02-30'", 5, "is not a date", "2026-01-31"),
        ("element_at(tags, 0)", 18, "counts from 1", "`tags[0]`"),
        ("300Y", 1, "is not a tinyint", "wider"),
    ],
)
def test_a_refusal_says_place_problem_and_remedy(text: str, column: int, problem: str, remedy: str) -> None:
    error = refused(text)
    assert (error.line, error.column) == (1, column), error
    assert problem in error.problem
    assert remedy in error.remedy


def test_a_field_that_is_called_as_a_type_is_none_of_that_type() -> None:
    pages = DataType("array", element=DataType("struct", fields=(("mapped", STRING),)))
    assert parse_expression("array_distinct(pages)", {"pages": pages}).type == pages


def test_the_line_of_a_refusal_counts_line_ends() -> None:
    error = refused("qty > 1\n  and nme = 'x'")
    assert (error.line, error.column) == (2, 7)


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("amount = ' 1.5e3f '", Literal(1500.0, DOUBLE)),
        ("paid = 'Yes'", Literal(True, BOOLEAN)),
        ("day >= '2026'", Literal(20454, DATE)),
        ("at < '1970-01-02T00:00:00.5+01'", Literal(82_800_500_000, TIMESTAMP)),
        ("name = cast(5 as string)", Cast(Literal(5, INT), STRING)),
        ("amount < 'NaN'", Cast(Literal("NaN", STRING), DOUBLE)),
    ],
)
def test_X14_a_text_literal_becomes_the_value_that_it_is_compared_with(text: str, literal: Expression) -> None:
    found = parse_expression(text, COLUMNS)
    assert isinstance(found, Call)
    assert found.arguments[1] == literal


@pytest.mark.parametrize(
    "text", ["name + 1", "abs(name)", "year(name)", "amount * name", "sum(name)", "concat(name, 5)"]
)
def test_text_where_the_function_says_what_is_meant_is_cast_as_in_spark(text: str) -> None:
    found = parse_aggregate(text, COLUMNS) if text.startswith("sum") else parse_expression(text, COLUMNS)
    assert found.type.kind != "void"


@pytest.mark.parametrize("text", ["cast(1.2 as float)", "try_cast(1.2 as float)"])
def test_X14_a_decimal_literal_becomes_the_nearest_float(text: str) -> None:
    assert parse_expression(text, {}) == Literal(1.2000000476837158, FLOAT)


@pytest.mark.parametrize(
    "text",
    [
        "amount > 1.5",
        "amount * 1.2",
        "1.5 - amount",
        "coalesce(amount, 0.0)",
        "round(amount / 1.2, 2)",
        "amount in (1.5, 2)",
    ],
)
def test_a_decimal_literal_next_to_a_double_is_that_double_so_that_digests_stay(text: str) -> None:
    doubles = re.sub(r"(\d\.\d)", r"\1D", text)
    assert parse_expression(text, COLUMNS) == parse_expression(doubles, COLUMNS)


def test_an_integer_column_is_compared_with_the_integer_next_to_a_decimal_literal() -> None:
    assert parse_expression("qty > 1.5", COLUMNS) == parse_expression("qty > cast(1 as bigint)", COLUMNS)


def test_an_exact_column_name_wins_over_one_of_another_case() -> None:
    assert parse_expression("Name", {"name": INT, "Name": STRING}) == ColumnReference("Name", STRING)


def test_an_ambiguous_column_name_is_refused() -> None:
    with pytest.raises(ExpressionError, match="may be any of"):
        parse_expression("NAME", {"name": INT, "Name": STRING})


def test_implicit_casts_are_nodes_and_literals_are_converted() -> None:
    assert parse_expression("qty + id", COLUMNS) == Call(
        "+", (Cast(ColumnReference("qty", INT), BIGINT), ColumnReference("id", BIGINT)), BIGINT
    )
    assert parse_expression("id + 1", COLUMNS) == Call("+", (ColumnReference("id", BIGINT), Literal(1, BIGINT)), BIGINT)


@pytest.mark.parametrize(
    "text", ["(" * 200 + "1" + ")" * 200, "-" * 300 + "qty", "1" + " + 1" * 200, "x" * 10_001, "not " * 5000 + "paid"]
)
def test_size_and_depth_are_bounded(text: str) -> None:
    columns = {**COLUMNS, "x": INT}
    try:
        parse_expression(text, columns)
    except ExpressionError:
        return
    assert text.startswith("not ")  # NOT NOT x is x


def test_an_expression_survives_json() -> None:
    expression = parse_expression("case when qty > 1 then upper(address.city) else cast(id as string) end", COLUMNS)
    assert msgspec.json.decode(msgspec.json.encode(expression), type=Expression) == expression


def test_columns_and_text_of_an_expression() -> None:
    expression = parse_expression("(id + qty) * 2 > 5 and name like 'a%'", COLUMNS)
    assert columns_of(expression) == {"id", "qty", "name"}
    assert text_of(expression) == "(id + qty) * 2 > 5 and name like 'a%'"
    assert len(text_of(parse_expression(" || ".join(["name"] * 50), COLUMNS))) <= 120


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("qty + 1", True),
        ("amount + 1", False),
        ("amount / 2", False),
        ("id / 0", True),
        ("id / null", True),
        ("id / qty", True),
        ("id / (qty + 1) / 2", True),
        ("id % -7 + 0.5D", False),
        ("id div 7", False),
        ("id div -1", True),
        ("pmod(id, 3)", False),
        ("pmod(id, qty)", True),
        ("name::int", True),
        ("try_cast(name as int)", False),
        ("id::string", False),
        ("upper(name) = 'A'", False),
        ("tags[0]", True),
        ("qty::bigint", False),
    ],
)
def test_can_fail_tells_whether_a_record_may_fail(text: str, fails: bool) -> None:
    assert can_fail(parse_expression(text, COLUMNS)) is fails


_SIGNS = "( ) [ ] , . :: 1 2L 'a' ' null and case when then end is cast as int day * -> ; ` \\ x'A é /* -- between not"
_WORDS = [*sorted(REGISTRY), *COLUMNS, *_SIGNS.split(" "), "\n", "\x00"]


@settings(max_examples=100 * DEPTH, deadline=None)
@given(st.lists(st.sampled_from(_WORDS), max_size=14).map(" ".join) | st.text(max_size=30))
@example("0E")
@example("3e + 1")
@example("1e99999999999BD")
def test_any_text_is_typed_or_refused_within_itself(text: str) -> None:
    try:
        expression = parse_expression(text, COLUMNS)
    except ExpressionError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        assert 1 <= error.column <= len(text) + 1
    else:
        assert expression.type not in (INTERVAL, DataType("void"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("day + interval 1 day", DATE),
        ("day - interval 2 weeks", DATE),
        ("day + (- interval '1' day)", DATE),
        ("day + interval 24 hours", TIMESTAMP),
        ("interval 1 day 0 hours + day", TIMESTAMP),
        ("at + (interval 1 day + interval 1 day)", TIMESTAMP),
        ("at - at > interval 1 day", BOOLEAN),
        ("day + (day - day)", DATE),
        ("day - (interval 1 day + interval 1 day)", DATE),
        ("day + interval 1 day * 2", TIMESTAMP),
        ("day + coalesce(interval 1 month, interval 1 year)", DATE),
        ("coalesce(at - at, interval 1 day) > interval 1 hour", BOOLEAN),
        ("if(at > day, interval 1 day, null) > interval 2 hours", BOOLEAN),
    ],
)
def test_a_date_plus_an_interval_of_days_or_months_is_a_date(text: str, kind: DataType) -> None:
    assert parse_expression(text, {"day": DATE, "at": TIMESTAMP}).type == kind


@pytest.mark.parametrize(
    "word", ["call", "show", "fetch", "execute", "rename", "explain", "prepare", "optimize", "vacuum", "copy", "cache"]
)
def test_a_column_that_is_called_like_a_command_may_begin_an_expression(word: str) -> None:
    """Such words begin statements of SQL, and are no keywords within an expression."""
    for text, kind in (("{} = 'out'", STRING), ("{} is not null", INT), ("{} / 1000 > 5", DOUBLE)):
        columns = {word: kind}
        plain, quoted = (parse_expression(text.format(name), columns) for name in (word, f"`{word}`"))
        assert columns_of(plain) == columns_of(quoted) == {word}
        assert plain == quoted


@pytest.mark.parametrize(
    ("text", "column", "problem"),
    [
        ("id + 'a", 6, "the quote ' is never closed"),
        ("id /* more", 4, "the comment is never closed"),
        ("id\u200b + 1", 3, "the invisible character U+200B"),
        ("id + 1.5x", 6, "`1.5x` is not a number"),
        ("id === 1", 4, "unexpected `===`"),
        ("id group by name", 4, "unexpected `group`"),
    ],
)
def test_text_that_has_no_tokens_is_refused_at_its_place(text: str, column: int, problem: str) -> None:
    assert (refused(text).column, refused(text).problem) == (column, problem)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("id /* a -- b */ + 1 -- c", "id + 1"),
        ("1abc + 1", "`1abc` + 1"),
        ("name = R'a\\d'", "name = 'a\\\\d'"),
        ("name = 'a' \"b\"", "name = 'ab'"),
        ("name = 'it''s'", "name = 'it\\'s'"),
        ("id\u00a0+\n1L", "id + 1L"),
        ("`a.b`*1.e1", "`a.b` * 10D"),
    ],
)
def test_text_of_the_same_tokens_is_the_same_expression(text: str, same: str) -> None:
    columns = {**COLUMNS, "1abc": INT}
    assert parse_expression(text, columns) == parse_expression(same, columns)


INPUTS = {
    "order": {"id": BIGINT, "at": TIMESTAMP, "tags": DataType("array", element=BIGINT), "address": ADDRESS},
    "payment": {"amount": DOUBLE, "At": TIMESTAMP},
}


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("payment.amount > 0", {"payment.amount"}),
        ("ORDER.ID + 1", {"order.id"}),
        ("order.address.zip = payment.amount", {"order.address", "payment.amount"}),
        ("transform(order.tags, order -> order + 1)", {"order.tags"}),
        ("transform(order.tags, x -> x + order.id)", {"order.tags", "order.id"}),
    ],
)
def test_columns_of_several_inputs_are_written_with_their_alias(text: str, columns: set[str]) -> None:
    assert columns_of(parse_qualified(text, INPUTS, {})) == columns


@pytest.mark.parametrize(
    ("text", "column", "problem", "remedy"),
    [
        ("1 + ordr.id", 5, "there is no input `ordr`", "did you mean `order`?"),
        ("refund.id", 1, "there is no input `refund`", "the inputs are order, payment"),
        ("payment.amunt", 9, "`payment` has no column `amunt`", "did you mean `amount`?"),
        ("at", 1, "there is no column `at`", "write `order.at` or `payment.At`"),
        ("amont", 1, "there is no column `amont`", "write `payment.amount`"),
        ("coalesce(order, 1)", 10, "`order` is an input, not a column", "name a column of it, as `order.id`"),
    ],
)
def test_a_column_that_no_input_has_is_refused_with_its_place(
    text: str, column: int, problem: str, remedy: str
) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse_qualified(text, INPUTS, {})
    assert (refused.value.column, refused.value.problem, refused.value.remedy) == (column, problem, remedy)
