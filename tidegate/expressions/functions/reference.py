"""docs/expressions.md, made from the registry: what an expression may use, and where it differs from Spark SQL."""

from __future__ import annotations

import sys
from itertools import groupby

from tidegate.expressions.aggregates import AGGREGATES, AggregateFunction
from tidegate.expressions.functions import FUNCTIONS, Function

_INTRODUCTION = """\
# Expressions

`where`, `select` and `aggregate` take expressions in Spark SQL's syntax. They are checked against the declared schema
when the pipeline is validated (`tidegate validate`), every message has line and column, and they run on columns with
Spark's results in ANSI mode, session time zone UTC. A table of edge cases for every function below is compared with
Spark itself in the tests.

This page is generated: `python -m tidegate.expressions.functions.reference > docs/expressions.md`.

## Rules

- Types: boolean, tinyint, smallint, int, bigint, float, double, string, binary, date, timestamp, `array<...>`,
  `struct<...>`. There is no DECIMAL: a literal such as `1.2` is a double where it meets a double, and is refused where
  Spark would compute with DECIMAL (write `1.2D`). Intervals exist inside expressions: `ts + interval 1 day 2 hours`.
- A value that Spark would refuse in ANSI mode (overflow, division by zero, text that is not a number, an index outside
  an array) fails its record only: `bad_records` of its source says what happens to it.
- A part that is not evaluated does not fail its record: the other branches of CASE, IF and COALESCE, the right side of
  AND and OR once the left side decides, the arguments after a NULL.
- Names of columns, fields and functions are found without regard to case; an exact match wins. Write a name that is
  a keyword or has blanks in backticks.
- Casts: `cast(a as int)`, `a::int`, and `try_cast`, which is NULL where a cast would fail. Implicit casts are Spark's
  ANSI ones: an int beside a float becomes a double, `'5' < a` compares numbers where a is one, and arithmetic and
  functions of numbers or times take text. But text of a record beside another type in a comparison, IN, BETWEEN, CASE,
  IF, COALESCE or `array(...)` is refused: `customer > 5` would fail records whose customer is not a number. Write the
  cast that is meant: `cast(customer as int) > 5`, or `try_cast` for NULL instead of a failure.
- Before anything starts, every expression is compiled and run on no row and on a row of NULLs, in a process of its own.
  What cannot be run is refused with its place, and so is a constant that fails every record: `amount > 1 / 0`,
  `amount = 'abc'`.
- `a.b` is a field of a struct, `a[0]` an element of an array.
- At most 10,000 characters, 2,000 parts, 50 levels of nesting and 50 operands in a row.
- What `concat`, `concat_ws`, `repeat`, `replace`, `regexp_replace`, `array_join`, `hex`, `base64`, `array` and
  `named_struct` make has at most 16 MiB: a record whose result were larger fails (`RESULT_TOO_LARGE`), and nothing of
  that size is made.

## Aggregates

In `aggregate`, one call each over an expression. NULLs do not count but for `count(*)`, `first` and `last`; without a
value the result is NULL, 0 for the counts and an empty array for `collect_list` and `collect_set`. Those with a `yes`
are also running totals, the others need a `window`.

The results of a window are the same to the last bit in whatever order and in how many parts the records come:
- Sums of integers are exact, and checked when the result is emitted: one that is no bigint fails its row.
- Sums of doubles are exact, too, and rounded once: `sum`, `avg`, deviations and variances have no rounding errors of
  the way. Doubles from 5.7e-14 to 4.6e18 (for deviations and variances from 0.001 to 1.1e12) cost little more than in
  a plain sum; each of the others takes microseconds.
- `count(distinct x)`, `collect_list` and `collect_set` keep the values, per key and window in the state: at most
  100,000 values and 4 MiB of text or bytes. A group with more fails its row with `RESULT_TOO_LARGE`. What a batch adds
  is merged with what is there, so they are for groups of up to some thousand values; beyond, count with
  `approx_count_distinct`.
- `percentile_approx` is the value itself while a group has at most 4,096 different values, and then within n / 4096 of
  it if the values are over n powers of two (0.5 % for values from 1 to 1,000,000). It takes up to 40 KB per key and
  window; bigints beyond 2^53 are rounded as doubles.
- `approx_count_distinct` takes up to 32 KiB per key and window.

"""

