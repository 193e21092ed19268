"""Where a value was cut within braces, and in which quotes it is whole."""

from __future__ import annotations

import pytest

from tidegate.config.document import find_cut_value, is_cut, quote


@pytest.mark.parametrize("text", ["round(x", "f(g(x)", "array<struct<a:int", "a in ('('"])
def test_an_open_bracket_is_a_cut(text: str) -> None:
    assert is_cut(text)


@pytest.mark.parametrize("text", ["round(x)", "a < 5", "'(' || a", "array<int>", "x)"])
def test_a_closed_bracket_a_comparison_and_a_quoted_one_are_none(text: str) -> None:
    assert not is_cut(text)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("a in ('x')", "\"a in ('x')\""), ("\"A\" = 'b'", "'\"A\" = ''b'''"), ("rlike(a, '\\d')", "'rlike(a, ''\\d'')'")],
)
def test_a_value_is_put_into_the_quotes_that_it_needs(text: str, quoted: str) -> None:
    assert quote(text) == quoted


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("a: {x: in ('a', 'b'), y: 1}", "in ('a', 'b')"),
        ("a: {x: f('a', g('b')) + 1} # x", "f('a', g('b')) + 1"),
        ("a: {x: 'a', y: b c: d}", None),
        ("a: {x: in ('a', 'b'", None),
    ],
)
def test_the_whole_value_is_found_in_its_line(line: str, found: str | None) -> None:
    place = line.find("'b'")
    assert find_cut_value(line, len(line) if place < 0 else place + 4) == found
