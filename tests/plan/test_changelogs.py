"""Steps and sinks after a source of changes: which may take them, by name and place."""

from __future__ import annotations

import pytest

from tests.plan.test_build import HEAD, check, names, operators, plan_of
from tidegate.config.load import parse_pipeline
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.upsert import UpsertOperator
from tidegate.operators.calls.spec import CallOperator
from tidegate.operators.kinds.aggregate import ChangesOperator
from tidegate.operators.spec import Requirement
from tidegate.plan.explain import derive_explanation, render_explanation

SOURCE = """\
sources:
  customers: {topic: customers, format: debezium, schema: {id: bigint, name: string, at: timestamp}}
  plain: {topic: plain, schema: {id: bigint, name: string, at: timestamp, _deleted: boolean, _op: string}}
"""
SINK = "sinks:\n  out: {from: last, topic: out}\n"
RETRACTION = "needs retraction, which is not supported yet: a delete would count as a row"
REFUSED = {
    "window": "key: id, window: {tumbling: 1m}, aggregate: {n: count(*)}",
    "keep": "keep: {by: at, n: 2}, key: id",
    "dedup": "dedup: {key: id, within: 1m}",
}


def problems_of(steps: str, source: str = SOURCE) -> list[tuple[str, str]]:
    return [(f"{one.line}:{one.column}", one.message) for one in check(source + steps + SINK).problems]


@pytest.mark.parametrize("word", REFUSED)
@pytest.mark.parametrize("before", ["directly", "after steps", "in a union", "by a route"])
def test_steps_that_count_or_keep_rows_are_refused(word: str, before: str) -> None:
    steps = {
        "directly": ("customers", ""),
        "after steps": ("b", "  - {name: a, from: customers, where: id > 0}\n  - {name: b, from: a, where: id > 1}\n"),
        "in a union": ("[plain, customers]", ""),
        "by a route": ("r.one", "  - {name: r, from: customers, route: {one: id > 1, two: else}}\n"),
    }  # fmt: skip
    reads, others = steps[before]
    step = f"  - {{name: last, from: {reads}, {REFUSED[word]}}}\n"
    (found,) = problems_of(f"steps:\n{others}{step}")
    line = (HEAD + SOURCE + "steps:\n" + others).count("\n") + 1
    message = f"`{word}` of the inserts, updates and deletes of `customers` {RETRACTION}"
    assert found == (f"{line}:{step.index(f' {word}: ') + 2}", message)


TOTALS = "  - {name: totals, from: FROM, key: name, aggregate: {n: count(*), least: min(id)}}\n"
ON_NULL = "on_null: {column: _deleted}"


def kinds_of(steps: str, sinks: str) -> tuple[dict[str, bool], dict[str, tuple[str | None, ...]]]:
    """Sources whose rows have kinds, and what was put before which sink: its places, and the column of tombstones."""
    found = operators(plan_of(f"{SOURCE}steps:\n{steps}sinks:\n{sinks}"))
    sources = {name: one.splits_rows() for name, one in found.items() if isinstance(one, SourceOperator)}
    upserts = {name: (*one.place, one.deleted) for name, one in found.items() if isinstance(one, UpsertOperator)}
    return sources, upserts


def test_running_totals_of_changes_are_changes() -> None:
    steps = (
        TOTALS.replace("FROM", "customers") + "  - {name: sizes, from: totals, key: n, aggregate: {names: count(*)}}\n"
    )
    sinks = (
        f"  out: {{from: totals, topic: out, key: name, {ON_NULL}}}\n  sizes_out: {{from: sizes, topic: s, key: n}}\n"
    )
    found = operators(plan_of(f"{SOURCE}steps:\n{steps}sinks:\n{sinks}"))
    totals, sizes = found["totals"], found["sizes"]
    assert isinstance(totals, ChangesOperator)
    assert isinstance(sizes, ChangesOperator)
    assert names(totals.output) == ["name", "n", "least", "_deleted"]
    assert [one.name for one in totals.states(128)] == ["groups", "values_bigint"]
    assert [one.name for one in sizes.states(128)] == ["groups"]
    upserts = {"out.upserts": ("name", "_deleted"), "sizes_out.upserts": ("n", None)}
    assert kinds_of(steps, sinks) == ({"customers": True}, upserts)


