"""Generator of docs/expressions.md and the pages in docs/expressions: the expression language, from the registry.

`python -m tidegate.expressions.functions.reference` writes the pages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from tidegate.expressions.aggregates import AGGREGATES, AggregateFunction
from tidegate.expressions.functions import FUNCTIONS, Function

DOCS: Final = Path(__file__).parents[3] / "docs"
_GENERATED: Final = "<!-- Generated: `python -m tidegate.expressions.functions.reference`. Do not edit. -->\n"

_OVERVIEW: Final = r"""
These settings take expressions in Spark SQL's syntax: `where`, `select`, `route` and `aggregate` of steps,
`headers.add` and `topic.expression` of sinks, and `--where` of `tidegate state read`. Expressions run on columns, with
Spark's results in ANSI mode and the session time zone UTC. The tests compare a table of edge cases for every function
of Spark with Spark itself. [Differences from Spark SQL](expressions/differences.md) lists what is refused here and what
has another result.

## Functions

"""

_RULES: Final = r"""
## Syntax

- Names of columns, fields and functions are case-insensitive; an exact match wins. Write a name that is a keyword or
  has blanks or dots in backticks.
- `a.b` is a field of a struct, `a[0]` an element of an array, `m['k']` the value of a key of a map, or NULL.
- Numbers with a point are decimals, as in Spark: `12.50` is a decimal(4,2). `1e2` and `1.5D` are doubles, `1.5BD` is a
  decimal, and so is an integer beyond bigint.
- Within a text, a backslash is written as two, as in Spark: `'\\d+'` is the pattern of digits, and so is `r'\d+'`.
  `'\d+'` would be the letter d, so a pattern or replacement that loses a backslash in this way is refused.
