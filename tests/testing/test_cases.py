"""Cases of a pipeline file on the real decoders, operators, states and encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.testing.pipelines import HEAD, ORDERS, load, messages, run, run_one
from tidegate.operators.kinds.aggregate.runtime import AggregateRuntime
from tidegate.state.columns import ColumnState
from tidegate.state.errors import StateUnreadable
from tidegate.state.memory import MemoryState
from tidegate.testing.cases import find_unordered
from tidegate.testing.parts import Collector

BACKENDS = (MemoryState, ColumnState)
ANN = "{id: 1, customer: ann, amount: 150}"


def test_a_case_passes_when_sinks_write_what_is_expected() -> None:
    result = run_one(
        "given: {orders: [{value: {id: 1, customer: ann, amount: 150}}, {value: {id: 2, customer: ann, amount: 5}}]}, "
        "expect: {out: [{key: ann, value: {id: 1, customer: ann, amount: 150, at: null}}], "
        "totals: [{key: ann, value: {customer: ann, n: 1, net: 150.0, last: 1}}], copy: []}"
    )
    assert result.passed, messages(result)


def test_a_record_that_is_missing_and_one_too_many_fail_the_case() -> None:
    result = run_one(f"given: {{orders: [{{value: {ANN}}}]}}, expect: {{out: [], totals: [{{key: ann}}, {{key: bo}}]}}")
    assert messages(result) == [
        "out: 1 record came out, 0 expected",
        "totals: 1 record came out, 2 expected",
    ]


def test_a_sink_that_is_not_named_may_write_anything() -> None:
    assert run_one(f"given: {{orders: [{{value: {ANN}}}]}}, expect: {{copy: []}}").passed


def test_a_case_that_expects_nothing_at_all_fails() -> None:
    result = run_one(f"given: {{orders: [{{value: {ANN}}}]}}")
    assert messages(result) == [
        "the case has no `expect`; add it, for example `SINK: []`, which shows what the sink gets"
    ]


def test_keys_headers_timestamps_and_partitions_reach_a_raw_source() -> None:
    pipeline = ORDERS.replace(
        "steps:\n",
        "steps:\n  - {name: seen, from: lines, select: {k: cast(key as string), p: partition, o: offset, t: topic, at: "
        "timestamp}}\n",
    ).replace("tests:\n", "  out_of: {from: seen, topic: seen}\ntests:\n")
    result = run_one(
        "now: 2026-05-01T00:00:00Z, given: {lines: [{key: a, value: x}, {key_base64: Yg==, value: y, partition: 3, "
        "topic: more, headers: [[h, v]]}, {advance: 1m30s}, {value: null}, "
        "{value_base64: eA==, timestamp: 2026-01-01T00:00:00Z}]}, "
        "expect: {out_of: [{value: {k: a, p: 0, o: 0, t: lines, at: 2026-05-01T00:00:00Z}}, "
        "{value: {k: b, p: 3, o: 0, t: more, at: 2026-05-01T00:00:00Z}}, "
        "{value: {k: null, p: 0, o: 1, t: lines, at: 2026-05-01T00:01:30Z}}, "
        "{value: {k: null, p: 0, o: 2, t: lines, at: 2026-01-01T00:00:00Z}}], "
        "copy: {set: [{key: a, value: x}, {key: b, value: y}, {key: null, value: null}, {value_base64: eA==}]}}",
        pipeline,
    )
    assert result.passed, [line for one in result.failures for line in (one.message, *(one.difference or ()))]


def test_a_timestamp_is_compared_where_it_is_expected() -> None:
    given = "given: {orders: [{value: {id: 1, customer: ann, amount: 150, at: 2026-01-01T00:00:00Z}}]}"
    assert run_one(f"{given}, expect: {{out: [{{timestamp: 2026-01-01T00:00:00Z}}]}}").passed
    assert run_one(f"{given}, expect: {{out: [{{timestamp: 1767225600000}}]}}").passed
    assert not run_one(f"{given}, expect: {{out: [{{timestamp: 2026-01-01T00:00:01Z}}]}}").passed
    assert run_one(f"{given}, expect: {{totals: [{{timestamp: null, headers: []}}]}}").passed


def test_order_counts_for_each_key_and_not_between_keys() -> None:
    given = (
        "given: {orders: [{value: {id: 1, customer: ann, amount: 100}}, {value: {id: 2, customer: bo, amount: 100}}, "
        "{value: {id: 3, customer: ann, amount: 100}}]}"
    )
    by_key = "{key: bo, value: {id: 2, customer: bo, amount: 100, at: null}}, {key: ann}, {key: ann, value: %s}"
    last = "{id: 3, customer: ann, amount: 100, at: null}"
    first = "{id: 1, customer: ann, amount: 100, at: null}"
    assert run_one(f"{given}, expect: {{out: [{by_key % last}]}}").passed
    assert not run_one(f"{given}, expect: {{out: [{by_key % first}]}}").passed
    assert run_one(f"{given}, expect: {{out: {{set: [{by_key % first}]}}}}").passed


def test_a_skipped_record_fails_a_case_that_does_not_expect_it() -> None:
    given = "given: {orders: [{text: '{'}, {value: {id: x}}, {value: null}]}"
    result = run_one(f"{given}, expect: {{out: []}}")
    lines = result.failures[0].message.splitlines()
    assert lines[0] == "bad records: 3 (MALFORMED_JSON: 1, NULL_VALUE: 1, WRONG_TYPE: 1), expected 0"
    assert lines[1].startswith("source orders: orders[0] offset 0: MALFORMED_JSON: ")
    assert run_one(f"{given}, bad_records: 3").passed
    assert run_one(f"{given}, bad_records: {{MALFORMED_JSON: 1, NULL_VALUE: 1, WRONG_TYPE: 1}}").passed
    assert not run_one(f"{given}, bad_records: {{MALFORMED_JSON: 3}}").passed
    assert not run_one(f"{given}, bad_records: 4").passed
    none = "given: {orders: []}, expect: {out: []}"
    assert run_one(f"{none}, bad_records: {{WRONG_TYPE: 0}}, late: {{per_customer: 0}}").passed
    counts = "MALFORMED_JSON: 1, NULL_VALUE: 1, WRONG_TYPE: 1"
    assert run_one(f"{given}, bad_records: {{{counts}, DIVIDE_BY_ZERO: 0}}").passed
    assert not run_one(f"{given}, bad_records: {{DIVIDE_BY_ZERO: 0}}").passed


def test_a_pipeline_that_is_to_fail_must_fail_with_its_message() -> None:
    strict = ORDERS.replace("bad_records: skip", "bad_records: fail")
    given = "given: {orders: [{value: {id: x}}]}"
    assert run_one(f"{given}, fails: WRONG_TYPE", strict).passed
    wrong = run_one(f"{given}, fails: MALFORMED", strict)
    assert messages(wrong)[0].startswith("the pipeline fails: source orders: orders[0] offset 0: WRONG_TYPE")
    assert messages(wrong)[0].endswith("; expected a message with 'MALFORMED'")
    assert messages(run_one(f"{given}, expect: {{out: []}}", strict))[0].startswith("the pipeline fails: source orders")
    well = run_one(f"given: {{orders: [{{value: {ANN}}}]}}, fails: WRONG_TYPE", strict)
    assert messages(well) == ["the pipeline did not fail; expected a message with 'WRONG_TYPE'"]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_case_runs_in_several_slots_with_channels_between_them(parallelism: int) -> None:
    records = ", ".join(
        f"{{value: {{id: {n}, customer: c{n % 5}, amount: 100}}, partition: {n % 4}}}" for n in range(20)
    )
    totals = ", ".join(
        f"{{key: c{n % 5}, value: {{customer: c{n % 5}, n: {n // 5 + 1}, net: {n // 5 + 1}00, last: {n}}}}}"
        for n in range(20)
    )
    result = run_one(f"given: {{orders: [{records}]}}, expect: {{totals: [{totals}]}}", parallelism=parallelism)
    assert result.passed, messages(result)


def test_the_parallelism_of_a_case_counts_more_than_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("tidegate.testing.playing.Harness.settle", lambda self: seen.append(self.plan.parallelism))
    for case, option in (("parallelism: 3, ", 2), ("", 2), ("", None)):
        assert not run_one(f"{case}expect: {{out: [{{key: ann}}]}}", parallelism=option).passed
    assert list(dict.fromkeys(seen)) == [3, 2, 1]


def test_time_passes_between_records_and_each_source_has_its_own() -> None:
    pipeline = ORDERS.replace(
        "steps:\n", "steps:\n  - {name: at, from: lines, select: {v: cast(value as string), timestamp: timestamp}}\n"
    ).replace("tests:\n", "  seen: {from: at, topic: seen}\ntests:\n")
    result = run_one(
        "now: 0, given: {orders: [{advance: 2s}], lines: [{value: a}, {advance: 1s}, {value: b}, {advance: 1s}, "
        "{advance: 1ms}, {value: c}]}, expect: {seen: [{value: {v: a, timestamp: 1970-01-01T00:00:00Z}}, "
        "{value: {v: b, timestamp: 1970-01-01T00:00:01Z}}, {value: {v: c, timestamp: 1970-01-01T00:00:02.001Z}}]}",
        pipeline,
    )
    assert result.passed, [line for one in result.failures for line in (one.message, *(one.difference or ()))]


def test_a_bounded_source_ends_with_what_is_given() -> None:
    bounded = ORDERS.replace("bad_records: skip}", "bad_records: skip, until: latest}")
    assert run_one(f"given: {{orders: [{{value: {ANN}}}]}}, expect: {{out: [{{key: ann}}]}}", bounded).passed
    assert run_one("expect: {out: []}", bounded).passed


def test_late_records_are_counted_by_step_where_that_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AggregateRuntime, "late_rows", 2)
    given = f"given: {{orders: [{{value: {ANN}}}]}}"
    assert run_one(f"{given}, expect: {{out: [{{key: ann}}]}}").passed
    assert run_one(f"{given}, late: 2").passed
    assert run_one(f"{given}, late: {{per_customer: 2}}").passed
    assert messages(run_one(f"{given}, late: 0")) == ["late records: 2 (per_customer: 2), expected 0"]
    assert messages(run_one(f"{given}, late: {{big: 2}}")) == ["late records: 2 (per_customer: 2), expected big: 2"]
    assert (
        messages(run_one(f"{given}, expect: {{out: []}}"))[-1] == "by the way:\nper_customer: 2 records came too late"
    )


# -- restarts ----------------------------------------------------------------------------------------------------------

THREE = (
    "given: {orders: [{value: {id: 1, customer: ann, amount: 100}}, {value: {id: 2, customer: ann, amount: 100}}, "
    "{value: {id: 3, customer: ann, amount: 100}}]}, expect: {totals: [{value: {customer: ann, n: 1, net: 100, last: "
    "1}}, {value: {customer: ann, n: 2, net: 200, last: 2}}, {value: {customer: ann, n: 3, net: 300, last: 3}}]}"
)


def test_a_restart_that_loses_state_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_one(THREE).passed
    monkeypatch.setattr(AggregateRuntime, "states", property(_no_states, lambda *_: None))
    result = run_one(THREE)
    assert [one.sink for one in result.failures] == ["totals"]
    assert result.failures[0].message.startswith("a restart in the middle of the case changes the result")


def _no_states(self: object) -> Mapping[str, Any]:
    return {}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_rows_in_flight_are_part_of_the_snapshot_of_a_case(monkeypatch: pytest.MonkeyPatch, parallelism: int) -> None:
    monkeypatch.setattr("tidegate.slot.subtasks.read_replay", lambda *arguments: [])
    result = run_one(THREE, parallelism=parallelism)
    (failure,) = result.failures
    assert failure.message.startswith("a restart in the middle of the case changes the result")


def test_a_pipeline_that_cannot_be_restored_fails_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def restore(*arguments: object) -> None:
        raise StateUnreadable("the file is of another state")

    for backend in BACKENDS:
        monkeypatch.setattr(backend, "restore", restore)
    assert messages(run_one(THREE)) == [
        "after a restart in the middle of the case, the pipeline fails: the file is of another state"
    ]


def test_a_restart_is_not_compared_when_the_case_fails_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in BACKENDS:
        monkeypatch.setattr(backend, "restore", lambda *arguments: pytest.fail("restored"))
    assert not run_one(THREE.replace("n: 3", "n: 4")).passed


SELF_JOIN = (
    HEAD
    + """\