@pytest.mark.parametrize(
    ("step", "sink", "kinds", "places"),
    [
        ("select: {id: id, _deleted: _deleted}", f"key: id, {ON_NULL}", False, []),  # a row replaces the older one
        ("where: id > 1", f"key: id, {ON_NULL}", True, []),  # one that is chosen no longer has to go
        ("where: id > 1", "key: id", False, []),  # a log
        ("route: {some: id > 1, other: else}", f"key: id, {ON_NULL}", True, []),
        (
            "select: {id: id, p: cast(at as int), _deleted: _deleted}",
            f"partition: p, key: id, {ON_NULL}",
            True,
            ["p"],
        ),
        ("select: {id: id, _deleted: _deleted}", f"partition: id, key: id, {ON_NULL}", True, []),  # each once
        (
            "select: {id: id, name: name, _deleted: _deleted}",
            f"topic: {{expression: name, allow: [a, b]}}, key: id, {ON_NULL}",
            True,
            ["topic"],
        ),
    ],
)
def test_rows_have_kinds_where_somebody_needs_them(step: str, sink: str, kinds: bool, places: list[str]) -> None:
    reads, topic = "last.some" if "route" in step else "last", "" if "topic" in sink else "topic: out, "
    sinks = f"  out: {{from: {reads}, {topic}{sink}}}\n  log: {{from: customers, topic: log}}\n"
    sources, upserts = kinds_of(f"  - {{name: last, from: customers, {step}}}\n", sinks)
    assert sources == {"customers": kinds}
    assert upserts == ({"out.upserts": ("id", *places, "_deleted"), "log.upserts": (None,)} if kinds else {})


BRANCHES = """\
  - {name: r, from: FROM, route: {one: id > 1, two: else}}
  - {name: last, from: [r.one, r.two]}
"""


@pytest.mark.parametrize("reads", ["last", "[r.one, r.two]"])
@pytest.mark.parametrize("of", ["customers", "totals"])
def test_a_tombstone_on_one_way_would_have_no_order_with_the_row_on_another(reads: str, of: str) -> None:
    totals = "  - {name: totals, from: customers, key: id, aggregate: {n: count(*)}}\n"
    lineages = f"steps:\n{totals if of == 'totals' else ''}{BRANCHES.replace('FROM', of)}"
    log = f"sinks:\n  out: {{from: {reads}, topic: out, key: id}}\n"
    assert not check(SOURCE + lineages + log).problems
    (found,) = check(SOURCE + lineages + log.replace("}", f", {ON_NULL}}}")).problems
    assert found.path == "sinks.out.from"
    assert found.message == (
        f"rows of `{of}` come on several ways, which have no order: an update that moves a row from one to another "
        "could delete it"
    )


@pytest.mark.parametrize(
    ("first", "second", "warned"),
    [
        (f"topic: out, key: id, {ON_NULL}", f"topic: out, key: id, {ON_NULL}", True),
        ("topic: out, key: id", f"topic: out, key: id, {ON_NULL}", True),
        ("topic: out, key: id", "topic: out, key: id", False),
        (f"topic: out, key: id, {ON_NULL}", f"topic: other, key: id, {ON_NULL}", False),
        (f"topic: out, key: id, {ON_NULL}", f"topic: {{expression: name, allow: [a, out]}}, key: id, {ON_NULL}", True),
    ],
)
def test_sinks_that_may_delete_each_others_rows_are_named(first: str, second: str, warned: bool) -> None:
    sinks = f"sinks:\n  one: {{from: customers, {first}}}\n  two: {{from: customers, {second}}}\n"
    warnings = [one.message for one in check(SOURCE + sinks).warnings if "one of them writes" in one.message]
    assert warnings == ["writes `out`, as `one` does, and one of them writes tombstones"] * warned