- `x -> x + 1` and `(x, i) -> x + i` are [lambda functions](expressions/collections.md#lambda-functions), which only
  some functions of arrays and maps take.

## Types

- Types are boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp,
  timestamp_ntz, `array<...>`, `map<..., ...>` and `struct<...>`. [Intervals](expressions/time.md#intervals) exist only
  inside expressions.
- Casts are `cast(a as int)`, `a::int`, and `try_cast`, which returns NULL where a cast would fail.
- Implicit casts are Spark's ANSI ones. A decimal combined with a double or a float becomes a double, and so does an
  int combined with a float. `'5' < a` compares numbers if a is one. Arithmetic and functions of doubles, dates and
  timestamps (`a + s`, `sqrt(s)`, `year(s)`) accept text; those of integers (`date_add(d, n)`, `pmod`, `&`,
  `from_unixtime`) do not.
- A text column combined with another type in a comparison, IN, BETWEEN, CASE, IF, COALESCE or `array(...)` is refused:
  `customer > 5` would fail records whose customer is not a number. Write the cast that you mean:
  `cast(customer as int) > 5`, or `try_cast` to get NULL instead of a failure.

## NULL

- Most operators and functions return NULL if an argument is NULL. Their descriptions name the exceptions, such as
  `concat_ws`, `greatest` and `isnan`.
- `and`, `or` and `not` are three-valued. A condition that is NULL does not count as true.
- `<=>` compares NULL with NULL as equal. `coalesce`, `nvl2`, `nullif` and `is null` are on the page
  [Operators and conditions](expressions/operators.md#conditions).
- [Aggregates](expressions/aggregates.md) ignore NULL, with the exceptions listed there.

## Errors

- Expressions of a pipeline are checked against the declared schema by `tidegate validate`. Every message has the line
  and the column.
- Before a start, every expression is also compiled and run on no row and on a row of NULLs, in a separate process.
  What cannot be run is refused with its place, and so is a constant that fails every record: `amount > 1 / 0`,
  `amount = 'abc'`. The keys of `secrets` are not available there, so a decrypted constant is evaluated with the first
  record.
- A value that Spark would refuse in ANSI mode (an overflow, a division by zero, text that is not a number, an index
  outside an array) fails only its record. `bad_records` of its source sets what happens to the record
  ([Bad records](operations/bad-records.md)).
- To get NULL instead, use `try_cast`, `try_divide`, `try_add` and the like, `get(a, i)` for `a[i]`, and
  `try_element_at`.
- A part that is not evaluated does not fail its record: the other branches of CASE, IF and COALESCE, the right side of
  AND and OR once the left side decides, the arguments after a NULL. As in Spark, a division evaluates its divisor
  first, and `concat`, `concat_ws`, `format_string`, `xxhash64`, `greatest`, `least`, `<=>`, `array`, `map` and
  `named_struct` evaluate all their arguments.

## Limits

- An expression has at most 10,000 characters, 2,000 parts, 50 levels of nesting and 50 operands in a row.
- A function whose result can be larger than its arguments (`concat`, `repeat`, `replace`, `array_join`, `array`,
  `array_append`, `transform` and the like) returns at most 16 MiB. A record with a larger result fails
  (`RESULT_TOO_LARGE`), and nothing of that size is allocated.
- Arrays and maps that a lambda function is applied to have limits of their own
  ([lambda functions](expressions/collections.md#lambda-functions)).

## Speed

Most functions work on whole columns. These run row by row in Python, at one to fifteen microseconds a record (JSON:
more for long texts):

- functions of JSON, character sets, percent-encoding, URLs, hashes and AES, `unbase64`, `hex` of numbers,
  `format_string` and `initcap`;
- `log10`, `log2`, `bround`, and `%` of floats and doubles;
- functions of time zones, and intervals multiplied or divided by a decimal;
- `array_position`, `array_remove`, `array_union`, `array_intersect`, `array_except`, `array_repeat`, `arrays_overlap`,
  `flatten`, `sequence`; `array_distinct` of floats, doubles, decimals, bytes and nested values; `array_append` and
  `array_prepend` of arrays and maps;
- casts to string of doubles and floats below 0.001 or from 10,000,000 on.
"""

_TEXT: Final = r"""
- A group in a replacement is `$1`. `'\1'` is the digit, as in Spark, and `tidegate validate` warns about it.
- A pattern or replacement needs two backslashes for one, or the form `r'...'`
  ([Syntax](../expressions.md#syntax)).
"""

_ENCRYPTION: Final = r"""
- `aes_encrypt` takes its key from `secrets` of the pipeline file: `aes_encrypt(card, secret('cards'))`, with
  `secrets: {cards: "${file:/run/secrets/cards}"}`; or from a column.
- The key is in no output, state, journal, log or `explain`. Only the slots get it, with the plan
  (`runtime.encryption` protects that connection as well).
- GCM and CBC without `iv` draw a random one, so a record that is processed again after a restart becomes other bytes,
  which decrypt to the same value. It is still written once.
- What has to be equal for equal values (a key, a group) needs `ECB`, or an `iv` of the record, which must never be the
  same for two different values.
- An expression without columns is encrypted once at each start by each subtask.
"""

_NUMBERS: Final = r"""
- Decimals are exact. `+ - * / %` have Spark's precision and scale, at most 38 digits. Digits that are cut off are
  rounded half away from zero. A result that does not fit fails its record (`NUMERIC_VALUE_OUT_OF_RANGE`).
- If 128 bits are enough for decimals, by the types or by the values of a batch, whole columns are computed at once,
  otherwise row by row. Casts from text and doubles also work row by row if these have an exponent, blanks or more than
  20 digits before the point.
"""

_TIME: Final = r"""
- A timestamp_ntz is a date and a time of day without a zone. Combined with a timestamp it counts as UTC.
- A date pattern consists of `yyyy yy M MM MMM MMMM d dd H HH h hh m mm s ss`, `S` to `SSSSSS`, `a`, `E` to `EEEE` (only
  to write), one to three of `X` or `x`, or `Z`, for the offset, signs and quoted text. Names are English.

## Intervals

Intervals exist inside expressions, and columns may be part of them: `ts + interval 1 day 2 hours`,
`ts + seconds * interval 1 second`, `ts + make_interval(0, months)`, `(b - a) / 2 > interval '01:30' hour to minute`. To
get a column, count units: `timestampdiff(SECOND, a, b)`.
"""

_LAMBDAS: Final = r"""
- A lambda function, `x -> x + 1` or `(x, i) -> x + i`, may read the columns of the record. Lambda functions may be
  nested.
- If `transform`, `transform_values` or `transform_keys` repeats text, bytes or nested values of the record in its
  result, the array or map may have at most 1,000 elements or entries. An array for `aggregate` may have 10,000. A
  longer one fails its record (`RESULT_TOO_LARGE`).
- `aggregate` takes 0.2 ms for each element of the longest array of a batch.
"""

_AGGREGATES: Final = r"""
`aggregate` takes one call per result, each over an expression; arrays, maps and structs only in `count(x)`. NULLs do
not count, except for `count(*)`, `first`, `last` and the x of `min_by` and `max_by`. Without a value the result is
NULL, 0 for the counts, and an empty array for `collect_list` and `collect_set`. Aggregates with `yes` in the last
column are also available as running totals; the others need a `window`. Over [changes](../changes.md),
`count(distinct x)` is also available, but not `first` and `last`.
"""

_AGGREGATE_RULES: Final = r"""
## Clauses

Two clauses of Spark may follow a call:

- `sum(x) filter (where c)` counts only the rows for which `c` is true, for every function, also over changes. A NULL is
  not true. The arguments are not evaluated for the other rows, so they cannot fail there. A group in which no row
  counts still has a result: `count(*) filter (where c)` is 0 then.
- `last(x) ignore nulls` is the last value that is not NULL. `last(x, true)` and `last(x ignore nulls)` are the same.
  Only `first`, `last` and their aliases take it. It follows `filter`. With `emit: each`, this turns partial updates
  into whole rows: `aggregate: {firmware: last(firmware) ignore nulls}`.

Both clauses are part of the state's meaning: a changed condition is a changed expression of the aggregate ([Changing a
pipeline](../operations/upgrades.md#changing-a-pipeline)).

## Exact results

Sums are exact everywhere. Sums of doubles are rounded once, in the result, so `sum`, `avg`, deviations and variances
have no intermediate rounding errors: a running total, a window and a total of changes over the same records are equal
to the last bit, in whatever order the records arrive. A plain addition in order of arrival can differ in the last
digits.

- In running totals, `sum` of doubles takes about 0.2 µs more per record than a plain addition, and `avg` about 0.5 µs.
  A record of a key whose values together need more than 106 bits takes several microseconds, and so does each record
  for a deviation or variance.
- In windows, doubles from 5.7e-14 to 4.6e18 (for deviations and variances from 0.001 to 1.1e12) cost little more than
  in a plain sum; each of the others takes microseconds.

The results of a window are the same to the last bit, in whatever order and in however many parts the records arrive:

- Sums of integers are checked when the result is emitted: one that is not a bigint fails its row.
- `count(distinct x)`, `collect_list` and `collect_set` keep the values, per key and window, in the state: at most
  100,000 values and 4 MiB of text or bytes. A group with more fails its row with `RESULT_TOO_LARGE`. New values of a
  batch are merged with the existing ones, so use them for groups of up to some thousand values; beyond that, count with
  `approx_count_distinct`.
- `percentile_approx` is the exact value while a group has at most 4,096 different values. Beyond that it is within n /
  4096 of it if the values span n powers of two (0.5 % for values from 1 to 1,000,000). It takes up to 40 KB per key and
  window; bigints beyond 2^53 are rounded as doubles.
- `approx_count_distinct` takes up to 32 KiB per key and window.
"""

_DIFFERENCES: Final = r"""
## Refused

These are refused at validation, because the result could differ or the engine cannot do it:

- Comparison and casts of maps, subqueries, window functions, casts of arrays and structs to text; `now()`, `rand()`,
  `uuid()` and other functions whose value changes at a replay (`uuid5` creates ids that do not).
- A literal key of `aes_encrypt` and `aes_decrypt`.
- Time zones with other names than `Area/City`, UTC, GMT and offsets, or not as literals.
- Wildcards in `get_json_object`; binary, decimal and timestamp_ntz in `from_json`; maps with keys that are not strings.
- Formats of `format_string` other than `%d %x %X %o %e %f %s %S %b %% %n`; `decode` as a kind of CASE; `xxhash64` of
  decimals and nested values; `sequence` of times; `pmod` of floats and doubles; `try_add` and the like of times.
- `array_sort` with your own comparison; order of arrays and structs (`<` and the like, `greatest`, `array_sort`);
  `aggregate` to text, bytes, arrays, maps, and structs with any of them.
- `distinct` in aggregates other than `count`; `respect nulls` of `collect_list` and `collect_set`, which never have
  NULLs.
- `concat` of binary, `reverse` and `concat_ws` of arrays, fractions in `timestamp_seconds`; decimals, times and bytes
  in `format_string` (cast them to string), decimals in `percentile_approx`; casts to structs, and of arrays whose
  elements could fail (use `transform(a, x -> cast(x as int))`).
- More arguments than the tables list: a limit of `split`, the start of `locate`, a text for NULLs in `array_join`, the
  base of `log`, digits of `floor` and `ceil`, options of `from_json`.
- `regexp_extract_all`, `regexp_count`, `regexp_substr` and `regexp_instr` with `$` (use `'\\z'`) or a pattern that can
  match nothing, and the first with a group of a pattern that has `^`, `\b` or `\z`.
- Anything but a literal for: patterns and replacements, the old text of `replace`, delimiter and n of `split_part`,
  separators, units, paddings and their lengths, digits of rounding, counts of `repeat` and `array_repeat`.
- The result of `make_interval` in other arithmetic than a sum with a date or timestamp: it cannot be multiplied,
  divided or added to an interval. `abs` of an interval, and fields of one in `extract`.
- Regular expressions with look-around, back-references, possessive quantifiers, flags other than a leading `(?i)` or
  `(?s)`, classes inside classes, `\Z`, `\h`, `\R`, `\p{...}` other than Alpha, Digit, Alnum, Upper, Lower, XDigit,
  Punct, Space and Blank; `$` other than at the end, in the group that `regexp_extract` returns, and in `regexp_replace`
  and `split` at all (use `'\\z'`); patterns that can match nothing in `regexp_replace` and `split`; more than 1,000
  repetitions, and nested repetitions that multiply to more than 100,000 steps.
- Text columns combined with values of other types without a cast ([Types](../expressions.md#types)), and keys of
  another type than those of a map; `map` and `map_from_entries` with keys of type float or double; maps with keys that
  are arrays or structs.
- `substring`, `left` and `reverse` of binary, which count bytes in Spark; `lpad` and `rpad` of binary without padding,
  which add zero bytes.
- Date patterns with other letters, brackets or a letter twice. For reading, also those with names of days, `h` without
  `a` or `a` without `h`, a number without fixed width next to another number, a number after `SS` to `SSSSSS`, or
  without year, month and day.
- `round` and `bround` of an integer to tens, or of anything but a decimal to more than 15 digits.

## Different at run time

- Spark rounds `-a` and `abs(a)` of a decimal with more than 34 digits to 34 digits, and casts a decimal with more than
  18 digits to int by way of a double; here both are exact. `div` of decimals beyond bigint fails its record, where
  Spark wraps around. A double of exactly 2^63 fails its cast to bigint, where Spark returns 2^63 - 1.
- Aggregates are not rounded on the way: `sum(x)` of 1e308, 1e308 and -1e308 is 1e308, in Spark infinite. In a window,
  `collect_list`, `first`, `last`, `min_by` and `max_by` use event time and value, where Spark takes what comes first.
  `any_value` is `first`. `collect_set` is sorted. `percentile_approx` has an error of the value, in Spark one of the
  rank.
- Dates and timestamps are limited to 0001-01-01 to 9999-12-31: a result outside fails its record, where Spark accepts
  it.
- A text is not a timestamp here if it has a time zone other than Z, UTC, GMT and offsets of hours and minutes
  (`Europe/Paris`, `UT`, `UTC+1`), a year of more or fewer than four digits, or a time without a date. Hexadecimal text
  (`0x1p3`) is not a double.
- The arguments of an aggregate are never evaluated for rows that its `filter` leaves out. Spark may do so if an
  argument is used twice, as in `max_by(x, 1 / n) filter (where n <> 0)`, and fail.
- Results of text functions are limited to 16 MiB ([Limits](../expressions.md#limits)), in Spark to 2 GiB.
- Bytes that are not UTF-8 fail a cast to string, also an implicit one (`upper(value)`, `value like ...`), and
  `try_cast` returns NULL; Spark keeps them.
- From text that is not JSON, `from_json` keeps nothing; Spark may keep the fields before the fault. Text such as `"1"`
  is not a date in JSON; Spark counts days since 1970. JSON text that is nested deeper than 200 fails its record
  (`TOO_DEEP`), in Spark beyond 1,000. So does an object with a duplicate key that becomes a map (`DUPLICATED_MAP_KEY`),
  where Spark creates a map with both.
- `exp`, `ln`, `log10`, `log2`, `cbrt`, `power` and those of angles may differ in the last digit of a double.
- `round` of a double leaves numbers unchanged whose digits exceed 2^52 after scaling.
- `\b` in a pattern knows letters of all alphabets, as Java did before version 19.
- A double becomes text with the fewest digits, as since Java 19; `format_string` uses that text.
"""


class FunctionPage(NamedTuple):
    """A page of a family of functions: the registry's groups in their order, with their headings."""

    name: str
    title: str
    groups: dict[str, str]
    notes: Mapping[str, str] = MappingProxyType({})
    """A text below the heading of a group."""
    introduction: str = ""


PAGES: Final = (
    FunctionPage("operators", "Operators and conditions", {"operators": "Operators", "conditions": "Conditions"}),
    FunctionPage(
        "text",
        "Text, hashes and encryption",
        {"text": "Text", "hashes": "Hashes", "encryption": "Encryption"},
        {"text": _TEXT, "encryption": _ENCRYPTION},
    ),
    FunctionPage("numbers", "Numbers", {"numbers": "Functions"}, introduction=_NUMBERS),
    FunctionPage("time", "Dates, timestamps and intervals", {"time": "Functions"}, introduction=_TIME),
    FunctionPage(
        "collections",
        "Arrays, structs, maps and lambda functions",
        {"arrays": "Arrays", "structs": "Structs", "maps": "Maps", "lambdas": "Lambda functions"},
        {"lambdas": _LAMBDAS},
    ),
    FunctionPage("json", "JSON", {"json": "Functions"}),
)


def write_reference(folder: Path = DOCS) -> None:
    """Writes all pages into the folder of the documentation."""
    for name, text in render_reference().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def render_reference() -> dict[str, str]:
    """Renders every page, by its path below `docs`."""
    pages = {f"expressions/{page.name}.md": _render_functions(page) for page in PAGES}
    pages["expressions.md"] = _head("Expressions") + _OVERVIEW + _render_contents() + _RULES
    pages["expressions/aggregates.md"] = _render_aggregates()
    pages["expressions/differences.md"] = _head("Differences from Spark SQL") + _DIFFERENCES
    return pages


def _head(title: str) -> str:
    return f"# {title}\n\n{_GENERATED}"


def _render_contents() -> str:
    rows: list[tuple[str, str, Sequence[Function | AggregateFunction]]]
    rows = [(page.name, page.title, _functions_of(*page.groups)) for page in PAGES]
    rows.append(("aggregates", "Aggregates", tuple(AGGREGATES.values())))
    lines = ["| page | functions |", "| --- | --- |"]
    for page, title, functions in rows:
        names = dict.fromkeys(name for one in functions for name in (*_called(one), *one.aliases))
        lines.append(f"| [{title}](expressions/{page}.md) | {' '.join(f'`{name}`' for name in names)} |")
    return "\n".join(lines) + "\n"


def _called(function: Function | AggregateFunction) -> list[str]:
    """Returns its name if it is called by it, as operators are not."""
    return re.findall(r"(?:^|, )(\w+)\(", function.signature)[:1]


def _render_functions(page: FunctionPage) -> str:
    parts = [_head(page.title), page.introduction]
    for group, heading in page.groups.items():
        parts.append(f"\n## {heading}\n{page.notes.get(group, '')}\n| function | result |\n| --- | --- |\n")
        parts += map(_row, _functions_of(group))
    return "".join(parts)


def _render_aggregates() -> str:
    parts = [
        _head("Aggregates"),
        _AGGREGATES,
        "\n| aggregate | result | running totals |\n| --- | --- | --- |\n",
    ]
    parts += map(_aggregate_row, dict.fromkeys(AGGREGATES.values()))
    return "".join([*parts, _AGGREGATE_RULES])


def _functions_of(*groups: str) -> list[Function]:
    return [function for function in FUNCTIONS if function.group in groups]


def _aggregate_row(function: AggregateFunction) -> str:
    also = f" Also {', '.join(f'`{name}`' for name in function.aliases)}." if function.aliases else ""
    return f"| `{function.signature}` | {function.summary}{also} | {'yes' if function.running else ''} |\n"


def _row(function: Function) -> str:
    also = f" Also {', '.join(f'`{name}`' for name in function.aliases)}." if function.aliases else ""
    return f"| `{function.signature}` | {function.summary}{also} |\n".replace("||", r"\|\|").replace(
        "a | b`", r"a \| b`"
    )


if __name__ == "__main__":
    write_reference()
