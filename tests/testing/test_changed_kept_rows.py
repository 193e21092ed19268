"""Columns of kept rows that are new, gone or another; keys under another name."""

from __future__ import annotations

import pytest

from tests.testing.changed_pipeline import Life
from tests.testing.test_changed_pipelines import MANY, TOTALS, changed, outcomes, timed
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.upgrade import UpgradeOutcome
from tidegate.coordinator.upgrade_decision import UNDECIDED
from tidegate.ids import OperatorName


def test_a_column_of_kept_rows_that_is_gone_can_be_renamed_or_given_up() -> None:
    begun = Life(MANY)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()
    narrow = (
        "  - {name: slim, from: once, select: {%s: id, customer: customer, amount: amount, at: at}}\n  - {name: best,"
    )
    best = ("  - {name: best, from: once,", narrow + " from: slim,")
    with pytest.raises(RestoreRefused, match=r"drop: \[id\].*columns: \{new_name: id\}"):
        Life(changed(MANY, (best[0], best[1] % "number")), begun)
    renamed = ("n: 2}}", "n: 2}, was: {columns: {number: id}}}")
    assert outcomes(Life(changed(MANY, (best[0], best[1] % "number"), renamed), begun))["best"] is UpgradeOutcome.KEPT
    fewer = changed(MANY, (best[0], (best[1] % "id").replace("id: id, ", "")))
    with pytest.raises(RestoreRefused, match=r"step 'best' no longer has `id`, which its state contains"):
        Life(fewer, begun)
    given_up = changed(fewer, ("n: 2}}", "n: 2}, state: {drop: [id]}}"))
    assert outcomes(Life(given_up, begun))["best"] is UpgradeOutcome.KEPT
    assert outcomes(Life(given_up, Life(given_up, begun).checkpoint()))["best"] is UpgradeOutcome.KEPT


@pytest.mark.parametrize(("word", "default"), [("", None), (", state: {defaults: {size: 7}}", 7)])
def test_a_column_that_is_new_in_kept_rows_begins_at_the_checkpoint(word: str, default: int | None) -> None:
    begun = Life(MANY)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()
    wide = (
        "  - {name: wide, from: once, select: {id: id, customer: customer, amount: amount, at: at, size: id + 1}}\n"
        "  - {name: best, from: wide,"
    )
    text = changed(MANY, ("  - {name: best, from: once,", wide), ("n: 2}}", f"n: 2}}{word}}}"))
    (step,) = [step for step in begun.check(text).upgrade.steps if step.name == "best"]
    assert (step.outcome, step.remarks) == (UpgradeOutcome.KEPT, ("size begins at checkpoint 1",))
    life = Life(text, begun)
    life.produce("orders", {"id": 900, "customer": "c0", "amount": 1000.0, "at": 1_100_000})
    rows = life.checkpoint().output("top")
    assert {(row["id"], row["size"]) for row in rows if row["customer"] == "c0"} >= {(900, 901), (48, default)}


def test_columns_with_a_dot_in_their_names_are_new_renamed_and_given_up_as_others_are() -> None:
    begun = Life(MANY)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()

    def wide(name: str, words: str = "") -> str:
        step = (
            "  - {name: wide, from: once, "
            f"select: {{id: id, customer: customer, amount: amount, at: at, {name}: id}}}}\n"
            "  - {name: best, from: wide,"
        )
        return changed(MANY, ("  - {name: best, from: once,", step), ("n: 2}}", f"n: 2}}{words}}}"))

    with_size = Life(wide("own.size"), begun)
    assert outcomes(with_size)["best"] is UpgradeOutcome.KEPT
    with_size.checkpoint()
    renamed = wide("own.width", ", was: {columns: {own.width: own.size}}")
    assert outcomes(Life(renamed, with_size))["best"] is UpgradeOutcome.KEPT
    with pytest.raises(RestoreRefused, match=r"step 'best' no longer has `own\.size`"):
        Life(MANY, with_size)
    given_up = changed(MANY, ("n: 2}}", "n: 2}, state: {drop: [own.size]}}"))
    assert outcomes(Life(given_up, with_size))["best"] is UpgradeOutcome.KEPT


def test_another_origin_of_a_column_of_kept_rows_needs_a_word() -> None:
    begun = Life(MANY)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()
    other = (
        "  - {name: other, from: once, select: {id: id + 1, customer: customer, amount: amount, at: at}}\n"
        "  - {name: best, from: other,"
    )
    text = changed(MANY, ("  - {name: best, from: once,", other))
    with pytest.raises(RestoreRefused, match=r"step 'best' was made by another definition; what has changed: `id` of"):
        Life(text, begun)


def test_a_key_under_another_name_is_offered_the_word_that_keeps_its_state() -> None:
    begun = Life(TOTALS)
    begun.produce("orders", {"id": 2, "customer": "c0", "amount": 2.0})
    begun.checkpoint()
    named = "  - {name: named, from: big, select: {client: customer, amount: amount}}\n  - {name: sums, from: named,"
    text = changed(
        TOTALS,
        ("  - {name: sums, from: big,", named),
        ("key: customer, aggregate", "key: client, aggregate"),
        ("topic: out, key: customer", "topic: out, key: client"),
    )
    with pytest.raises(
        RestoreRefused, match=r"`was: \{columns: \{client: customer\}\}`, which keeps the state"
    ) as refused:
        Life(text, begun)
    assert "state: reset" in refused.value.message
    kept = Life(changed(text, ("net: sum(amount)}", "net: sum(amount)}, was: {columns: {client: customer}}")), begun)
    kept.produce("orders", {"id": 3, "customer": "c0", "amount": 3.0})
    assert kept.checkpoint().output("out")[-1] == {"client": "c0", "n": 2, "net": 5.0}


def test_a_step_that_is_gone_is_in_the_table_with_its_keys() -> None:
    begun = Life(MANY)
    begun.produce("orders", *timed(0, 50))
    begun.checkpoint()
    lines = [line for line in MANY.splitlines(keepends=True) if "newest" not in line]
    (step,) = [one for one in begun.check("".join(lines)).upgrade.steps if one.name == "newest"]
    assert step.outcome is UpgradeOutcome.REFUSED
    assert [(one.verdict, one.keys) for one in step.states] == [(UNDECIDED, 2)]


def test_a_word_that_nothing_needs_is_remarked() -> None:
    begun = Life(TOTALS)
    begun.produce("orders", {"id": 2, "customer": "c0", "amount": 2.0})
    begun.checkpoint()
    text = changed(TOTALS, ("net: sum(amount)}", "net: sum(amount)}, state: keep"))
    (step,) = [one for one in begun.check(text).upgrade.steps if one.name == OperatorName("sums")]
    assert step.remarks == ("`keep` has no effect: nothing has changed that needs it",)