CALL = "{name: a, from: customers, async: f.py:look, output: {x: bigint}, order: ordered}"
PLAIN = "  - {name: p, from: plain, select: {k: name, _deleted: _deleted}}\n"
CONCAT = "select: {k: \"concat(name, '/', id)\", _deleted: _deleted}"


@pytest.mark.parametrize(
    ("steps", "sink", "warned"),
    [
        (f"  - {{name: last, from: customers, {CONCAT}}}\n", ON_NULL, True),
        (f"  - {{name: a, from: customers, {CONCAT}}}\n{PLAIN}  - {{name: last, from: [p, a]}}\n", ON_NULL, True),
        ("  - {name: last, from: customers, select: {k: id, _deleted: _deleted}}\n", ON_NULL, False),
        ("  - {name: last, from: customers, select: {k: cast(id as string), _deleted: _deleted}}\n", ON_NULL, False),
        ("  - {name: last, from: customers, select: {k: upper(r), _deleted: _deleted}}\n", ON_NULL, False),
        (f"  - {CALL.replace('name: a', 'name: last').replace('x:', 'k:')}\n", ON_NULL, True),
        (f"  - {{name: a, from: customers, where: true}}\n  - {{name: last, from: a, {CONCAT}}}\n", ON_NULL, False),
        (f"  - {{name: a, from: customers, {CONCAT}}}\n  - {{name: last, from: a, where: true}}\n", ON_NULL, False),
        (f"{TOTALS.replace('FROM', 'customers')}  - {{name: last, from: customers, {CONCAT}}}\n", ON_NULL, False),
        (f"  - {{name: last, from: customers, {CONCAT}}}\n", "headers: {}", False),  # a log
        (f"  - {{name: last, from: plain, {CONCAT}}}\n", ON_NULL, False),
    ],
)
def test_a_key_that_an_update_may_change_and_leave_a_row_behind_is_warned_of(
    steps: str, sink: str, warned: bool
) -> None:
    source = SOURCE.replace("debezium,", "debezium, metadata: {key: r},")
    sinks = f"sinks:\n  out: {{from: last, topic: out, key: k, {sink}}}\n"
    more = "  more: {from: totals, topic: more, key: name}\n" if "totals" in steps else ""
    checked = check(f"{source}steps:\n{steps}{sinks}{more}")
    assert checked.problems == ()
    found = [one.message for one in checked.warnings if one.path == "sinks.out.key"]
    assert found == ["`k` is computed: an update that changes it leaves the row of the old key"] * warned


@pytest.mark.parametrize(("counted", "warned"), [("customers", True), ("[customers, others]", False)])
@pytest.mark.parametrize("column", ["computed", "answered"])
def test_that_totals_read_one_table_says_nothing_of_another_at_the_same_sink(
    counted: str, warned: bool, column: str
) -> None:
    table = "topic: customers, format: debezium, schema: {id: bigint, name: string, at: timestamp}"
    source = f"{SOURCE}  others: {{{table.replace('customers', 'others')}}}\n"
    steps = {
        "computed": f"  - {{name: a, from: customers, {CONCAT}}}\n  - {{name: b, from: others, {CONCAT}}}\n"
        "  - {name: last, from: [a, b]}\n",
        "answered": f"  - {CALL.replace('name: a, from: customers', 'name: last, from: [customers, others]')}\n",
    }[column].replace("x: bigint", "k: bigint")
    sinks = f"  out: {{from: last, topic: out, key: k, {ON_NULL}}}\n  more: {{from: totals, topic: more, key: name}}\n"
    checked = check(f"{source}steps:\n{TOTALS.replace('FROM', counted)}{steps}sinks:\n{sinks}")
    assert checked.problems == ()
    found = [one.message for one in checked.warnings if one.path == "sinks.out.key"]
    assert found == ["`k` is computed: an update that changes it leaves the row of the old key"] * warned


