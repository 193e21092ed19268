"""A valid expression that probably means something else is remarked upon, with its place."""

from __future__ import annotations

import pytest

from tests.expressions.compiled.test_edges import evaluate
from tidegate.expressions.parse import find_remarks

MASKED = r"regexp_replace(s, '(..).*', '{}*')"


@pytest.mark.parametrize("group", [r"\1", r"\\1"])
def test_a_backslash_and_a_digit_in_a_replacement_is_the_digit_and_remarked_upon(group: str) -> None:
    text = f"upper({MASKED.format(group)}) = 'x'"
    [remark] = find_remarks(text)
    assert (remark.column, remark.problem) == (35, r"`\1` in a replacement is the text `1`, not a group")
    assert remark.remedy == "write `$1` for the group"
    assert evaluate(MASKED.format(group), "s string", ("abcd",)) == (["1*"], []), "as Spark"
    assert evaluate(MASKED.format("$1"), "s string", ("abcd",)) == (["ab*"], []), "the remedy"


@pytest.mark.parametrize("text", [MASKED.format("$1"), MASKED.format(r"\\$1"), r"replace(s, 'a', '\1')", "s +"])
def test_what_means_what_it_says_is_not(text: str) -> None:
    assert find_remarks(text) == ()
