"""Every kind of step keeps the contract of an operator: whatever the registry finds, nothing is listed here."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import polars as pl
import pytest
from typing_extensions import override

from tests.operators.contract import find_breaches, plan_of, tried_of
from tidegate.config.errors import ConfigErrors
from tidegate.operators import kinds
from tidegate.operators.kinds.filter import FilterOperator
from tidegate.operators.registry import operator_union, step_kinds
from tidegate.operators.runtime import OperatorRuntime, Out
from tidegate.operators.spec import Slot, StepOperator
from tidegate.operators.step import StepKind

CASES = [
    (kind, example, record_format)
    for kind in step_kinds()
    for example in kind.examples
    for record_format in ("json", "debezium")
]


def test_every_kind_has_an_example() -> None:
    assert [kind.key for kind in step_kinds() if not kind.examples] == []


def test_every_operator_that_a_step_can_become_is_tried() -> None:
    tried: set[type[StepOperator]] = set()
    for case in CASES:
        with contextlib.suppress(ConfigErrors):
            tried |= {type(spec) for spec, _ in tried_of(plan_of(*case))}
    own = {spec for spec in operator_union().__args__ if spec.__module__.startswith(kinds.__name__)}
    assert own - tried == set()


@pytest.mark.parametrize(("kind", "example", "record_format"), CASES, ids=lambda one: getattr(one, "key", one))
def test_an_operator_keeps_the_contract(kind: StepKind, example: str, record_format: str) -> None:
    try:
        plan = plan_of(kind, example, record_format)
    except ConfigErrors as refused:
        assert record_format == "debezium", refused
        return
    found = {str(spec.name): find_breaches(spec, ports) for spec, ports in tried_of(plan)}
    assert found, "the step has operators"
    assert not any(found.values()), found


class BackwardsRuntime(OperatorRuntime):
    """Passes the rows of a batch in the opposite order."""

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        out.emit(batch.reverse())


class Backwards(FilterOperator, frozen=True, tag="backwards"):
    """A filter without an exchange."""

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        return BackwardsRuntime()


def test_an_operator_without_keys_that_reorders_rows_has_to_declare_it() -> None:
    filtering = next(kind for kind in step_kinds() if kind.key == "where")
    ((spec, ports),) = tried_of(plan_of(filtering, filtering.examples[0]))
    fields = {name: getattr(spec, name) for name in spec.__struct_fields__}
    found = find_breaches(cast("Any", Backwards)(**fields), ports)
    assert "emits rows in another order on its output, and keeps_order() is True" in found