@pytest.mark.parametrize(
    ("schema", "place"),
    [("{name: string, id: bigint}", "r"), ("{payload: 'struct<name: string, id: bigint>'}", "r.payload")],
)
def test_a_key_made_of_the_records_key_is_none_that_an_update_may_change(schema: str, place: str) -> None:
    """As of a table whose primary key has several columns; with `schemas.enable` it is below `payload`."""
    source = SOURCE.replace("debezium,", f"debezium, metadata: {{key: r}}, key_format: json, key_schema: {schema},")
    made = CONCAT.replace("name", f"{place}.name").replace("id", f"{place}.id")
    sinks = f"sinks:\n  out: {{from: last, topic: out, key: k, {ON_NULL}}}\n"
    checked = check(f"{source}steps:\n  - {{name: last, from: customers, {made}}}\n{sinks}")
    assert checked.problems == ()
    assert not [one for one in checked.warnings if one.path == "sinks.out.key"]


def test_keys_of_results_are_no_keys_that_an_update_may_change() -> None:
    steps = """\
steps:
  - {name: w, from: plain, key: id, window: {session: 1m}, emit: {every: 10s}, aggregate: {n: count(*)}}
  - {name: last, from: w, select: {k: "concat(id, window_start)", _deleted: _deleted}}
"""
    source = SOURCE.replace("topic: plain,", "topic: plain, event_time: at,").replace(", _deleted: boolean", "")
    checked = check(f"{source}{steps}sinks:\n  out: {{from: last, topic: out, key: k, {ON_NULL}}}\n")
    assert checked.problems == ()
    assert not [one for one in checked.warnings if one.path == "sinks.out.key"]


def test_totals_have_no_order_to_lose() -> None:
    totals = TOTALS.replace("FROM", "last")
    sinks = f"sinks:\n  out: {{from: totals, topic: out, key: name, {ON_NULL}}}\n"
    lineages = BRANCHES.replace("FROM", "customers")
    assert not check(f"{SOURCE}steps:\n{lineages}{totals}{sinks}").problems


@pytest.mark.parametrize(
    ("topics", "named"), [("topic: customers", False), ("topics: [customers, more]", True), ("pattern: c.*", True)]
)
def test_rows_of_several_topics_say_which_theirs_is_where_updates_are_told_apart(topics: str, named: bool) -> None:
    source = SOURCE.replace("topic: customers", topics)
    steps = "steps:\n" + TOTALS.replace("FROM", "customers")
    sinks = f"sinks:\n  out: {{from: totals, topic: out, key: name, {ON_NULL}}}\n"
    found = operators(plan_of(source + steps + sinks))["customers"]
    assert isinstance(found, SourceOperator)
    assert found.names_topic is named


def test_rows_of_other_sources_have_no_kinds() -> None:
    sources, _ = kinds_of(
        TOTALS.replace("FROM", "[plain, customers]"), "  out: {from: totals, topic: out, key: name}\n"
    )
    assert sources == {"customers": True, "plain": False}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("min(id)", "first(id)", "`first` cannot retract rows: the rows of a table have no order"),
        ("min(id)", "'last(id) ignore nulls'", "`last` cannot retract rows: the rows of a table have no order"),
        ("count(*)", "last(at)", "`last` cannot retract rows: the rows of a table have no order"),
        ("}}", "}, emit: each}", "an update is two rows, and there is no total between them"),
        ("}}", "}, ttl: 30d}", "a change may retract a row whose total has expired"),
        ("least:", "_deleted:", "`_deleted` is already a column of totals of changes"),
        ("count(*)", "collect_set(id)", "`collect_set` cannot retract rows: this is not supported yet"),
        ("count(*)", "'max_by(id, at)'", "`max_by` cannot retract rows: this is not supported yet"),
        ("count(*)", "stddev(id)", "`stddev_samp` cannot retract rows: this is not supported yet"),
    ],
)
def test_what_totals_of_changes_cannot_do(old: str, new: str, message: str) -> None:
    text = TOTALS.replace("FROM", "customers").replace("totals,", "last,")
    (found,) = problems_of("steps:\n" + text.replace(old, new))
    assert found[1] == message


