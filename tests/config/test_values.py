"""YAML 1.2 scalars, interpolation, and places inside scalars."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from tidegate.config.document import DocumentBroken, MappingNode, derive_tree
from tidegate.config.values import (
    InterpolationFailed,
    Value,
    ValueReader,
    derive_interpolated,
    derive_place_inside,
    derive_scalar,
)


def no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def values_of(text: str, **environ: str) -> dict[str, Value]:
    tree, _ = derive_tree(text)
    assert isinstance(tree, MappingNode)
    reader = ValueReader(environ, no_file)
    result = reader.read_mapping(tree)
    assert not reader.problems
    return result


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("12:30:45", "12:30:45"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("~", None),
        ("", None),
        ("1e3", 1000.0),
        ("+.5", 0.5),
        ("-.inf", float("-inf")),
        (".", "."),
        ("0o8", "0o8"),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    result = derive_scalar(text)
    assert (type(result), result) == (type(value), value)


@pytest.mark.parametrize("text", ["1.10", "1e2", "12345678901234567.89", "1" * 41, "-.5", "1E+3", ".inf"])
def test_a_number_with_a_fraction_is_known_as_it_is_written(text: str) -> None:
    """An expression and a property are text, from which YAML has only taken the quotes."""
    value = values_of(f"a: {text}")["a"]
    assert isinstance(value, float)
    assert str(value) == f"{value}" == text
    assert type(values_of("a: ${X}", X=text)["a"]) is type(value)
    assert str(values_of("a: ${X}", X=text)["a"]) == text


@pytest.mark.parametrize("text", ["0042", "+5", "-007", "0x1F", "0o17"])
def test_a_whole_number_that_is_a_text_stays_as_it_is_written(text: str) -> None:
    """A password, or the value of a property."""
    value = values_of(f"a: {text}")["a"]
    assert (value, str(value)) == (derive_scalar(text), text)
    assert str(values_of("a: ${X}", X=text)["a"]) == text
    assert type(values_of("a: 42")["a"]) is int


def test_quoted_scalars_are_text() -> None:
    assert values_of("a: '1'\nb: \"true\"\nc: !!str 5\nd: |\n  no\n") == {"a": "1", "b": "true", "c": "5", "d": "no\n"}


def test_keys_are_text() -> None:
    assert values_of("{0: 17, true: 4}") == {"0": 17, "true": 4}


def test_aliases_are_values_again() -> None:
    assert values_of("a: &x {b: 1}\nc: *x\n") == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.slow
def test_an_alias_bomb_is_refused() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + level)}: &{chr(98 + level)} [{', '.join(['*' + chr(97 + level)] * 8)}]\n" for level in range(8)
    )
    tree, _ = derive_tree(bomb)
    assert isinstance(tree, MappingNode)
    with pytest.raises(DocumentBroken, match="values"):
        ValueReader({}, no_file).read_mapping(tree)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${A}", "1"),
        ("x${A}y${B:2}z", "x1y2z"),
        ("${B:}", ""),
        ("${B:a:b}", "a:b"),
        ("$${A}", "${A}"),
        ("^a$", "^a$"),
        ("$A", "$A"),
        ("${NEST}", "${A}"),
        ("a ${OP:=} b", "a = b"),
        ("${B:+5}", "+5"),
    ],
)
def test_interpolation(text: str, result: str) -> None:
    assert derive_interpolated(text, {"A": "1", "NEST": "${A}"}, no_file).text == result


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("${A:-out}", "`${A:-out}`: the default follows the colon, so it would be `-out`", "write ${A:out}"),
        ("${A:-}", "`${A:-}`: the default follows the colon, so it would be `-`", "write ${A:}"),
        ("${A:?not set}", "`${A:?not set}`: the default follows the colon, so it would be `?not set`", "write ${A}"),
        ("${A:=/data}", "`${A:=/data}`: the default follows the colon, so it would be `=/data`", "write ${A:/data}"),
        ("${B:x${A:y}}", "a variable within `${B:x${A:y}`: they cannot be nested", "write one default"),
        ("${file:}", "`${file:}` names no file", "for instance ${file:/run/secrets/password}"),
        (
            "${B}",
            "the variable `B` is not set",
            "set it, give a default as in ${B:...}, or write `$${B}` for a literal `${B}`",
        ),
        (
            "${1}",
            "`${1}` names no variable",
            "write `$1` for a group of a regular expression, or `$${1}` for a literal `${1}`",
        ),
        (
            "${a-b}",
            "`${a-b}` names no variable",
            "use ${NAME}, ${NAME:default} or ${file:/path}, or write `$${a-b}` for a literal `${a-b}`",
        ),
        (
            "${file:x}",
            "the file `x` cannot be read: No such file or directory",
            "write its whole path: it is looked for in the working directory",
        ),
    ],
)
def test_references_as_shells_have_them_are_refused_and_not_guessed_at(text: str, message: str, remedy: str) -> None:
    with pytest.raises(InterpolationFailed) as caught:
        derive_interpolated(text, {"A": "1"}, no_file)
    assert caught.value.problems == [(message, remedy)]


@pytest.mark.parametrize("text", ["", "a", "${A}", "$${A}", "x${A}$${B}${E:}y${D:1}z", "${A}${A}"])
def test_what_was_replaced_is_known_by_its_place(text: str) -> None:
    found = derive_interpolated(text, {"A": "one", "D": ""}, no_file)
    assert found.derive_written(0, len(found.text)) == text
    assert found.derive_sources(0, len(found.text)) == tuple(dict.fromkeys(found.sources))


def test_a_part_of_a_text_has_come_from_some_of_the_variables() -> None:
    found = derive_interpolated("a ${A} '${E:}' $${B}", {"A": "'x'"}, no_file)
    assert found.text == "a 'x' '' ${B}"
    assert (found.derive_sources(3, 4), found.derive_written(3, 4)) == (("A",), "${A}")
    assert (found.derive_sources(6, 8), found.derive_written(6, 8)) == (("E",), "'${E:}'")
    assert (found.derive_sources(8, 13), found.derive_written(8, 13)) == ((), " $${B}")


@pytest.mark.parametrize("number", ["-5", "-0.5", "-1e3", "-.5", "-Xmx1g -ea"])
def test_a_default_may_be_negative_and_options_begin_with_a_sign(number: str) -> None:
    assert values_of(f"spark: {{x: '${{N:{number}}}'}}") == {"spark": {"x": number}}
    if not number.startswith("-X"):
        assert derive_interpolated(f"${{N:{number}}}", {}, no_file).text == number


def test_interpolated_plain_scalars_get_a_type_and_quoted_ones_do_not() -> None:
    assert values_of("a: ${N}\nb: '${N}'\nc: ${N}s", N="5") == {"a": 5, "b": "5", "c": "5s"}


def test_interpolation_cannot_inject_structure() -> None:
    assert values_of("a: ${N}", N="{b: 1}\nc: 2") == {"a": "{b: 1}\nc: 2"}


def test_all_problems_of_a_scalar_come_at_once() -> None:
    with pytest.raises(InterpolationFailed) as caught:
        derive_interpolated("${A}${B}${file:/x}${", {}, no_file)
    assert len(caught.value.problems) == 4


def test_a_file_is_a_secret_without_its_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("tide\n")
    result = derive_interpolated(f"${{file:{tmp_path}/password}}", {}, lambda path: Path(path).read_text())
    assert (result.text, result.secret) == ("tide", True)


def test_a_secret_does_not_show_in_a_value() -> None:
    tree, _ = derive_tree("a: ${file:/x}")
    assert isinstance(tree, MappingNode)
    value = ValueReader({}, lambda _: "hunter2").read_mapping(tree)["a"]
    assert isinstance(value, SecretStr)
    assert "hunter2" not in f"{value!r} {value}"


TEXT = st.text(st.sampled_from("ab 'c\"\\:#\n\té€"), min_size=1, max_size=30).map(str.strip).filter(bool)


def written(text: str, style: str) -> str:
    """YAML that holds the text under `a.b`, in one of the scalar styles."""
    if style == "'":
        return "a:\n  b: '" + text.replace("'", "''").replace("\n", " ") + "'\n"
    if style == '"':
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'a:\n  b: "{escaped}"\n'
    indented = "".join(f"    {line}\n" for line in text.replace("\t", " ").split("\n"))
    return f"a:\n  b: {style}\n{indented}"


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029"])
def test_lines_are_those_of_editors(character: str) -> None:
    """To YAML 1.1 such a character ends a line."""
    tree, _ = derive_tree(f"first: 'x{character}y'\nsecond: {{a: 1}}\n")
    assert isinstance(tree, MappingNode)
    (_, first), (_, second) = tree.entries
    assert (first.mark.line, first.mark.column) == (1, 8)
    assert (second.mark.line, second.mark.column) == (2, 9)
    with pytest.raises(DocumentBroken) as found:
        derive_tree(f"first: 'x{character}y'\nsecond: {{a: 1, b: ]}}\n")
    assert (found.value.problem.mark.line, found.value.problem.mark.column) == (2, 19)


@pytest.mark.slow
@given(TEXT, st.sampled_from(["'", '"', "|", ">-"]))
def test_a_place_inside_a_scalar_is_the_place_of_that_character_in_the_file(text: str, style: str) -> None:
    source = written(text, style)
    tree, _ = derive_tree(source)
    assert isinstance(tree, MappingNode)
    reader = ValueReader({}, no_file)
    values = reader.read_mapping(tree)
    inner = values["a"]
    assert isinstance(inner, dict)
    value = inner["b"]
    assert isinstance(value, str)
    lines = source.split("\n")
    for number, line in enumerate(value.split("\n"), 1):
        for column, character in enumerate(line, 1):
            if character.isspace():
                continue
            found = derive_place_inside(source, reader.places["a", "b"], value, number, column)
            there = lines[found[0] - 1][found[1] - 1 :]
            assert there.startswith((character, "\\" + character))


def test_a_variable_that_is_not_utf_8_is_refused() -> None:
    """Python has half characters for its bytes, at which everything that makes bytes of them failed."""
    with pytest.raises(InterpolationFailed) as caught:
        derive_interpolated("a ${A}", {"A": b"caf\xe9".decode(errors="surrogateescape")}, no_file)
    ((message, remedy),) = caught.value.problems
    assert (message, remedy) == ("the value of the variable `A` is not UTF-8 text", "set it to one that is")