_DIFFERENCES = """
## Differences from Spark

Refused at validation, because the result could differ or the engine has no way to do it:
- DECIMAL, time zones, maps, lambda functions, subqueries, window functions, `now()` and other functions whose value
  changes at a replay, casts of arrays and structs to text, concatenation of arrays.
- Patterns, search texts, units, lengths of padding and rounding that are not literals.
- Regular expressions with look-around, back-references, possessive quantifiers, flags other than a leading `(?i)` or
  `(?s)`, classes inside classes, `\\Z`, `\\p{...}` other than Java's POSIX classes; `$` other than at the end, and in
  `regexp_replace` and `split` at all (use `\\z`); patterns that can match nothing in `regexp_replace` and `split`;
  repetitions inside one another that multiply to more than 100,000 steps.
- Text columns beside values of other types without a cast (see above).
- Date patterns other than yyyy MM dd HH mm ss, S to SSSSSS, signs and quoted text.
- `round` of an integer to tens, rounding to more than 15 digits.

Different at run time:
- Aggregates of a window are not rounded on the way: `sum(x)` of 1e308, 1e308 and -1e308 is 1e308, in Spark infinite.
  `collect_list`, `first`, `last`, `min_by` and `max_by` go by event time and value, where Spark takes what comes
  first. `collect_set` is sorted. `percentile_approx` has an error of the value, in Spark one of the rank.
- Dates and timestamps end at 0001-01-01 and 9999-12-31: what would leave them fails its record, where Spark accepts it.
- Text with a region as time zone (`Europe/Paris`), years of more or fewer than four digits, or a time without a date
  is not a timestamp here.
- Results of text functions are limited to 16 MiB (see above), in Spark to 2 GiB.
- Bytes that are not UTF-8 fail a cast to string (and what casts by itself: `upper(value)`, `value like ...`), and
  `try_cast` makes them NULL; Spark keeps them.
- `exp`, `ln`, `log10`, `log2`, `cbrt` and `power` may differ in the last digit of a double.
- `round` of a double keeps numbers whose digits exceed 2^52 after scaling as they are.
- `\\b` in a pattern knows letters of all alphabets, as Java did before version 19.
- A double becomes text with the fewest digits, as since Java 19.
"""


def derive_reference() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, "| | | running totals |\n| --- | --- | --- |\n"]
    parts += map(_aggregate_row, dict.fromkeys(AGGREGATES.values()))
    parts.append("\n## Functions and operators\n")
    ordered = sorted(FUNCTIONS, key=lambda function: _order(function.group))
    for group, functions in groupby(ordered, key=lambda function: function.group):
        parts.append(f"\n### {group.capitalize()}\n\n| | |\n| --- | --- |\n")
        parts += map(_row, functions)
    parts.append(_DIFFERENCES)
    return "".join(parts)


def _aggregate_row(function: AggregateFunction) -> str:
    also = f" Also {', '.join(f'`{name}`' for name in function.aliases)}." if function.aliases else ""
    return f"| `{function.signature}` | {function.summary}{also} | {'yes' if function.running else ''} |\n"


def _order(group: str) -> int:
    return [function.group for function in FUNCTIONS].index(group)


def _row(function: Function) -> str:
    also = f" Also {', '.join(f'`{name}`' for name in function.aliases)}." if function.aliases else ""
    return f"| `{function.signature}` | {function.summary}{also} |\n".replace("||", r"\|\|").replace(
        "a | b`", r"a \| b`"
    )


if __name__ == "__main__":
    sys.stdout.write(derive_reference())