sources:
  clicks: {topic: clicks, schema: {k: string, id: bigint, at: timestamp}, event_time: at}
steps:
  - name: pairs
    join: {a: clicks, b: clicks}
    on: {k: k}
    within: {before: 2s, after: 2s}
    rows: full
    select: {k: "coalesce(a.k, b.k)", a: a.id, b: b.id}
    late: late
sinks:
  out: {from: pairs, topic: out, key: k}
  copy: {from: clicks, topic: copy}
  late: {topic: late}
tests:
"""
)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_restart_may_change_the_order_of_rows_that_come_on_several_paths(parallelism: int) -> None:
    """The record in flight is on both sides of the join, and arrives on the other one first after the restart."""
    times = {"x, id: 1": 10, "null, id: 2": 11, "x, id: 3": 12}
    given = [f"{{value: {{k: {what}, at: 2026-01-01T00:00:{second}Z}}}}" for what, second in times.items()]
    result = run_one(f"given: {{clicks: [{', '.join(given)}]}}, late: 0", SELF_JOIN, parallelism)
    assert result.passed, messages(result)
    assert len(result.output["out"]) == 6


def test_only_sinks_that_rows_of_one_source_reach_on_several_paths_have_no_order() -> None:
    _, plan = load("  - {name: one, given: {}, expect: {out: []}}\n", SELF_JOIN)
    assert find_unordered(plan) == {"out", "late"}
    _, plan = load("  - {name: one, given: {}, expect: {out: []}}\n")
    assert find_unordered(plan) == set()


def test_cases_do_not_see_each_other() -> None:
    results = run(f"  - {{name: one, {THREE}}}\n  - {{name: two, {THREE}}}\n")
    assert all(result.passed for result in results.values())


def test_all_sinks_of_a_slot_begin_to_close_before_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each would wait for its own calls on a slow link, one sink after the other."""
    seen: list[str] = []
    monkeypatch.setattr(Collector, "begin_close", lambda self: seen.append("begin"))
    monkeypatch.setattr(Collector, "close", lambda self: seen.append("close"))
    run_one("given: {}, expect: {out: []}")
    count = len(seen) // 2
    assert count > 1
    assert seen[:6] == ["begin"] * 3 + ["close"] * 3
