"""Steps with windows: what a file may say of them, what they become, and what their state means."""

from __future__ import annotations

import msgspec
import pytest

from tests.plan.fingerprints import find_changes
from tidegate.config.errors import Problem
from tidegate.config.load import parse_pipeline
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.kinds.window import WindowOperator
from tidegate.plan.build import build_plan, check_pipeline
from tidegate.plan.graph import Plan
from tidegate.plan.growth import derive_batch_limits
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.state.declaration import Serializer
from tidegate.state.verdict import Fit, judge

STEP = "window: {tumbling: 1m}, aggregate: {n: count(*), net: sum(amount * 2)}"
FILE = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double, at: timestamp}, event_time: at}
  bytes: {topic: bytes, format: raw}
steps:
  - {name: totals, from: orders, key: customer, STEP}
sinks:
  out: {from: totals, topic: out, key: customer}
"""


def pipeline(step: str = STEP, more: str = "") -> str:
    return FILE.replace("STEP", step) + more


def problems_of(step: str, more: str = "") -> list[str]:
    found = check_pipeline(parse_pipeline(pipeline(step, more), "p.yaml", {})).problems
    return [f"{'.'.join(one.path.split('.')[2:])}: {one.message}; {one.remedy}" for one in found]


def warnings_of(text: str) -> list[str]:
    """All but the one about the source that the file does not use."""
    found = check_pipeline(parse_pipeline(text, "p.yaml", {})).warnings
    return [one.message for one in found if one.path != "sources.bytes"]


def plan_of(step: str = STEP, more: str = "") -> Plan:
    return build_plan(parse_pipeline(pipeline(step, more), "p.yaml", {}))


def window_of(plan: Plan) -> WindowOperator:
    (operator,) = plan.operators(WindowOperator)
    return operator


def test_results_have_keys_window_and_aggregates() -> None:
    operator = window_of(plan_of())
    assert [f"{name} {kind}" for name, kind in operator.output] == [
        "customer string",
        "window_start timestamp",
        "window_end timestamp",
        "n bigint",
        "net double",
    ]


def test_a_window_makes_its_source_carry_event_time() -> None:
    source = plan_of().vertices[0].nodes[0].operator
    assert isinstance(source, SourceOperator)
    assert source.carries_time


@pytest.mark.parametrize(
    ("window", "problem"),
    [
        ("{tumbling: 1d, time_zone: Europe/Berln}", "window.time_zone: `Europe/Berln` is not a time zone"),
        ("{tumbling: 1d, time_zone: localtime}", "window.time_zone: `localtime` is not a time zone"),
        ("{tumbling: 1d, time_zone: Factory}", "window.time_zone: `Factory` is not a time zone"),
        ("{tumbling: 0s}", "window.tumbling: `0s` is out of range; use 1ms to 366d"),
        ("{sliding: 1m, every: 2m}", "window.every: is more than the size, 1m"),
        ("{sliding: 1m}", "window: `every` is missing"),
        ("{sliding: 366d, every: 1ms}", "window.every: a record would be in 31,622,400,000 windows"),
        ("{tumbling: 1m, every: 1m}", "window.every: a tumbling window has no `every`"),
        ("{tumbling: 1m, session: 1m}", "window.session: both `tumbling` and `session` are given"),
        ("{offset: 1m}", "window: no kind of window is given"),
        ("{tumbling: 1m, offset: 1m}", "window.offset: is not less than 1m"),
        ("{session: 1m, offset: 1s}", "window.offset: a session has no `offset`"),
        ("{tumbling: 1h, time_zone: UTC}", "window.tumbling: a window in a time zone lasts whole days"),
        ("{sliding: 2d, every: 1h, time_zone: UTC}", "window.every: a window in a time zone lasts whole days"),
        ("{tumbling: 1 month}", "window.tumbling: `1 month` is not a duration"),
    ],
)
def test_a_window_that_cannot_be_is_refused_at_its_key(window: str, problem: str) -> None:
    (found,) = problems_of(f"window: {window}, aggregate: {{n: count(*)}}")
    assert found.startswith(problem)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (f"{STEP}, emit: each", "emit: `each` is for running totals"),
        (f"{STEP}, emit: {{every: 7s}}", "emit: the window is not a multiple of 7s; make it a part of 1m, as 10s"),
        (f"{STEP}, emit: {{every: 1m}}", "emit: is not less than the window, 1m; make it a part of 1m, as 10s"),
        (
            "window: {tumbling: 10s}, aggregate: {n: count(*)}, emit: {every: 3s}",
            "emit: the window is not a multiple of 3s; make it a part of 10s, as 2s",
        ),
        (
            "window: {tumbling: 7ms}, aggregate: {n: count(*)}, emit: {every: 3ms}",
            "emit: the window is not a multiple of 3ms; make it a part of 7ms, as 1ms",
        ),
        (
            "window: {tumbling: 1ms}, aggregate: {n: count(*)}, emit: {every: 1ms}",
            "emit: is not less than the window, 1ms; remove it",
        ),
        (
            "window: {sliding: 1h, every: 1s}, aggregate: {n: count(*)}, emit: {every: 1m}",
            "emit: a record would be in 3,600 windows, and each would give early results",
        ),
        (
            "window: {sliding: 1h, every: 10m}, aggregate: {n: count(*)}, emit: {every: 7m}",
            "emit: the window is not a multiple of 7m",
        ),
        (
            "window: {session: 1m}, aggregate: {_deleted: count(*)}, emit: {every: 1s}",
            "aggregate._deleted: `_deleted` is already a column",
        ),
        (
            "window: {session: 1m}, aggregate: {_deleted: count(*)}, allowed_lateness: 1s",
            "aggregate._deleted: `_deleted` is already a column",
        ),
        (
            "window: {tumbling: 1m}, aggregate: {window_end: count(*)}",
            "aggregate.window_end: `window_end` is already a column",
        ),
        ("aggregate: {n: count(*)}, allowed_lateness: 1s", "allowed_lateness: `allowed_lateness` without `window`"),
        ("aggregate: {n: count(*)}, emit: on close", "emit: this is for windows"),
        ("window: {tumbling: 1m}", ": `aggregate` is missing"),
        (f"{STEP}, late: nobody", "late: there is no sink `nobody`"),
        (f"{STEP}, retries: 3", "retries: `retries` without `async` or `http`"),
    ],
)
def test_what_does_not_go_with_a_window_is_refused(step: str, problem: str) -> None:
    (found,) = problems_of(step)
    assert found.startswith(problem)


def test_a_window_without_key_is_refused_with_a_way_out() -> None:
    text = pipeline().replace("key: customer, window", "window")
    (problem,) = check_pipeline(parse_pipeline(text, "p.yaml", {})).problems
    assert problem.message == "`key` is missing"
    assert "select a constant" in problem.remedy


def test_late_rows_go_to_the_sink_that_is_named_with_the_columns_that_arrive() -> None:
    plan = plan_of(f"{STEP}, late: too_late", "  too_late: {topic: late}\n")
    sinks = {sink.name: sink for sink in plan.operators(SinkOperator)}
    assert [name for name, _ in sinks[OperatorName("too_late")].columns] == [
        "id",
        "customer",
        "amount",
        "at",
        "_reason",
        "_watermark",
    ]
    (vertex,) = [vertex for vertex in plan.vertices if vertex.id == "totals"]
    (index,) = vertex.nodes[0].sides["late"].children
    assert vertex.nodes[index].operator.name == "too_late"
    assert derive_batch_limits(plan, vertex).rows > 1


def test_late_rows_of_a_raw_source_have_their_bytes() -> None:
    step = "window: {tumbling: 1m}, aggregate: {n: count(*)}, late: too_late"
    sink = "  too_late: {topic: late, format: raw}\n"
    text = pipeline(step, sink).replace("from: orders, key: customer", "from: bytes, key: topic")
    (late,) = [
        one
        for one in build_plan(parse_pipeline(text.replace("key: customer}", "key: topic}"), "p", {})).operators(
            SinkOperator
        )
        if one.name == "too_late"
    ]
    assert (late.key, [name for name, _ in late.columns]) == ("key", ["value"])
    (problem,) = problems_of(step, sink)
    assert problem.startswith("format: a raw sink writes the column `value`, which does not exist")


ON_NULL = ", on_null: {column: _deleted}"
KEPT = "window: {session: 1m}, aggregate: {n: count(*)}, allowed_lateness: 5m"
EARLY = "window: {session: 1m}, aggregate: {n: count(*)}, emit: {every: 10s}"


@pytest.mark.parametrize("step", [KEPT, EARLY, f"{EARLY}, allowed_lateness: 5m"])
def test_sessions_whose_results_change_say_which_are_none_any_more(step: str) -> None:
    operator = window_of(plan_of(step))
    assert [name for name, _ in operator.output] == ["customer", "window_start", "window_end", "n", "_deleted"]
    sink = "  dead: {from: totals, topic: dead, key: customer, on_null: {column: _deleted, write: tombstone}}\n"
    assert not warnings_of(pipeline(step, sink))


@pytest.mark.parametrize("step", [KEPT, EARLY])
def test_steps_that_cannot_take_a_result_back_are_refused_after_sessions_whose_results_change(step: str) -> None:
    more = "  - {name: each, from: totals, key: customer, aggregate: {m: sum(n)}}\nsinks:\n"
    text = pipeline(step).replace("sinks:\n", more).replace("out: {from: totals", "out: {from: each")
    (problem,) = check_pipeline(parse_pipeline(text, "p.yaml", {})).problems
    assert problem.message.startswith(
        "`aggregate` of the results of `totals`, which later records correct, needs retraction"
    )
    assert problem.remedy == "remove `allowed_lateness` and `emit` of `totals`, or read a step like it without them"


EACH = "key: customer, aggregate: {m: sum(n)}"
RANKED = "key: window_start, keep: {by: n, n: 3}"
AGAIN = (f"{STEP}, emit: {{every: 10s}}", f"{STEP}, allowed_lateness: 1m")


@pytest.mark.parametrize("step", AGAIN)
@pytest.mark.parametrize(
    "after",
    [EACH, EACH.replace("aggregate", "window: {tumbling: 1h}, aggregate"), RANKED, "dedup: {key: n, within: 1h}"],
)
def test_steps_that_would_count_a_result_twice_are_refused_after_windows_that_give_it_again(
    step: str, after: str
) -> None:
    word = next(one for one in ("window", "keep", "dedup", "aggregate") if f"{one}:" in after)
    (problem,) = problems_after(step, after)
    assert problem.message == f"`{word}` of the results of `totals`, which are emitted again, would count each of them"
    assert problem.remedy == "remove `allowed_lateness` and `emit` of `totals`, or read a step like it without them"


@pytest.mark.parametrize("step", AGAIN)
def test_the_newest_result_of_a_window_may_be_kept_and_what_is_given_once_may_be_counted(step: str) -> None:
    assert not problems_after(step, "key: customer, keep: last")
    assert not problems_after(STEP, EACH)


def problems_after(step: str, after: str) -> tuple[Problem, ...]:
    """Of a step that reads the results of a window, after another one that passes them on."""
    passed = f"  - {{name: some, from: totals, where: n > 1}}\n  - {{name: each, from: some, {after}}}\nsinks:\n"
    text = pipeline(step).replace("sinks:\n", passed).replace("out: {from: totals", "out: {from: each")
    return check_pipeline(parse_pipeline(text, "p.yaml", {})).problems


def test_nobody_on_the_way_to_a_sink_asks_which_results_are_deletes() -> None:
    more = "  - {name: each, from: totals, select: {customer: customer, n: n}}\nsinks:\n"
    text = pipeline(KEPT).replace("sinks:\n", more).replace("out: {from: totals", "out: {from: each")
    (warning,) = warnings_of(text)
    assert warning.startswith("writes deleted rows of `totals` like any others")


@pytest.mark.parametrize(
    ("step", "reads", "sink", "warned"),
    [
        ("where: n > 5", "each", ON_NULL, True),
        ("where: _deleted OR n > 5", "each", ON_NULL, False),
        ("where: customer <> 'bot'", "each", ON_NULL, False),  # rows that delete have it
        ("where: n > 5", "each", "", False),
        ("route: {large: n > 5, small: else}", "each.large", ON_NULL, True),
    ],
)
def test_a_condition_that_rows_which_delete_a_session_do_not_pass(
    step: str, reads: str, sink: str, warned: bool
) -> None:
    more = f"  - {{name: each, from: totals, {step}}}\nsinks:\n"
    text = pipeline(KEPT).replace("sinks:\n", more)
    sinks = f"{text.partition('sinks:')[0]}sinks:\n  o: {{from: {reads}, topic: o, key: customer{sink}}}\n"
    message = "rows that delete a result of `totals` do not pass, since their `n` is NULL"
    found = [one for one in warnings_of(sinks) if "NULL" in one]
    assert found == ([message] if warned else [])


SETS = KEPT.replace("n: count(*)", "n: count(*), ids: collect_set(id)")
"""With an array to take apart."""


@pytest.mark.parametrize(
    ("step", "sink", "said"),
    [
        ("explode: {ids: id}", "", "have NULL in `ids`: its rows are never deleted"),
        ("select: {customer: customer, many: n, _deleted: _deleted}", "", ""),
        (
            "select: {customer: customer, _deleted: _deleted, many: n + 1}",
            ", partition: many",
            "the tombstone goes by its key, to another partition",
        ),
        ("where: customer <> 'bot'", ", topic: {expression: \"if(n > 5, 'o', 'p')\", allow: [o, p]}", "bad records"),
        ("where: customer <> 'bot'", ", topic: {expression: \"if(customer > 'm', 'o', 'p')\", allow: [o, p]}", ""),
    ],
)
def test_what_is_calculated_from_results_is_null_where_one_is_deleted(step: str, sink: str, said: str) -> None:
    more = f"  - {{name: each, from: totals, {step}}}\nsinks:\n"
    topic = "" if "topic" in sink else ", topic: o"
    head = pipeline(SETS).replace("sinks:\n", more).partition("sinks:")[0]
    found = warnings_of(f"{head}sinks:\n  o: {{from: each, key: customer{topic}{sink}{ON_NULL}}}\n")
    assert [said in one for one in found if "rows that delete" in one] == ([True] if said else [])


def test_a_condition_on_a_result_under_another_name_withholds_deletes_too() -> None:
    more = (
        "  - {name: named, from: totals, select: {customer: customer, many: n, _deleted: _deleted}}\n"
        "  - {name: each, from: named, where: many > 5}\nsinks:\n"
    )
    head = pipeline(KEPT).replace("sinks:\n", more).partition("sinks:")[0]
    found = warnings_of(f"{head}sinks:\n  o: {{from: each, topic: o, key: customer{ON_NULL}}}\n")
    assert "rows that delete a result of `totals` do not pass, since their `many` is NULL" in found


RUNNING = "key: customer, aggregate: {n: count(*), net: sum(amount)}"


@pytest.mark.parametrize(
    ("first", "after", "word"),
    [
        (RUNNING, "key: customer, keep: {by: net, n: 3}", "keep"),
        (RUNNING, "key: customer, aggregate: {all: sum(net)}", "aggregate"),
        (RUNNING, "key: customer, window: {tumbling: 1m}, aggregate: {all: sum(net)}", "window"),
        (RUNNING, "key: customer, aggregate: {most: max(net)}", ""),
        (RUNNING, "key: customer, keep: last", ""),
        ("key: customer, keep: {by: amount, n: 3}", "key: customer, aggregate: {n: count(*)}", "aggregate"),
        (f"{RUNNING}, window: {{tumbling: 1m}}", "key: customer, keep: {by: net, n: 3}", ""),
        ("key: customer, keep: last", "key: customer, aggregate: {n: count(*)}", ""),
    ],
)
def test_a_total_of_running_totals_is_warned_of(first: str, after: str, word: str) -> None:
    """Each record gives another total of its key: a leaderboard of them has one customer three times."""
    steps = f"  - {{name: totals, from: orders, {first}}}\n  - {{name: some, from: totals, where: customer <> 'x'}}\n"
    head = pipeline(KEPT).partition("steps:")[0]
    text = f"{head}steps:\n{steps}  - {{name: each, from: some, {after}}}\nsinks:\n  o: {{from: each, topic: o}}\n"
    found = [one for one in warnings_of(text) if "emits a new result for each record" in one]
    assert [f"`{word}` counts every one" in one for one in found] == ([True] if word else [])


HOURS = "key: customer, window: {tumbling: 1h}, aggregate: {net: sum(amount)}"


@pytest.mark.parametrize(
    ("between", "keep", "warned"),
    [
        ("where: net > 1", "keep: {by: net, n: 3}", False),
        ("select: {window_start: window_start, net: net}", "keep: {by: net, n: 3}", False),
        ("select: {window_start: window_end, net: net}", "keep: {by: net, n: 3}", False),
        ("select: {window_start: \"date_trunc('DAY', window_start)\", net: net}", "keep: {by: net, n: 3}", True),
        (
            "select: {window_start: \"date_trunc('DAY', window_start)\", net: net}",
            "keep: {by: net, n: 3, emit: each}",
            False,
        ),
    ],
)
def test_a_ranking_by_what_only_is_called_like_a_windows_column_is_warned_of(
    between: str, keep: str, warned: bool
) -> None:
    """Each event time is a ranking of its own then, and every row of a day the first of one."""
    steps = f"  - {{name: hours, from: orders, {HOURS}}}\n  - {{name: some, from: hours, {between}}}\n"
    head = pipeline(KEPT).partition("steps:")[0]
    text = f"{head}steps:\n{steps}  - {{name: top, from: some, key: window_start, {keep}}}\nsinks:\n"
    found = warnings_of(f"{text}  o: {{from: top, topic: o}}\n")
    assert any("`window_start` is not that of a window" in one for one in found) == warned


def test_a_ranking_by_a_column_that_was_read_back_is_warned_of() -> None:
    head = pipeline(KEPT).partition("steps:")[0].replace("id: bigint", "id: bigint, window_start: timestamp")
    text = f"{head}steps:\n  - {{name: top, from: orders, key: window_start, keep: {{by: amount, n: 3}}}}\nsinks:\n"
    assert any("is not that of a window" in one for one in warnings_of(f"{text}  o: {{from: top, topic: o}}\n"))


@pytest.mark.parametrize(
    "step",
    [
        KEPT,
        "window: {session: 1m}, aggregate: {n: count(*)}",
        "keep: {by: id, n: 2, emit: on close}",
        "dedup: {key: customer, within: 1m}",
    ],
)
def test_every_step_that_finds_rows_late_has_an_output_for_them(step: str) -> None:
    text = pipeline(f"{step}, late: too_late", "  too_late: {topic: late, key: customer}\n")
    if step.startswith("dedup"):
        text = text.replace("key: customer, dedup", "dedup")
    checked = check_pipeline(parse_pipeline(text, "p.yaml", {}))
    assert checked.plan is not None
    assert not warnings_of(text)
    sinks = {sink.name: sink for sink in checked.plan.operators(SinkOperator)}
    names = [name for name, _ in sinks[OperatorName("too_late")].columns]
    assert names == ["id", "customer", "amount", "at", "_reason", "_watermark"]


@pytest.mark.parametrize("step", [STEP, "keep: {by: id, n: 2, emit: on close}", "dedup: {key: customer, within: 1m}"])
def test_a_sink_of_late_rows_computes_with_what_arrived_and_the_reason(step: str) -> None:
    sink = """  too_late:
    topic: {expression: "if(id > 1, _reason, 'late')", allow: [late]}
    headers: {add: {at: cast(_watermark AS string)}}
