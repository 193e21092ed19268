"""Changes of a pipeline file for every row of the table in docs/operations/upgrades.md, with their directives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.coordinator.upgrade import CommandLineDirectives, UpgradeOutcome
from tidegate.ids import OperatorName

Row = Mapping[str, object]
Edits = tuple[tuple[str, str], ...]

SHOP = """\
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: int, customer: string, amount: double, city: string}}
steps:
  - {name: big, from: orders, where: amount > 1 and id >= 0}
  - {name: slim, from: big, select: {customer: customer, value: amount, number: id}}
  - {name: rows, from: big, select: {customer: customer, number: id, city: city}}
  - {name: sums, from: slim, key: customer, aggregate: {n: count(*), net: sum(value)}}
  - {name: newest, from: rows, key: customer, keep: {by: number, n: 1}}
  - {name: nice, from: sums, where: n > 0}
sinks:
  out: {from: nice, topic: out, key: customer}
  new: {from: newest, topic: new, key: customer}
"""
VISITS = """\
sources:
  orders:
    topic: orders
    schema: {id: bigint, customer: string, at: bigint}
    event_time: at
    watermark: {delay: 0s, idle: never}
steps:
  - {name: once, from: orders, dedup: {key: id, within: 1h}}
  - {name: minutes, from: once, key: customer, window: {tumbling: 1m}, aggregate: {n: count(*)}}
  - {name: late, from: once, key: customer, window: {tumbling: 1m}, allowed_lateness: 1m, aggregate: {n: count(*)}}
  - {name: visits, from: once, key: customer, window: {session: 30s}, aggregate: {n: count(*)}}
sinks:
  minute: {from: minutes, topic: minute, key: customer}
  corrected: {from: late, topic: corrected, key: customer}
  visit: {from: visits, topic: visit, key: customer}
"""
STOCK = """\
sources:
  lines: {topic: lines, format: debezium, schema: {id: bigint, item: string, price: bigint}}
steps:
  - {name: stock, from: lines, key: item, aggregate: {n: count(*), least: min(price)}}
sinks:
  out: {from: stock, topic: out, key: item, on_null: {column: _deleted, write: tombstone}}