@pytest.mark.parametrize("call", ["collect_list(id)", "max_by(name, at)"])
def test_what_is_advised_in_their_place_can_be_had(call: str) -> None:
    instead = {
        "collect_list(id)": "key: [name, id], aggregate: {n: count(*)}",
        "max_by(name, at)": "key: id, aggregate: {n: \"max(concat(lpad(cast(at as string), 20, '0'), ' ', name))\"}",
    }
    assert problems_of(f"steps:\n  - {{name: last, from: customers, key: name, aggregate: {{n: '{call}'}}}}\n")
    assert not problems_of(f"steps:\n  - {{name: last, from: customers, {instead[call]}}}\n")


@pytest.mark.parametrize(
    ("before", "step", "part", "column"),
    [
        ("", "key: name, aggregate: {n: \"sum(if(_op = 'u', 1, 0))\"}", "`n`", "_op` of `customers"),
        ("", "key: name, aggregate: {n: \"count(*) filter (where _op = 'u')\"}", "`n`", "_op` of `customers"),
        ("", "key: _op, aggregate: {n: count(*)}", "key `_op`", "_op` of `customers"),
        ("{name: a, from: customers, where: NOT _deleted}", "", "the choice of records", "_deleted` of `customers"),
        ("{name: a, from: customers, select: {name: name, x: o % 2}}", "max(x)", "`n`", "o` of `customers"),
        (CALL, "max(x)", "`n`", "x` of `a"),
    ],
)
def test_totals_by_what_differs_when_a_row_is_taken_back_are_refused(
    before: str, step: str, part: str, column: str
) -> None:
    whole = step if "key" in step else f"key: name, aggregate: {{n: {step or 'count(*)'}}}"
    steps = f"  - {before}\n" if before else ""
    steps += f"  - {{name: last, from: {'a' if before else 'customers'}, {whole}}}\n"
    source = SOURCE.replace("debezium,", "debezium, metadata: {offset: o, key: k},")
    (found,) = problems_of("steps:\n" + steps, source)
    reason = "which may differ when a row is taken back: it would not be found"
    assert found[1] == f"{part} goes by `{column}`, {reason}"


def test_totals_by_what_a_record_keeps_are_not_refused() -> None:
    source = SOURCE.replace("debezium,", "debezium, metadata: {topic: t, key: k},")
    step = "  - {name: last, from: customers, key: [k, t], aggregate: {n: sum(id + 1)}}\n"
    assert problems_of("steps:\n" + step, source) == []


@pytest.mark.parametrize("word", REFUSED)
def test_steps_next_to_a_changelog_are_none_of_its_business(word: str) -> None:
    assert problems_of(f"steps:\n  - {{name: last, from: plain, {REFUSED[word]}}}\n") == []


IN_AVRO = 'registry: {url: "http://h:1"}\n' + SOURCE.replace("format: debezium", "format: debezium-avro")