"""
    text = pipeline(f"{step}, late: too_late", sink).replace("key: customer, dedup", "dedup")
    assert OperatorName("totals") in derive_fingerprints(build_plan(parse_pipeline(text, "p.yaml", {})))


def test_another_lateness_of_sessions_is_another_state() -> None:
    longer = KEPT.replace("5m", "6m")
    assert changes(KEPT, longer, KEPT.replace(", allowed_lateness: 5m", ""), f"{KEPT}, late: too_late") == [
        ["the allowed lateness of orders"],
        ["the window of orders", "the allowed lateness of orders"],
        [],
    ]


def test_early_results_of_sessions_and_sliding_windows_are_another_state() -> None:
    plain = EARLY.replace(", emit: {every: 10s}", "")
    sliding = "window: {sliding: 1m, every: 10s}, aggregate: {n: count(*)}"
    early = f"{sliding}, emit: {{every: 5s}}"
    assert changes(plain, EARLY) == changes(sliding, early) == [["the window of orders"]]
    names = [[state.name for state in window_of(plan_of(step)).states(128)] for step in (EARLY, early)]
    assert names == [
        ["early_sessions", "timers", "emitted", "early", "ahead", "pending_late", "late_rows", "watermark"],
        ["slices", "gathered", "timers", "watermark"],
    ]


def test_sessions_with_another_interval_of_early_results_can_only_be_reset() -> None:
    """Rows wait by the time of the next result: sessions that they join may be closed before the new one."""
    ten, twenty = (window_of(plan_of(EARLY.replace("10s", every))).states(128)[0] for every in ("10s", "20s"))
    assert judge(ten.shape, twenty).reason == "its window was session, early each 10s and is session, early each 20s"
    late = msgspec.structs.replace(ten.shape, serializer=Serializer())  # without early results
    assert judge(late, ten).fit is Fit.AS_IS


def test_a_sink_has_from_or_is_named_as_late() -> None:
    (both,) = problems_of(f"{STEP}, late: out")
    assert both.startswith("from: it gets the late records of `totals`, and nothing else")
    (neither,) = problems_of(STEP, "  more: {topic: more}\n")
    assert neither.startswith(": `from` is missing")


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("keep: last", "`keep: last` accepts every record, so none is late; remove it"),
        (
            "keep: {by: id, n: 2}",
            "`emit: each` accepts every record, so none is late; remove it, or write `emit: on close`",
        ),
    ],
)
def test_steps_for_which_no_row_is_late_have_no_output_for_them(step: str, problem: str) -> None:
    (found,) = problems_of(f"{step}, late: too_late", "  too_late: {topic: late}\n")
    assert found == f"late: {problem}"


def changes(*ways: str) -> list[list[str]]:
    late = "  too_late: {topic: late}\n"
    plans = [plan_of(way, late if "late: too_late" in way else "") for way in ways]
    found = [derive_fingerprints(plan)[OperatorName("totals")] for plan in plans]
    return [find_changes(found[0], one) for one in found[1:]]


def test_a_window_that_changes_means_another_state() -> None:
    plain, sliding = STEP, STEP.replace("tumbling: 1m", "sliding: 1m, every: 10s")
    assert (
        changes(plain, STEP.replace("1m", "2m"), STEP.replace("1m", "1m, offset: 3s"), sliding)
        == [["the window of orders"]] * 3
    )
    assert changes(plain, STEP.replace("amount * 2", "amount * 3")) == [["`net` of orders"]]
    lateness = ["the allowed lateness of orders"]  # windows that were removed are not there to be corrected
    assert changes(f"{plain}, allowed_lateness: 1m", f"{plain}, allowed_lateness: 5m") == [lateness]


def test_settings_that_do_nothing_where_they_stand_are_found_with_their_default_values_too() -> None:
    text = pipeline().replace("format: raw}", "format: raw, schema_id: prefix}")
    (problem,) = check_pipeline(parse_pipeline(text, "p.yaml", {})).problems
    assert (problem.path, problem.message) == ("sources.bytes.schema_id", "raw has no schemas")
    registry = 'registry: {url: "http://localhost:8081"}\n'
    assert warnings_of(pipeline() + registry) == [
        "no source or sink has a format with schemas, so the registry is not used"
    ]
    read = "format: raw, key_format: avro, key_schema: bigint, metadata: {key: k}}"
    assert warnings_of(pipeline().replace("format: raw}", read) + registry) == []


def test_a_window_that_keeps_values_says_how_many() -> None:
    step = "window: {tumbling: 1m}, aggregate: {ids: collect_set(id), users: count(distinct id), n: count(*)}"
    operator = window_of(plan_of(step))
    limit = "at most 100,000 or 4 MiB of them for each key and window"
    assert f"state grows with the values of ids, users: {limit}" in operator.describes()
    assert "state grows" not in str(window_of(plan_of()).describes())
