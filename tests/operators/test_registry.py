"""The kinds of operators: found by looking, told apart by their tags, and enough for everything."""

from __future__ import annotations

import pytest

from tidegate.config.models import StepSettings
from tidegate.formats.failures import BadRecordPolicy
from tidegate.operators.mistakes import OperatorMistake, check_specs
from tidegate.operators.registry import choose_step_kind, kind_modules, kinds_in, operator_union, step_kinds
from tidegate.operators.spec import StepOperator


class _Unopened(StepOperator, frozen=True, tag="unopened"):
    bad_records: BadRecordPolicy


def test_an_operator_that_nothing_would_open_is_refused() -> None:
    with pytest.raises(OperatorMistake, match="has no `open`, and there is no module `runtime` next to it"):
        check_specs([_Unopened])


def test_every_module_is_a_kind_and_every_operator_has_a_tag_of_its_own() -> None:
    assert {one.KIND for one in kind_modules()} == {*step_kinds()}
    tags = [spec.__struct_config__.tag for spec in operator_union().__args__]
    assert len({*tags}) == len(tags) > len(kind_modules()), "sources, sinks and what the planner adds are among them"


def test_a_step_has_the_keys_of_all_kinds_and_is_of_the_kind_whose_word_it_has() -> None:
    step = StepSettings.model_validate({"name": "s", "from": "orders", "select": {"a": "1"}})
    assert choose_step_kind(step).key == "select"
    union = StepSettings.model_validate({"name": "s", "from": ["a", "b"]})
    assert choose_step_kind(union).key == ""
    keys = {key for kind in step_kinds() for key in kind.settings.model_fields}
    assert keys < set(StepSettings.model_fields)


def test_a_kind_with_keys_of_others_is_the_kind_of_a_step_with_their_keys() -> None:
    window = {"window": {"tumbling": "1s"}, "key": "id", "aggregate": {"n": "count(*)"}}
    step = StepSettings.model_validate({"name": "s", "from": "orders", **window})
    assert [kind.key for kind in kinds_in(step)] == ["window"]
    both = StepSettings.model_validate({"name": "s", "from": "orders", "where": "true", **window})
    assert [kind.key for kind in kinds_in(both)] == ["where", "window"]
