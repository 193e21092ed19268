"""A pipeline file that changes between two attempts: what goes on, what begins, what a user reads."""

from __future__ import annotations

import re

import pytest

from tests.testing.changed_pipeline import Life, last
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.upgrade import CommandLineDirectives, UpgradeOutcome
from tidegate.ids import OperatorName
from tidegate.task.inflight import InflightUnreadable

TOTALS = """\
parallelism: 2
sources:
  orders: {topic: orders, schema: {id: bigint, customer: string, amount: double}}
steps:
  - {name: big, from: orders, where: amount > 1}
  - {name: sums, from: big, key: customer, aggregate: {n: count(*), net: sum(amount)}}
sinks:
  out: {from: sums, topic: out, key: customer}
"""
ORDERS = [{"id": i, "customer": f"c{i % 3}", "amount": float(i)} for i in range(2, 20)]
ONE_MORE = {"id": 99, "customer": "c0", "amount": 10.0}
N_OF_C0 = sum(one["customer"] == "c0" for one in ORDERS)
NET_OF_C0 = sum(one["amount"] for one in ORDERS if one["customer"] == "c0")  # type: ignore[misc]  # numbers


def changed(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def begun() -> Life:
    """A checkpoint of `TOTALS` after `ORDERS`."""
    life = Life(TOTALS)
    life.produce("orders", *ORDERS)
    return life.checkpoint()


def went_on(life: Life, sink: str = "out") -> dict[str, object]:
    """The newest row of c0 once there is one more of it."""
    life.produce("orders", ONE_MORE)
    rows = [row for row in life.checkpoint().output(sink) if row["customer"] == "c0"]
    return dict(rows[-1])


RENAMED = changed(TOTALS, ("name: sums,", "name: totals, was: sums,"), ("from: sums", "from: totals"))


def outcomes(life: Life) -> dict[str, UpgradeOutcome]:
    return {str(step.name): step.outcome for step in life.restore.upgrade.steps}


@pytest.mark.parametrize("backend", ["memory", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_a_renamed_step_goes_on_with_its_state_and_was_may_be_removed_after_a_checkpoint(
    begun: Life, backend: str
) -> None:
    life = Life(RENAMED, begun, backend=backend)
    assert outcomes(life) == {"orders": UpgradeOutcome.KEPT, "totals": UpgradeOutcome.RENAMED}
    assert went_on(life) == {"customer": "c0", "n": N_OF_C0 + 1, "net": NET_OF_C0 + 10.0}
    assert {handle.operator for handle in life.state.retained[-1].checkpoint.states} == {"totals"}
    for text in (RENAMED, RENAMED.replace(" was: sums,", "")):
        again = Life(text, life)
        assert outcomes(again) == {"orders": UpgradeOutcome.KEPT, "totals": UpgradeOutcome.KEPT}
        assert went_on(again)["n"] == N_OF_C0 + 2


def test_a_rename_without_a_word_is_refused_with_both_ways_on(begun: Life) -> None:
    with pytest.raises(RestoreRefused, match=r"state of step 'sums'.*\(it has: totals\).*`was: sums`.*--drop sums"):
        Life(RENAMED.replace(" was: sums,", ""), begun)


def test_a_renamed_source_goes_on_where_it_was_and_so_does_what_it_feeds(begun: Life) -> None:
    text = changed(
        TOTALS, ("  orders: {topic", "  purchases: {was: orders, topic"), ("from: orders", "from: purchases")
    )
    life = Life(text, begun)
    assert outcomes(life) == {"purchases": UpgradeOutcome.RENAMED, "sums": UpgradeOutcome.KEPT}
    assert went_on(life)["n"] == N_OF_C0 + 1
    assert outcomes(Life(text.replace("was: orders, ", ""), life)) == {
        "purchases": UpgradeOutcome.KEPT,
        "sums": UpgradeOutcome.KEPT,
    }


def test_source_filter_and_step_can_be_renamed_at_once_with_rows_in_flight(begun: Life) -> None:
    before = Life(TOTALS, begun)
    before.hurry("orders", *({"id": i, "customer": "c0", "amount": 2.0} for i in range(40)))
    before.checkpoint()
    assert any(handle.in_flight for handle in before.state.retained[-1].checkpoint.states)
    text = changed(
        RENAMED,
        ("  orders: {topic", "  purchases: {was: orders, topic"),
        ("name: big, from: orders", "name: large, was: big, from: purchases"),
        ("from: big", "from: large"),
    )
    after = Life(text, before)
    assert went_on(after) == {"customer": "c0", "n": N_OF_C0 + 41, "net": NET_OF_C0 + 90.0}


def test_rows_in_flight_to_a_step_that_is_gone_are_refused_until_nothing_is_in_flight(begun: Life) -> None:
    before = Life(TOTALS, begun)
    before.hurry("orders", *({"id": i, "customer": "c0", "amount": 2.0} for i in range(40)))
    before.checkpoint()
    text = changed(TOTALS, ("name: sums,", "name: fresh,"), ("from: sums", "from: fresh"))
    command_line = CommandLineDirectives(drop=(OperatorName("sums"),))
    with pytest.raises(RestoreRefused, match=r"rows in flight on sums.input -> sums.*SIGTERM"):
        Life(text, before, command_line)
    life = Life(text, begun, command_line)
    assert outcomes(life)["sums"] is UpgradeOutcome.DROPPED
    assert went_on(life)["n"] == 1


TTL = ("key: customer,", "key: customer, ttl: 30d,")
ONE_AFTER_IT = (
    "sinks:\n",
    """  - {name: newest, from: sums, key: customer, keep: last}
sinks:
  more: {from: newest, topic: more, key: customer}
""",
)


def test_rows_in_flight_of_another_shape_are_refused_whatever_is_said_of_the_state(begun: Life) -> None:
    before = Life(TOTALS, begun)
    before.hurry("orders", *({"id": i, "customer": "c0", "amount": 2.0} for i in range(40)))
    before.checkpoint()
    text = changed(TOTALS, ("net: sum(amount)}", "net: sum(amount), ids: sum(id)}, state: reset"))
    with pytest.raises(InflightUnreadable, match="SIGTERM"):
        Life(text, before)


@pytest.mark.parametrize("change", [TTL, ONE_AFTER_IT])
def test_rows_in_flight_without_event_time_are_refused_where_a_step_needs_it_now(
    begun: Life, change: tuple[str, str]
) -> None:
    before = Life(TOTALS, begun)
    before.hurry("orders", *({"id": i, "customer": "c0", "amount": 2.0} for i in range(40)))
    before.checkpoint()
    text = changed(TOTALS, change)
    with pytest.raises(InflightUnreadable, match=r"sums.input -> sums without event time.*SIGTERM"):
        Life(text, before)
    assert outcomes(Life(text, begun))["sums"] is UpgradeOutcome.KEPT


MEANT = changed(TOTALS, ("sum(amount)", "sum(amount * 2)"))


def test_another_meaning_without_a_word_is_refused_with_what_each_word_does(begun: Life) -> None:
    with pytest.raises(RestoreRefused) as refused:
        Life(MEANT, begun)
    for told in ("`net` of orders", "results mix both", "starts with empty state", "--keep sums", "`state: reset`"):
        assert told in refused.value.message


@pytest.mark.parametrize(
    ("word", "command_line"),
    [
        (", state: keep", CommandLineDirectives()),
        (', state: {keep: "2026-11: gross"}', CommandLineDirectives()),
        ("", CommandLineDirectives(keep={OperatorName("sums"): ""})),
    ],
)
def test_kept_state_goes_on_with_the_new_definition(
    begun: Life, word: str, command_line: CommandLineDirectives
) -> None:
    text = changed(MEANT, ("* 2)}", f"* 2)}}{word}"))
    life = Life(text, begun, command_line)
    assert went_on(life) == {"customer": "c0", "n": N_OF_C0 + 1, "net": NET_OF_C0 + 20.0}
    assert outcomes(Life(text, life)) == {"orders": UpgradeOutcome.KEPT, "sums": UpgradeOutcome.KEPT}


@pytest.mark.parametrize(
    ("word", "command_line"),
    [(", state: reset", CommandLineDirectives()), ("", CommandLineDirectives(reset={OperatorName("sums"): "why"}))],
)
def test_reset_state_begins_empty_once_and_goes_on_after_that(
    begun: Life, word: str, command_line: CommandLineDirectives
) -> None:
    text = changed(MEANT, ("* 2)}", f"* 2)}}{word}"))
    first = Life(
        text, begun, command_line
    )  # fails before its first checkpoint: the word holds for the next attempt, too
    assert outcomes(first)["sums"] is UpgradeOutcome.RESET
    life = Life(text, begun, command_line)
    assert went_on(life) == {"customer": "c0", "n": 1, "net": 20.0}
    assert life.identity.begun == {"sums": {"": 1}}
    again = Life(text, life, command_line)
    assert outcomes(again)["sums"] is UpgradeOutcome.KEPT
    assert went_on(again)["n"] == 2


def test_a_word_counts_once_for_each_note(begun: Life) -> None:
    kept = changed(MEANT, ("* 2)}", '* 2)}, state: {keep: "2026-11"}'))
    life = Life(kept, begun).checkpoint()
    later = kept.replace("amount * 2", "amount * 3")
    with pytest.raises(RestoreRefused, match=r'`state: \{keep: "2026-11"\}` was applied to an earlier change'):
        Life(later, life)
    assert outcomes(Life(later.replace("2026-11", "2026-12"), life))["sums"] is UpgradeOutcome.KEPT
    once = CommandLineDirectives(keep={OperatorName("sums"): ""})
    command_line = Life(MEANT, begun, once).checkpoint()
    third = MEANT.replace("amount * 2", "amount * 3")
    with pytest.raises(RestoreRefused, match=r"`--keep` was applied to an earlier change.*--keep sums=.why"):
        Life(third, command_line, once)
    assert (
        outcomes(Life(third, command_line, CommandLineDirectives(keep={OperatorName("sums"): "again"})))["sums"]
        is UpgradeOutcome.KEPT
    )


def test_until_the_first_checkpoint_of_the_new_file_the_old_file_goes_on_as_if_nothing_had_been(begun: Life) -> None:
    reset = Life(changed(MEANT, ("* 2)}", "* 2)}, state: reset")), begun)
    reset.produce("orders", ONE_MORE)  # and it fails
    assert went_on(Life(TOTALS, begun)) == {"customer": "c0", "n": N_OF_C0 + 1, "net": NET_OF_C0 + 10.0}


def test_a_step_that_is_gone_is_given_up_by_name_and_the_command_may_be_repeated(begun: Life) -> None:
    text = changed(TOTALS, ("name: sums,", "name: fresh,"), ("from: sums", "from: fresh"))
    command_line = CommandLineDirectives(drop=(OperatorName("sums"),))
    life = Life(text, begun, command_line)
    assert went_on(life) == {"customer": "c0", "n": 1, "net": 10.0}
    assert {handle.operator for handle in life.state.retained[-1].checkpoint.states} == {"fresh"}
    assert outcomes(Life(text, life, command_line)) == {"orders": UpgradeOutcome.KEPT, "fresh": UpgradeOutcome.KEPT}


def test_a_source_that_is_gone_is_given_up_by_name() -> None:
    two = changed(
        TOTALS,
        ("steps:", "  returns: {topic: returns, schema: {id: bigint, customer: string, amount: double}}\nsteps:"),
        ("from: big,", "from: [big, returns],"),
    )
    life = Life(two)
    life.produce("orders", *ORDERS)
    life.produce("returns", ONE_MORE)
    life.checkpoint()
    with pytest.raises(RestoreRefused, match=r"positions of source 'returns'.*--drop returns"):
        Life(TOTALS, life)
    command_line = CommandLineDirectives(drop=(OperatorName("returns"),), keep={OperatorName("sums"): ""})
    with pytest.raises(RestoreRefused, match=r"it no longer gets records of returns"):
        Life(TOTALS, life, CommandLineDirectives(drop=command_line.drop))
    after = Life(TOTALS, life, command_line)
    assert went_on(after)["n"] == N_OF_C0 + 2
    assert {one.source for one in after.state.retained[-1].checkpoint.positions} == {"orders"}


MANY = """\
parallelism: 2
sources:
  orders:
    topic: orders
    schema: {id: bigint, customer: string, amount: double, at: bigint}
    event_time: at
    watermark: {delay: 0s, idle: never}
steps:
  - {name: once, from: orders, dedup: {key: id, within: 1h}}
  - {name: minutes, from: once, key: customer, window: {tumbling: 1m}, aggregate: {n: count(*)}}
  - {name: visits, from: once, key: customer, window: {session: 30s}, aggregate: {n: count(*)}}
  - {name: newest, from: once, key: customer, keep: last}
  - {name: best, from: once, key: customer, keep: {by: amount, n: 2}}
sinks:
  minute: {from: minutes, topic: minute, key: customer}
  visit: {from: visits, topic: visit, key: customer}
  new: {from: newest, topic: new, key: customer}
  top: {from: best, topic: top, key: customer}
"""


def timed(first: int, count: int) -> list[dict[str, object]]:
    return [
        {"id": i, "customer": f"c{i % 2}", "amount": float(i), "at": 1_000_000 + (i + i // 100 * 60) * 1_000}
        for i in range(first, first + count)
    ]


def test_windows_sessions_duplicates_and_rankings_go_on_under_new_names() -> None:
    """What comes out is what comes out without a rename."""
    names = ["once", "minutes", "visits", "newest", "best"]
    renamed = MANY
    for name in names:
        renamed = re.sub(rf"name: {name},", f"name: {name}_2, was: {name},", renamed)
        renamed = re.sub(rf"from: {name},", f"from: {name}_2,", renamed)
    begun = Life(MANY)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()
    found = []
    for text in (MANY, renamed):
        life = Life(text, begun)
        life.produce("orders", *timed(45, 100))
        life.rest(5_000)
        life.checkpoint()
        sinks = ("minute", "visit", "new", "top")
        found.append({sink: sorted(map(str, life.output(sink))) for sink in sinks})
    assert found[0] == found[1]
    assert all(found[0].values())


def test_another_window_needs_a_word() -> None:
    begun = Life(MANY)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()
    text = changed(MANY, ("tumbling: 1m", "tumbling: 2m"))
    with pytest.raises(RestoreRefused, match=r"its window was tumbling 1m and is tumbling 2m"):
        Life(text, begun)
    visits = "aggregate: {n: count(*)}%s}\n  - {name: visits"
    life = Life(changed(text, (visits % "", visits % ", state: reset")), begun)
    assert outcomes(life)["minutes"] is UpgradeOutcome.RESET
    assert outcomes(life)["visits"] is UpgradeOutcome.KEPT


@pytest.mark.parametrize("window", ["{tumbling: 1m}", "{sliding: 1m, every: 30s}", "{session: 1m}"])
@pytest.mark.parametrize("early", ["", ", emit: {every: 10s}"])
def test_of_windows_that_are_not_there_any_more_no_late_record_makes_new_ones_unasked(window: str, early: str) -> None:
    """A longer lateness would give results of the late records alone."""
    short = changed(MANY, ("window: {tumbling: 1m}", f"window: {window}{early}, allowed_lateness: 1m"))
    long = changed(short, ("allowed_lateness: 1m", "allowed_lateness: 1h"))
    begun = Life(short)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()
    with pytest.raises(RestoreRefused, match=r"what has changed: the allowed lateness of orders"):
        Life(long, begun)
    kept = changed(long, ("allowed_lateness: 1h", "allowed_lateness: 1h, state: keep"))
    assert outcomes(Life(kept, begun))["minutes"] is UpgradeOutcome.KEPT


@pytest.mark.parametrize(
    "now",
    [
        "window: {tumbling: 2m}",  # open ones would be given as windows that began earlier
        "window: {sliding: 1m, every: 30s}",  # and be counted in two
        "window: {tumbling: 1m}, allowed_lateness: 1m",  # they would have no timers, and never be given
        "window: {tumbling: 1m}, emit: {every: 10s}",
        "window: {session: 1m}",
    ],
)
def test_open_windows_cannot_go_on_as_windows_of_another_kind(now: str) -> None:
    begun = Life(MANY)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()
    visits = "aggregate: {n: count(*)}%s}\n  - {name: visits"
    kept = changed(MANY, (visits % "", visits % ", state: keep"), ("window: {tumbling: 1m}", now))
    with pytest.raises(RestoreRefused, match=r"step 'minutes' cannot be read by the new definition.*`state: reset`"):
        Life(kept, begun)
    assert outcomes(Life(kept.replace("state: keep", "state: reset"), begun))["minutes"] is UpgradeOutcome.RESET


def test_a_word_that_is_spent_is_reported_where_it_does_nothing(begun: Life) -> None:
    reset = changed(TOTALS, ("net: sum(amount)}", "net: sum(amount)}, state: reset"))
    first = Life(reset, begun).checkpoint()
    (step,) = (one for one in first.check(reset).upgrade.steps if one.name == "sums")
    assert (step.outcome, step.remarks) == (
        UpgradeOutcome.KEPT,
        ("`state: reset` was applied to an earlier change, and has no effect now",),
    )


def test_a_key_of_another_type_can_only_be_reset(begun: Life) -> None:
    text = changed(TOTALS, ("customer: string", "customer: bigint"))
    with pytest.raises(RestoreRefused) as refused:
        Life(text, begun)
    assert "--reset sums" in refused.value.message
    assert "--keep sums" not in refused.value.message
    life = Life(changed(text, ("net: sum(amount)}", "net: sum(amount)}, state: reset")), begun)
    life.produce("orders", {"id": 1, "customer": 5, "amount": 9.0})
    assert last(life.checkpoint().output("out"), "customer", "net") == {5: 9.0}


def test_words_about_what_is_not_there_are_refused(begun: Life) -> None:
    for command_line, told in (
        (
            CommandLineDirectives(keep={OperatorName("sum"): ""}),
            r"--keep sum: there is no step.*[Dd]id you mean `sums`",
        ),
        (CommandLineDirectives(drop=(OperatorName("sum"),)), r"--drop sum: checkpoint 1 holds nothing of it"),
        (CommandLineDirectives(drop=(OperatorName("sums"),)), r"--drop sums would drop what the file still has"),
        (
            CommandLineDirectives(columns=((OperatorName("sums"), "net"),)),
            r"--drop sums.net: there is still a `net` in that step",
        ),
        (
            CommandLineDirectives(columns=((OperatorName("sum"), "net"),)),
            r"--drop sum.net: there is no step with state of that name",
        ),
        (CommandLineDirectives(drop=(OperatorName("orders"),)), r"--drop orders would drop what the file still has"),
    ):
        with pytest.raises(RestoreRefused, match=told):
            Life(TOTALS, begun, command_line)


def test_the_check_reads_every_file_as_a_start_would_and_changes_nothing(begun: Life) -> None:
    before = {name: begun.storage.get(name) for name in begun.storage.list("")}
    report = begun.check(RENAMED, migrate="memory")
    assert report.fits
    (one,) = report.migrated
    assert (one.step, one.state, one.entries, one.failure) == ("totals", "totals", 3, "")
    (step,) = [step for step in report.upgrade.steps if not step.source]
    assert (step.name, step.was, step.states[0].keys, step.states[0].verdict) == ("totals", "sums", 3, "as is")
    assert not begun.check(MEANT, migrate="memory").fits
    assert {name: begun.storage.get(name) for name in begun.storage.list("")} == before


def test_a_damaged_file_fails_the_dry_run(begun: Life) -> None:
    life = Life(TOTALS, begun).checkpoint()
    (handle, *_) = life.state.retained[-1].checkpoint.states
    life.storage.put(handle.path, life.storage.get(handle.path)[:-1] + b"?")
    report = life.check(TOTALS, migrate="memory")
    assert not report.fits
    assert "is not the file that the checkpoint wrote" in report.migrated[0].failure


@pytest.mark.parametrize("backend", ["memory", pytest.param("rocksdb", marks=pytest.mark.slow)])
def test_a_step_is_renamed_with_a_column_while_one_aggregate_begins_and_one_is_given_up(
    begun: Life, backend: str
) -> None:
    text = changed(
        RENAMED,
        ("was: sums,", "was: {step: sums, columns: {total: net}}, state: {drop: n},"),
        ("{n: count(*), net: sum(amount)}", "{total: sum(amount), seen: count(id)}"),
    )
    life = Life(text, begun, backend=backend)
    assert went_on(life) == {"customer": "c0", "total": NET_OF_C0 + 10.0, "seen": 1}
    assert life.identity.begun == {"totals": {"seen": 1}}
    later = changed(text, ("was: {step: sums, columns: {total: net}}, state: {drop: n}, ", ""))
    assert went_on(Life(later, life)) == {"customer": "c0", "total": NET_OF_C0 + 20.0, "seen": 2}


def test_an_aggregate_that_cannot_begin_where_keys_are_there_needs_an_empty_state(begun: Life) -> None:
    text = changed(TOTALS, ("{n: count(*),", "{first: first(id), n: count(*),"))
    with pytest.raises(RestoreRefused, match=r"cannot be read by the new definition: .*--reset sums"):
        Life(text, begun)


def test_windows_and_sessions_take_a_new_aggregate() -> None:
    begun = Life(MANY)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()
    life = Life(changed(MANY, ("{n: count(*)}", "{n: count(*), most: max(amount)}")), begun)
    life.produce("orders", *timed(50, 100))
    life.rest(5_000)
    life.checkpoint()
    assert any(row["most"] is not None for row in life.output("minute"))
    assert any(row["most"] is not None for row in life.output("visit"))
    assert life.identity.begun == {"minutes": {"most": 1}, "visits": {"most": 1}}


def test_a_migration_in_a_dry_run_counts_every_entry_and_an_incompatible_one_is_reported(begun: Life) -> None:
    text = changed(TOTALS, ("{n: count(*), net: sum(amount)}", "{n: count(*), net: sum(amount), ids: sum(id)}"))
    report = begun.check(text, migrate="memory")
    assert report.fits
    (step,) = [step for step in report.upgrade.steps if not step.source]
    assert step.states[0].verdict == "after migration"
    assert step.remarks == ("ids begins at checkpoint 1",)
    assert [(one.entries, one.failure) for one in report.migrated] == [(3, "")]


STOCK = """
sources:
  lines: {topic: lines, format: debezium, schema: {id: bigint, item: string, price: bigint}}
steps:
  - {name: stock, from: lines, key: item, aggregate: {n: count(*), least: min(price), most: max(price)}}
sinks:
  out: {from: stock, topic: out, key: item, on_null: {column: _deleted, write: tombstone}}
"""


def test_the_last_extreme_of_changes_can_only_be_given_up_with_the_whole_state() -> None:
    life = Life(STOCK)
    life.produce("lines", *({"op": "c", "after": {"id": i, "item": "ink", "price": i}} for i in range(3)))
    begun = life.checkpoint()
    fewer = changed(STOCK, (", least: min(price)", ""))
    with pytest.raises(RestoreRefused, match=r"drop it by name, `state: \{drop: \[least\]\}`"):
        Life(fewer, begun)
    Life(changed(fewer, ("most: max(price)}", "most: max(price)}, state: {drop: [least]}")), begun)  # its state stays

    none = changed(fewer, (", most: max(price)", ""))
    told = r"no longer has `least`, `most`, and without that it does not have the whole state `values_bigint`"
    with pytest.raises(RestoreRefused, match=told) as refused:
        Life(none, begun)
    assert "state: reset" in refused.value.message
    assert "and the other steps continue; nothing is retracted" in refused.value.message
    assert "drop" not in refused.value.message
    with pytest.raises(RestoreRefused, match="state: reset"):
        Life(changed(none, ("n: count(*)}", "n: count(*)}, state: {drop: [least, most]}")), begun)
    emptied = changed(none, ("n: count(*)}", "n: count(*)}, state: reset"))
    (step,) = [step for step in begun.check(emptied).upgrade.steps if not step.source]
    assert ["INCONSISTENT_CHANGE" in one for one in step.remarks] == [True]
    reset = Life(emptied, begun)
    reset.produce("lines", {"op": "c", "after": {"id": 9, "item": "ink", "price": 1}})
    assert last(reset.checkpoint().output("out"), "item", "n") == {"ink": 1}


def test_an_aggregate_is_given_up_once_by_the_command_line(begun: Life) -> None:
    text = changed(TOTALS, (", net: sum(amount)", ""))
    with pytest.raises(
        RestoreRefused, match=r"`state: \{drop: \[net\]\}` in the file, or for a single start --drop sums.net;"
    ):
        Life(text, begun)
    command_line = CommandLineDirectives(columns=((OperatorName("sums"), "net"),))
    life = Life(text, begun, command_line)
    assert went_on(life) == {"customer": "c0", "n": N_OF_C0 + 1}
    life = life.checkpoint()
    assert went_on(Life(text, life)) == {"customer": "c0", "n": N_OF_C0 + 2}
    assert went_on(Life(text, life, command_line)) == {"customer": "c0", "n": N_OF_C0 + 2}, "commands are repeated"