@pytest.mark.parametrize("word", REFUSED)
def test_changes_in_avro_are_changes(word: str) -> None:
    (found,) = problems_of(f"steps:\n  - {{name: last, from: customers, {REFUSED[word]}}}\n", IN_AVRO)
    assert found[1] == f"`{word}` of the inserts, updates and deletes of `customers` {RETRACTION}"
    steps = "steps:\n" + TOTALS.replace("FROM", "customers")
    sinks = f"sinks:\n  out: {{from: totals, topic: out, key: name, {ON_NULL}}}\n"
    plan = plan_of(IN_AVRO + steps + sinks)
    source = operators(plan)["customers"]
    assert isinstance(source, SourceOperator)
    assert names(source.schema) == ["id", "name", "at", "_deleted", "_op"]
    assert (source.on_null, source.splits_rows()) == ("skip", True)
    assert isinstance(operators(plan)["totals"], ChangesOperator)
    loaded = parse_pipeline(HEAD + IN_AVRO + steps + sinks, "p.yaml", {})
    assert "debezium-avro" in render_explanation(derive_explanation(loaded, plan))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("on_null: tombstone", "a debezium-avro source emits a row for each delete, which a tombstone would repeat"),
        ("written_as: {decimals: text}", "decimals of debezium-avro are not ambiguous"),
        ("written_as: {timestamps: {id: us}}", "the column `id` is bigint and holds no timestamp"),
        (
            "unknown_fields: fail",
            "debezium-avro skips fields that the schema does not name: another way is not supported yet",
        ),
        ("written_as: {timestamps: {at: us}}", ""),
    ],
)
def test_what_a_source_of_changes_in_avro_cannot_say(said: str, message: str) -> None:
    sinks = "sinks:\n  out: {from: customers, topic: out}\n"
    text = IN_AVRO.replace("debezium-avro,", f"debezium-avro, {said},")
    found = parse_pipeline(HEAD + text + sinks, "p.yaml", {}).problems
    assert [one.message for one in found] == [message] * bool(message)


@pytest.mark.parametrize(("order", "count"), [("unordered", 1), ("ordered", 0)])
def test_calls_without_order_would_swap_changes(order: str, count: int) -> None:
    call = f"async: f.py:look, output: {{x: string}}, order: {order}"
    found = problems_of(f"steps:\n  - {{name: last, from: customers, {call}}}\n")
    message = "needs `order: ordered`: otherwise an older change could overtake a newer one"
    assert [one.endswith(message) for _, one in found] == [True] * count


@pytest.mark.parametrize(
    ("reads", "after", "carried"),
    [
        ("customers", "where: id > 1", True),
        ("totals", "where: id > 1", True),
        ("[customers, plain]", "where: id > 1", None),  # those of `plain` have no kinds
        ("customers", "select: {id: id, _deleted: _deleted}", None),  # it is only next to the totals
    ],
)
def test_calls_know_whether_their_rows_are_changes_that_somebody_needs(
    reads: str, after: str, carried: bool | None
) -> None:
    steps = "  - {name: totals, from: customers, key: id, aggregate: {n: count(*)}}\n"
    steps += f"  - {CALL.replace('from: customers', f'from: {reads}')}\n  - {{name: last, from: a, {after}}}\n"
    sinks = f"sinks:\n  out: {{from: last, topic: out, key: id, {ON_NULL}}}\n"
    more = "  more: {from: totals, topic: more, key: id}\n"
    for rest, expected in ((more, carried), ("", carried or (False if "select" in after else None))):
        found = operators(plan_of(f"{SOURCE}steps:\n{steps}{sinks}{rest}"))["a"]
        assert isinstance(found, CallOperator)
        given = Requirement.ROW_KIND in found.planned.carries
        assert (given or (None if found.planned.some_kinds else False)) is expected


def test_a_source_of_changes_has_two_columns_more_and_leaves_tombstones_out() -> None:
    text = SOURCE.replace("debezium,", "debezium, written_as: {timestamps: ms, decimals: base64},")
    plan = plan_of(text + "sinks:\n  out: {from: customers, topic: out, key: id, on_null: {column: _deleted}}\n")
    source = operators(plan)["customers"]
    assert isinstance(source, SourceOperator)
    assert names(source.schema) == ["id", "name", "at", "_deleted", "_op"]
    assert (source.on_null, source.options.timestamps, source.options.decimals) == ("skip", "ms", "base64")
    loaded = parse_pipeline(HEAD + text + "sinks:\n  out: {from: customers, topic: out}\n", "p.yaml", {})
    shown = render_explanation(derive_explanation(loaded, plan))
    assert "records without value: skip" in shown
    assert "written: timestamps as ms, decimals as base64" in shown


