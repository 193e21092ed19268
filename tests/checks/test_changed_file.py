"""A changed file against the checkpoints that are there: the same verdict by `validate --connect` and by `run`.

Journal, storage and broker are real; Spark is what must not be reached.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from tests.checks.shop import SPARK, Document, Shop, set_in
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.daemon.restore_point import StartOptions
from tidegate.ids import OperatorName

pytestmark = pytest.mark.slow


def rename_source(document: Document) -> None:
    document["sources"]["sales"] = document["sources"].pop("orders")
    document["steps"][0]["from"] = "sales"


def rename_step(document: Document) -> None:
    document["steps"][0]["name"] = document["sinks"]["out"]["from"] = "sums"


def remove_step(document: Document) -> None:
    document["steps"] = []
    document["sinks"]["out"]["from"] = "orders"


Word = Callable[[Document], None] | CommandLineDirectives | None
CHANGES: dict[str, tuple[Callable[[Document], None], str, Word]] = {
    "max_parallelism": (set_in("max_parallelism", value=64), "max_parallelism was 128 and is now 64", None),
    "name": (set_in("name", value="another"), "belongs to pipeline", None),
    "a source renamed": (
        rename_source,
        "positions of source 'orders', which the pipeline no longer has",
        set_in("sources", "sales", "was", value="orders"),
    ),
    "a step renamed": (
        rename_step,
        "state of step 'totals', which the pipeline no longer has",
        set_in("steps", 0, "was", value="totals"),
    ),
    "a step removed": (
        remove_step,
        "state of step 'totals', which the pipeline no longer has",
        CommandLineDirectives(drop=(OperatorName("totals"),)),
    ),
    "another key": (
        set_in("steps", 0, "key", value="id"),
        "state of step 'totals' cannot be read by the new definition",
        set_in("steps", 0, "state", value="reset"),
    ),
    "another choice of records": (
        set_in("steps", 0, "aggregate", value={"seen": "count(*)", "least": "min(n + 1)"}),
        "state of step 'totals' was made by another definition; what has changed: `least` of orders",
        set_in("steps", 0, "state", value={"keep": "one more from here on"}),
    ),
    "another type": (
        set_in("sources", "orders", "schema", "n", value="string"),
        "state of step 'totals' cannot be read by the new definition",
        CommandLineDirectives(reset={OperatorName("totals"): "texts now"}),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_X17_a_change_that_no_checkpoint_fits_is_refused_alike_before_spark(
    shop: Shop, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words, word = CHANGES[name]
    shop.checkpoint()
    before = copy.deepcopy(shop.document)
    change(shop.document)
    code, (problem,) = shop.validate()
    assert code == 4
    assert words in problem
    places = ("checkpoints.directory: ", "steps.totals.name: ")
    assert any(place in problem for place in places), "its place in the file"
    assert shop.run() == 4
    assert words in capsys.readouterr().err
    if isinstance(word, CommandLineDirectives):
        assert shop.run(StartOptions(command_line=word)) == SPARK
        assert "keys of its state totals, " in capsys.readouterr().err
    elif word is not None:
        word(shop.document)
        assert shop.validate() == (0, [])
        assert shop.run() == SPARK
    shop.document = before
    assert shop.validate() == (0, [])


def test_a_number_that_becomes_wider_fits_the_checkpoint_and_one_that_becomes_narrower_does_not(shop: Shop) -> None:
    shop.checkpoint()
    set_in("sources", "orders", "schema", "n", value="bigint")(shop.document)
    assert shop.validate() == (0, [])
    assert shop.run() == SPARK
    shop.checkpoint()
    set_in("sources", "orders", "schema", "n", value="int")(shop.document)
    code, (problem,) = shop.validate()
    assert code == 4
    assert "least.min was bigint and is int" in problem
    assert shop.run(StartOptions(command_line=CommandLineDirectives(reset={OperatorName("totals"): ""}))) == SPARK