"""
FILES: Final = (SHOP, VISITS, STOCK)


def command_line(keep: str = "", reset: str = "", drop: str = "") -> CommandLineDirectives:
    """Words of the command line."""
    name = OperatorName
    return CommandLineDirectives(
        {name(keep): ""} if keep else {}, {name(reset): ""} if reset else {}, (name(drop),) if drop else ()
    )


NOTHING: Final = CommandLineDirectives()
(
    SETTINGS,
    INNER,
    PARALLEL,
    NEW,
    HISTORY,
    AGGREGATE,
    NAME,
    COLUMN,
    KEPT,
    GONE,
    OTHER,
    RANK,
    TTL,
    UNLIKE,
    REMOVED,
    TOPIC,
    FIXED,
) = (
    "sinks (name",
    "formatting",
    "`parallelism`",
    "a new source",
    "a new table",
    "a new aggregate",
    "a step or a source under",
    "a column of the state under",
    "a new column in rows",
    "an aggregate that is removed",
    "another expression",
    "another `by`",
    "a `ttl` of totals",
    "a key of another type",
    "a step with state, or a source, that is removed",
    "another topic",
    "`name`, `max_parallelism`",
)
"""How the rows of the table begin."""


class Case(msgspec.Struct, frozen=True):
    """One change. `word` (edits of the new file) and `said` (on the command line) are what it needs, if anything."""

    row: str
    what: str
    edits: Edits
    told: tuple[str, ...] = ()
    """What the refusal without a word reports; nothing for a change that needs no word."""
    word: Edits = ()
    said: CommandLineDirectives = NOTHING
    never: bool = False
    """There is no word for it."""
    outcomes: Mapping[str, UpgradeOutcome] = {}
    """Of the steps that are not plainly kept."""
    after: Mapping[str, Row] = {}
    """The newest row of c0 in a sink, after one order more of 10.0."""
    file: str = SHOP
    remarks: tuple[str, ...] = ()
    backend: str = "memory"


def sums(edit: str) -> Edits:
    """At the end of the step `sums`."""
    return (("net: sum(value)}", f"net: sum(value)}}, {edit}"),)


def visit(name: str, edit: str) -> Edits:
    """At the end of one of the steps with windows."""
    ends = {"minutes": "late", "late": "visits"}
    following = f"\n  - {{name: {ends[name]}" if name in ends else "\nsinks:"
    return (("aggregate: {n: count(*)}}" + following, f"aggregate: {{n: count(*)}}, {edit}}}" + following),)


SUMS: Final = {"customer": "c0", "n": 7, "net": 73.0}
"""Six orders of c0 were there, of 3.0, 6.0 ... 18.0; the one more is 10.0."""
ONE: Final = {"customer": "c0", "n": 1, "net": 10.0}
NEWEST: Final = {"customer": "c0", "number": 99, "city": "Bern", "rank": 1}
KEEP_OR_RESET: Final = ("`state: keep` or `state: reset`", "--keep sums or --reset sums", "results mix both")

CASES: Final = (
    Case(
        SETTINGS, "a sink's name and topic", (("  out: {from: nice, topic: out", "  exit: {from: nice, topic: exit"),)
    ),
    Case(SETTINGS, "a sink's key", (("topic: out, key: customer", "topic: out"),), after={"out": SUMS}),
    Case(SETTINGS, "where after all state", (("where: n > 0", "where: n > 1"),), after={"out": SUMS}),
    Case(SETTINGS, "a setting", (("{topic: orders,", "{topic: orders, bad_records: skip,"),), after={"out": SUMS}),
    Case(
        INNER,
        "formatting",
        (("amount > 1 and", "amount  >  1  and"), ("steps:", "# the steps\nsteps:")),
        after={"out": SUMS},
    ),
    Case(
        INNER,
        "a name in between",
        (("value: amount", "worth: amount"), ("sum(value)", "sum(worth)")),
        after={"out": SUMS, "new": NEWEST},
    ),
    Case(
        INNER, "the order of conditions", (("amount > 1 and id >= 0", "id >= 0 and amount > 1"),), after={"out": SUMS}
    ),
    Case(INNER, "wider integers", (("{id: int,", "{id: bigint,"),), after={"out": SUMS, "new": NEWEST}),
    Case(
        INNER,
        "one more source",
        (
            ("from: orders, where", "from: [orders, more], where"),
            (
                "steps:",
                "  more: {topic: more, schema: {id: int, customer: string, amount: double, city: string}}\nsteps:",
            ),
        ),
        outcomes={"more": UpgradeOutcome.NEW},
        after={"out": SUMS},
    ),
    Case(PARALLEL, "parallelism", (("parallelism: 2", "parallelism: 3"),), after={"out": SUMS, "new": NEWEST}),
    Case(
        PARALLEL,
        "backend",
        (("parallelism: 2", "parallelism: 2\nstate: {backend: rocksdb}"),),
        backend="rocksdb",
        after={"out": SUMS, "new": NEWEST},
    ),
    Case(
        NEW,
        "a source and a step",
        (
            ("steps:", "  more: {topic: more, schema: {id: int, customer: string}}\nsteps:"),
            (
                "sinks:",
                (
                    "  - {name: counts, from: more, key: customer, aggregate: {n: count(*)}}\nsinks:\n"
                    "  counted: {from: counts, topic: counted}"
                ),
            ),
        ),
        outcomes={"more": UpgradeOutcome.NEW, "counts": UpgradeOutcome.NEW},
        after={"out": SUMS},
    ),
    Case(
        AGGREGATE,
        "one that begins empty",
        (("net: sum(value)}", "net: sum(value), most: max(value)}"),),
        remarks=("most begins at checkpoint 1",),
        after={"out": SUMS | {"most": 10.0}},
    ),
    Case(
        AGGREGATE,
        "`first`",
        (("net: sum(value)}", "net: sum(value), first: first(number)}"),),
        told=("cannot be read by the new definition", "--reset sums"),
        word=(("first: first(number)}", "first: first(number)}, state: reset"),),
        outcomes={"sums": UpgradeOutcome.RESET},
        after={"out": ONE | {"first": 99}},
    ),
    Case(
        AGGREGATE,
        "of changes",
        (("least: min(price)}", "least: min(price), most: max(price)}"),),
        file=STOCK,
        told=("step 'stock'", "state: reset"),
        word=(("most: max(price)}", "most: max(price)}, state: reset"),),
        outcomes={"stock": UpgradeOutcome.RESET},
    ),
    Case(
        NAME,
        "a step",
        (("name: sums,", "name: totals,"), ("from: sums", "from: totals")),
        told=("the checkpoint holds state of step 'sums'", "`was: sums`", "--drop sums"),
        word=(("name: totals,", "name: totals, was: sums,"),),
        outcomes={"totals": UpgradeOutcome.RENAMED},
        after={"out": SUMS},
    ),
    Case(
        NAME,
        "a source",
        (("  orders: {topic", "  purchases: {topic"), ("from: orders", "from: purchases")),
        told=("positions of source 'orders'", "`was: orders`"),
        word=(("{topic: orders", "{was: orders, topic: orders"),),
        outcomes={"purchases": UpgradeOutcome.RENAMED},
        after={"out": SUMS},
    ),
    Case(
        COLUMN,
        "a total",
        (("net: sum(value)", "total: sum(value)"),),
        told=("step 'sums' no longer has `net`", "`was: {columns: {new_name: net}}`"),
        word=(("total: sum(value)}", "total: sum(value)}, was: {columns: {total: net}}"),),
        after={"out": {"customer": "c0", "n": 7, "total": 73.0}},
    ),
    Case(
        KEPT,
        "NULL",
        (("city: city}", "city: city, size: length(city)}"),),
        remarks=("size begins at checkpoint 1",),
        after={"out": SUMS, "new": NEWEST | {"size": 4}},
    ),
    Case(
        KEPT,
        "a default",
        (
            ("city: city}", "city: city, size: length(city)}"),
            ("n: 1}", "n: 1}, state: {defaults: {size: 7}}"),
        ),
        after={"out": SUMS, "new": NEWEST | {"size": 4}},
    ),
    Case(
        GONE,
        "an aggregate",
        (("n: count(*), net", "net"), ("where: n > 0", "where: net > 0")),
        told=("step 'sums' no longer has `n`", "`state: {drop: [n]}`"),
        word=sums("state: {drop: [n]}"),
        after={"out": {"customer": "c0", "net": 73.0}},
    ),
    Case(
        GONE,
        "a kept column",
        ((", city: city}", "}"),),
        told=("step 'newest' no longer has `city`", "drop: [city]"),
        word=(("n: 1}", "n: 1}, state: {drop: [city]}"),),
        after={"new": {"customer": "c0", "number": 99, "rank": 1}},
    ),
    Case(
        GONE,
        "the last `min` of changes",
        ((", least: min(price)", ""),),
        file=STOCK,
        told=("step 'stock' no longer has `least`", "state: reset"),
        word=(("n: count(*)}", "n: count(*)}, state: reset"),),
        outcomes={"stock": UpgradeOutcome.RESET},
    ),
    Case(
        OTHER,
        "an expression, kept",
        (("sum(value)", "sum(value * 2)"),),
        told=("`net` of orders", *KEEP_OR_RESET),
        word=(("sum(value * 2)}", "sum(value * 2)}, state: keep"),),
        after={"out": SUMS | {"net": 83.0}},
    ),
    Case(
        OTHER,
        "an expression, reset",
        (("sum(value)", "sum(value * 2)"),),
        told=("`net` of orders", *KEEP_OR_RESET),
        said=command_line(reset="sums"),
        outcomes={"sums": UpgradeOutcome.RESET},
        after={"out": ONE | {"net": 20.0}},
    ),
    Case(
        OTHER,
        "a key",
        (("{customer: customer, value", "{customer: upper(customer), value"),),
        told=("key `customer`",),
        word=sums("state: keep"),
    ),
    Case(
        OTHER,
        "a kept column",
        (("city: city}", "city: lower(city)}"),),
        told=("step 'newest'", "`city` of orders"),
        word=(("n: 1}", "n: 1}, state: keep"),),
        after={"out": SUMS, "new": NEWEST | {"city": "bern"}},
    ),
    Case(
        OTHER,
        "where in front",
        (("amount > 1", "amount > 2"),),
        told=("what has changed", *KEEP_OR_RESET),
        word=(("n: 1}", "n: 1}, state: keep"), *sums("state: keep")),
        after={"out": SUMS, "new": NEWEST},
    ),
    Case(
        OTHER,
        "explode in front",
        (
            (
                "  - {name: slim, from: big",
                (
                    "  - {name: parts, from: big, select: {customer: customer, amount: amount, id: id, "
                    "all: \"split(city, 'x')\"}}\n"
                    "  - {name: each, from: parts, explode: {all: word}}\n  - {name: slim, from: each"
                ),
            ),
        ),
        told=KEEP_OR_RESET,
        word=sums("state: keep"),
        after={"out": SUMS},
    ),
    Case(
        OTHER,
        "route in front",
        (
            (
                "  - {name: slim, from: big",
                '  - {name: ways, from: big, route: {mine: "id > 0", others: else}}\n  - {name: slim, from: ways.mine',
            ),
            ("sinks:", "sinks:\n  rest: {from: ways.others, topic: rest}"),
        ),
        told=KEEP_OR_RESET,
        word=sums("state: keep"),
        after={"out": SUMS},
    ),
    Case(
        OTHER,
        "a gap",
        (("session: 30s", "session: 40s"),),
        file=VISITS,
        told=("step 'visits'", "`state: keep`"),
        word=visit("visits", "state: keep"),
    ),
    Case(
        OTHER,
        "another lateness",
        (("allowed_lateness: 1m", "allowed_lateness: 2m"),),
        file=VISITS,
        told=("step 'late'", "the allowed lateness"),
        word=visit("late", "state: keep"),
    ),
    Case(
        RANK,
        "more places",
        (("n: 1}", "n: 2}"),),
        told=("step 'newest'", "`state: keep`"),
        word=(("n: 2}", "n: 2}, state: keep"),),
        after={"out": SUMS},
    ),
    Case(TTL, "added", sums("ttl: {processing_time: 30d}"), after={"out": SUMS}),
    Case(
        UNLIKE,
        "a key of another type",
        (("id: int, customer: string", "id: int, customer: bigint"),),
        told=("key column customer was string and is bigint", "--reset sums"),
        word=(("n: 1}", "n: 1}, state: reset"), *sums("state: reset")),
        outcomes={"sums": UpgradeOutcome.RESET, "newest": UpgradeOutcome.RESET},
    ),
    Case(
        UNLIKE,
        "next to the old one",
        (
            (
                "sinks:",
                (
                    "  - {name: doubles, from: slim, key: customer, aggregate: {n: "
                    "sum(value * 2)}}\nsinks:\n  double: {from: doubles, topic: double}"
                ),
            ),
        ),
        outcomes={"doubles": UpgradeOutcome.NEW},
        after={"out": SUMS, "double": {"customer": "c0", "n": 20.0}},
    ),
    Case(
        UNLIKE,
        "a window's size",
        (
            (
                "name: minutes, from: once, key: customer, window: {tumbling: 1m}",
                "name: minutes, from: once, key: customer, window: {tumbling: 2m}",
            ),
        ),
        file=VISITS,
        told=("its window was tumbling 1m and is tumbling 2m", "state: reset"),
        word=visit("minutes", "state: reset"),
        outcomes={"minutes": UpgradeOutcome.RESET},
    ),
    Case(
        UNLIKE,
        "a window's kind",
        (("session: 30s", "tumbling: 30s"),),
        file=VISITS,
        told=("step 'visits'", "state: reset"),
        word=visit("visits", "state: reset"),
        outcomes={"visits": UpgradeOutcome.RESET},
    ),
    Case(
        UNLIKE,
        "a lateness where there was none",
        (("window: {tumbling: 1m}, aggregate", "window: {tumbling: 1m}, allowed_lateness: 1m, aggregate"),),
        file=VISITS,
        told=("step 'minutes'", "state: reset"),
        word=visit("minutes", "state: reset"),
        outcomes={"minutes": UpgradeOutcome.RESET},
    ),
    Case(
        UNLIKE,
        "another `within`",
        (("within: 1h", "within: 2h"),),
        file=VISITS,
        told=("step 'once'", "state: reset"),
        word=(
            ("within: 2h}", "within: 2h}, state: reset"),
            *visit("minutes", "state: keep"),
            *visit("late", "state: keep"),
            *visit("visits", "state: keep"),
        ),
        outcomes={"once": UpgradeOutcome.RESET},
    ),
    Case(
        REMOVED,
        "a step",
        (
            ("  - {name: newest, from: rows, key: customer, keep: {by: number, n: 1}}\n", ""),
            ("  new: {from: newest, topic: new, key: customer}\n", ""),
        ),
        told=("state of step 'newest'", "--drop newest"),
        said=command_line(drop="newest"),
        outcomes={"newest": UpgradeOutcome.DROPPED},
        after={"out": SUMS},
    ),
    Case(
        TOPIC,
        "another topic",
        (("{topic: orders", "{topic: purchases"),),
        told=("no longer reads topic orders", "--drop orders"),
        word=(
            ("  orders: {topic", "  purchases: {topic"),
            ("from: orders", "from: purchases"),
            ("n: 1}", "n: 1}, state: keep"),
            *sums("state: keep"),
        ),
        said=command_line(drop="orders"),
        outcomes={"purchases": UpgradeOutcome.NEW, "orders": UpgradeOutcome.DROPPED},
    ),
    Case(
        HISTORY,
        "totals of changes",
        (
            ("sinks:", "  - {name: prices, from: lines, key: price, aggregate: {n: count(*)}}\nsinks:"),
            ("out: {", "by_price: {from: prices, topic: by_price, key: price, on_null: {column: _deleted}}\n  out: {"),
        ),
        told=("'prices' is new and needs all rows of a table, but `lines` continues where it was", "--reset prices"),
        word=(("key: price, aggregate: {n: count(*)}", "key: price, aggregate: {n: count(*)}, state: reset"),),
        outcomes={"prices": UpgradeOutcome.NEW},
        file=STOCK,
    ),
    Case(
        FIXED,
        "max_parallelism",
        (("parallelism: 2", "parallelism: 2\nmax_parallelism: 64"),),
        told=("max_parallelism was 128 and is now 64",),
        never=True,
    ),
)