@pytest.mark.parametrize(
    ("step", "sink", "warned"),
    [
        ("select: {id: id}", "", True),
        ("where: id > 1", "", False),  # written as a field
        ("select: {id: id}, from: kept", "", False),
        ("select: {id: id}, from: both", "", True),
        ("select: {id: id, gone: _deleted}", ", key: id, on_null: {column: gone}", False),
    ],
)
def test_a_sink_that_writes_deleted_rows_like_others_is_warned_of(step: str, sink: str, warned: bool) -> None:
    reads = "" if "from" in step else "from: customers, "
    text = f"""\
{SOURCE}steps:
  - {{name: kept, from: customers, where: NOT _deleted}}
  - {{name: both, from: [plain, large]}}
  - {{name: large, from: customers, where: id > 1}}
  - {{name: last, {reads}{step}}}
sinks:
  out: {{from: last, topic: out{sink}}}
"""
    checked = check(text)
    assert checked.problems == ()
    found = [one.message for one in checked.warnings if one.path == "sinks.out"]
    message = "writes deleted rows of `customers` like any others: nothing reads `_deleted`"
    assert found == ([message] if warned else [])


@pytest.mark.parametrize(("sink", "warned"), [(f", {ON_NULL}", False), ("", False), ("_not", True)])
def test_a_sink_of_totals_that_are_deleted_is_warned_of(sink: str, warned: bool) -> None:
    steps = TOTALS.replace("FROM", "customers") + "  - {name: some, from: totals, select: {name: name, n: n}}\n"
    reads, more = ("some", "") if warned else ("totals", sink)
    checked = check(f"{SOURCE}steps:\n{steps}sinks:\n  out: {{from: {reads}, topic: out, key: name{more}}}\n")
    assert checked.problems == ()
    message = "writes deleted rows of `totals` like any others: nothing reads `_deleted`"
    assert [one.message for one in checked.warnings if one.path == "sinks.out"] == [message] * warned


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("debezium,", "debezium, on_null: tombstone,", "a debezium source emits a row for each delete"),
        ("plain, ", "plain, written_as: {decimals: text}, ", "values of json are not ambiguous"),
        ("at: timestamp}}\n  p", "_op: string}}\n  p", "every debezium source already has a column `_op`"),
        ("topic: out", "topic: out, format: debezium", "`debezium` is not one of the choices"),
        ("debezium, schema: {id: bigint, name: string, at: timestamp}", "debezium", "`schema` is missing"),
    ],
)  # fmt: skip
def test_words_that_do_not_go_together(old: str, new: str, message: str) -> None:
    text = SOURCE + "sinks:\n  out: {from: customers, topic: out}\n  more: {from: plain, topic: more}\n"
    assert old in text
    loaded = parse_pipeline(HEAD + text.replace(old, new, 1), "p.yaml", {})
    found = loaded.problems or check(text.replace(old, new, 1)).problems
    assert message in found[0].message


@pytest.mark.parametrize("of", ["customers", "totals"])
def test_a_select_without_the_column_of_deletes_is_named_as_the_reason(of: str) -> None:
    steps = TOTALS.replace("FROM", "customers") + f"  - {{name: some, from: {of}, select: {{name: name}}}}\n"
    text = f"{SOURCE}steps:\n{steps}sinks:\n  out: {{from: some, topic: out, key: name, {ON_NULL}}}\n"
    (found,) = check(text).problems
    assert (found.path, found.message) == ("sinks.out.on_null.column", "there is no column `_deleted`")
    assert found.remedy == "pass it on: a `select` before the sink needs `_deleted: _deleted`"
