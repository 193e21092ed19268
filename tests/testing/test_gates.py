"""Cases of steps that read one input first: what a topic holds at the start, and what comes later."""

from __future__ import annotations

import pytest

from tests.testing.pipelines import HEAD, load, messages, run_one
from tidegate.config.errors import ConfigErrors
from tidegate.plan.gates import derive_leads

LOOKUP = (
    HEAD
    + """\
sources:
  orders: {topic: orders, schema: {id: bigint, sku: string}}
  articles: {topic: articles, schema: {sku: string, price: bigint}}
steps:
  - {name: article, from: articles, table: {key: sku}}
  - {name: priced, from: orders, lookup: article, on: {sku: sku}, add: {price: article.price}}
sinks:
  out: {from: priced, topic: out}
tests:
"""
)
ORDER = "{value: {id: %d, sku: a}}"
ARTICLE = "{value: {sku: a, price: %d}}"


def priced(number: int, price: int | None) -> str:
    return f"{{value: {{id: {number}, sku: a, price: {'null' if price is None else price}}}}}"


def case(orders: list[str], articles: list[str], out: list[str]) -> str:
    given = f"{{orders: [{', '.join(orders)}], articles: [{', '.join(articles)}]}}"
    return f"given: {given}, expect: {{out: [{', '.join(out)}]}}"


def test_the_table_is_read_first_in_whatever_order_the_case_names_the_sources() -> None:
    text = case([ORDER % 1, ORDER % 2], [ARTICLE % 5, ARTICLE % 7], [priced(1, 7), priced(2, 7)])
    assert messages(run_one(text, LOOKUP)) == []


def test_what_comes_later_comes_in_time_order() -> None:
    orders = [ORDER % 1, "{advance: 1m}", ORDER % 2, "{advance: 2m}", ORDER % 3]
    articles = [ARTICLE % 5, "{advance: 2m}", ARTICLE % 7]
    assert messages(run_one(case(orders, articles, [priced(1, 5), priced(2, 5), priced(3, 7)]), LOOKUP)) == []


def test_a_step_that_begins_immediately_reads_in_the_order_of_the_case() -> None:
    text = case([ORDER % 1], [ARTICLE % 5], [priced(1, None)])
    immediately = LOOKUP.replace("add: {", "begin: immediately, add: {")
    assert messages(run_one(text, immediately)) == []


def test_tables_that_wait_for_each_other_are_refused_at_both_steps() -> None:
    steps = """\
  - {name: order, from: orders, table: {key: sku}}
  - {name: sold, from: articles, lookup: order, on: {sku: sku}, add: {last: order.id}}
sinks:
  last: {from: sold, topic: last}
"""
    crossed = LOOKUP.replace("sinks:\n", steps).replace("tests:\n", "")
    with pytest.raises(ConfigErrors) as refused:
        load("", crossed)
    told = [str(one) for one in refused.value.problems]
    assert [line.split(": ")[1] for line in told] == ["steps.priced", "steps.sold"]
    assert (
        "no source could start: `priced` reads `article` before orders may be read; `sold` reads `order` before "
        "articles may be read; let one of these steps start without waiting; a `lookup` has `begin: immediately`"
    ) in told[0]
    load("", crossed.replace("lookup: order,", "lookup: order, begin: immediately,"))


JOINED = (
    HEAD
    + """\
sources:
  orders: {topic: orders, schema: {id: bigint, at: timestamp}, event_time: at, watermark: {delay: 0s}}
  payments: {topic: payments, schema: {order_id: bigint, at: timestamp}, event_time: at, watermark: {delay: 0s}}
steps:
  - name: settled
    join: {order: orders, payment: payments}
    on: {id: order_id}
    within: {before: 5m, after: 1h}
    rows: left
    select: {id: order.id, paid_at: payment.at}
sinks:
  out: {from: settled, topic: out}
tests:
"""
)


def notes_of(text: str, pipeline: str) -> str:
    return "\n".join(messages(run_one(text, pipeline)))


def test_a_failed_case_says_which_rows_of_a_join_still_wait_for_what() -> None:
    orders = ", ".join(f"{{value: {{id: {number}, at: 2026-01-01T00:0{number}:00Z}}}}" for number in range(3))
    expected = "{value: {id: 0, paid_at: null}}"
    notes = notes_of(f"given: {{orders: [{orders}]}}, expect: {{out: [{expected}]}}", JOINED)
    assert "settled: 3 rows of `order` wait for `payment` until event time 2026-01-01T01:02:00Z" in notes


def test_a_failed_case_says_which_rows_of_a_lookup_still_wait_until_when() -> None:
    waiting = LOOKUP.replace("add: {", "missing: wait 30s, add: {")
    notes = notes_of(case([ORDER % 1], [], [priced(1, None)]), waiting)
    assert "priced: 1 row of `orders` waits for `article` until 2026-01-01T00:00:30Z" in notes


def test_a_lead_leaves_out_sources_whose_event_time_a_step_replaces() -> None:
    """The times of both sides could not be compared, and one of them might be on hold for ever."""
    text = JOINED.replace("tests:\n", "")
    _, plan = load("", text)
    assert [(set(one.sources), set(one.others)) for one in derive_leads(plan)] == [
        ({"orders"}, {"payments"}),
        ({"payments"}, {"orders"}),
    ]
    timed = text.replace("steps:\n", "steps:\n  - {name: timed, from: payments, event_time: at}\n")
    _, plan = load("", timed.replace("payment: payments", "payment: timed"))
    assert {(one.sources, one.others) for one in derive_leads(plan)} == {
        (frozenset({"orders"}), frozenset()),
        (frozenset(), frozenset({"orders"})),
    }


def test_a_lead_leaves_out_a_table_whose_rows_have_no_event_time() -> None:
    """Its source has no watermark, and would be waited for."""
    table = """\
  customers: {topic: customers, schema: {id: bigint, name: string}}
steps:
  - {name: customer, from: customers, table: {key: id}}
  - {name: named, from: orders, lookup: customer, on: {id: id}, add: {name: customer.name}}
"""
    text = JOINED.replace("tests:\n", "").replace("steps:\n", table).replace("order: orders", "order: named")
    _, plan = load("", text)
    assert {(*one.sources, *one.others) for one in derive_leads(plan)} == {
        ("orders", "payments"),
        ("payments", "orders"),
    }
