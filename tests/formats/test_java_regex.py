"""Patterns that Rust's engine cannot run with Java's meaning are refused by name."""

from __future__ import annotations

import polars as pl
import pytest

from tidegate.formats.java_regex import RegexRefused, derive_like_regex, derive_rust_regex, derive_rust_replacement


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)", "look-around"),
        ("(?<!a)b", "look-around"),
        ("(?>a)", "atomic"),
        (r"(a)\1", "back-reference"),
        ("a++", "possessive"),
        ("a{2}+", "possessive"),
        ("a**", "possessive"),
        ("*a", "anything to repeat"),
        ("a{", "not a quantifier"),
        ("a{,3}", "not a quantifier"),
        ("a{2000}", "repetitions"),
        ("a{1001}", "more than 1000 repetitions"),
        (f"a{{{'9' * 5_000}}}", "more than 1000 repetitions"),
        (f"a{{1,{'9' * 5_000}}}", "more than 1000 repetitions"),
        ("((a{1,100}){1,100}){1,100}", "multiply"),
        ("(.{1,100}){1,100}", "multiply"),
        ("(?:[^a]{100}|b){100}", "multiply"),
        ("(a", r"not closed; close it with `)`, or write '\\('"),
        ("a)", r"unmatched `)`; open its group with `(`, or write '\\)'"),
        ("[a", r"not closed; close it with `]`, or write '\\['"),
        ("[]a]", "empty class"),
        ("[a&&b]", "classes inside"),
        ("[a[b]]", "classes inside"),
        ("[z-a]", "empty"),
        (r"a\Z", r"\z"),
        (r"\h", r"\h"),
        (r"\p{L}", r"\p{L}"),
        ("a$b", r"`$` before the end"),
        ("(a$)b", r"`$` before the end"),
        ("(?:a|b$)c", r"`$` before the end"),
        ("a|(?:(b$)) ", r"`$` before the end"),
        ("(a$)?", r"`$` in a group that is repeated"),
        ("(?m)^a", "flags"),
        ("a(?i)b", "a flag inside"),
        ("a\\", "backslash"),
    ],
)
def test_a_pattern_without_javas_meaning_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(RegexRefused) as caught:
        derive_rust_regex(pattern)
    assert why in f"{caught.value}; {caught.value.remedy}"


@pytest.mark.parametrize(
    "pattern", ["(a{1,100}){1,100}", "a{1,1000}", "a{0001000}", ".{1,1000}", "([a-z]+,){1,500}", r"(\d{1,3}\.){3}\d"]
)
def test_X14_a_repetition_that_stays_small_is_taken(pattern: str) -> None:
    found = derive_rust_regex(pattern)
    assert pl.Series(["a1.2.3.4,"]).str.contains(found.pattern).to_list()[0] in (True, False)


@pytest.mark.parametrize(
    ("pattern", "nullable"),
    [("a*", True), ("a+", False), ("a|", True), ("(a?)(b*)", True), ("^", True), ("a{0,2}", True), ("x(a?)", False)],
)
def test_whether_a_pattern_can_match_nothing(pattern: str, nullable: bool) -> None:
    assert derive_rust_regex(pattern).nullable is nullable


def test_groups_are_counted() -> None:
    assert derive_rust_regex("(a)(?:b)(?<name>c)").groups == 2


@pytest.mark.parametrize(
    ("pattern", "ending"),
    [("(a)$", ()), ("(a)(,|$)", (2,)), ("(a)(?:,|$)", ()), ("a|((b)|c$)", (1,)), ("(?<x>a(b$|c)|d)", (1, 2))],
)
def test_groups_in_which_the_text_ends_are_known(pattern: str, ending: tuple[int, ...]) -> None:
    found = derive_rust_regex(pattern)
    assert found.ends
    assert found.ending == set(ending)


@pytest.mark.parametrize(
    ("replacement", "groups", "expected"),
    [("$1", 1, "${1}"), ("$10", 1, "${1}0"), (r"\$1", 1, "$$1"), ("a", 0, "a"), (r"\\", 0, "\\")],
)
def test_a_replacement_is_rewritten(replacement: str, groups: int, expected: str) -> None:
    assert derive_rust_replacement(replacement, groups) == expected


@pytest.mark.parametrize("replacement", ["$2", "$", "a\\", "${x}"])
def test_a_replacement_without_its_group_is_refused(replacement: str) -> None:
    with pytest.raises(RegexRefused):
        derive_rust_replacement(replacement, 1)


def test_a_like_pattern_with_a_stray_escape_is_refused() -> None:
    with pytest.raises(RegexRefused):
        derive_like_regex("a\\b", "\\")
