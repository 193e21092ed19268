"""JSON text that the standard library refuses: in time in proportion to the text, whatever is in it."""

from __future__ import annotations

import pytest

from tidegate.expressions.compiled.json_text import Malformed, TooDeep, read_json


@pytest.mark.timeout(method="signal")  # the other method's thread waits for a pattern
@pytest.mark.parametrize("quote", ['"', "'"])
def test_text_that_is_cut_off_within_a_string_is_looked_through_once(quote: str) -> None:
    """Where each quote of JSON inside the string begins a search to the end, it takes hours."""
    log = f"x{{{quote}log{quote}: {quote}" + f"{{\\{quote}k\\{quote}:1}}," * 200_000
    with pytest.raises(Malformed):
        read_json(log, controls=True, constants=False)


@pytest.mark.timeout(method="signal")
def test_the_text_is_not_searched_again_for_each_of_its_strings() -> None:
    """Where it is, it takes a quarter of an hour."""
    text = "[" + "'', " * 20_000 + "1]" + "\\" * 20_000_000
    assert read_json(text, controls=True, constants=False) == [""] * 20_000 + ["1"]


def test_halves_of_a_character_become_one_also_in_single_quotes() -> None:
    assert read_json(r"['', '\ud83d\ude00']", controls=True, constants=False) == ["", "\U0001f600"]


@pytest.mark.parametrize(
    "text",
    ["[" * 201, """[{"a": "'", 'b': '"\\'', "\\"": """ + "[" * 199, '["\\\\",' + "[" * 200],
)
def test_brackets_count_only_outside_of_strings(text: str) -> None:
    with pytest.raises(TooDeep):
        read_json(text, controls=True, constants=False)


@pytest.mark.parametrize("text", ["[" * 200, '["' + "[" * 200, "['\"" + "[" * 200 + "\\"])
def test_brackets_in_a_string_that_is_not_closed_do_not_make_the_text_deep(text: str) -> None:
    with pytest.raises(Malformed):
        read_json(text, controls=True, constants=False)
