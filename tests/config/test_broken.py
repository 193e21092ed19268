"""What is said of broken pipeline files, word for word; and that nothing a file holds leads to a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.config.broken_files import answer, broken_files, problems
from tests.depth import DEPTH
from tidegate.config.draft import SAMPLE
from tidegate.config.errors import ConfigErrors
from tidegate.config.load import parse_pipeline
from tidegate.plan.build import check_pipeline

pytestmark = pytest.mark.filterwarnings("error")


def test_there_are_at_least_40_broken_files() -> None:
    assert len(broken_files()) >= 40


@pytest.mark.parametrize("path", broken_files(), ids=lambda path: path.stem)
def test_broken_file_is_answered_with_place_and_remedy(path: Path) -> None:
    assert answer(path) == path.with_suffix(".txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", broken_files(), ids=lambda path: path.stem)
def test_every_problem_has_a_remedy_and_a_place_in_the_file(path: Path) -> None:
    lines = path.read_bytes().decode("utf-8", "replace").split("\n")
    for problem in problems(path):
        assert problem.remedy
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 1


def test_aliases_cannot_be_nested_deeper_than_brackets() -> None:
    lines = ["x0: &x0 " + "[" * 28 + "1" + "]" * 28]
    lines += [f"x{i}: &x{i} " + "[" * 28 + f"*x{i - 1}" + "]" * 28 for i in range(1, 150)]
    with pytest.raises(ConfigErrors, match="nested deeper than 32 levels; write fewer aliases"):
        parse_pipeline("\n".join(lines), "deep.yaml", {})


@pytest.mark.parametrize("path", broken_files(), ids=lambda path: path.stem)
def test_a_problem_is_one_line_that_can_be_shown(path: Path) -> None:
    for problem in problems(path):
        assert str(problem).isprintable()
        assert len(problem.message) < 1000
        assert len(problem.path) < 200


def look_at(text: str) -> None:
    """Check a text as a pipeline file; only ConfigErrors may come out."""
    try:
        checked = check_pipeline(parse_pipeline(text, "fuzz.yaml", {"HOME": "/root"}))
    except ConfigErrors as error:
        assert error.problems
    else:
        assert (checked.plan is None) == bool(checked.problems)


LINES = SAMPLE.splitlines(keepends=True)
WORDS = st.sampled_from(
    [
        "null",
        "[]",
        "{}",
        "-1",
        "1e999",
        "no",
        "'",
        '"',
        "${X}",
        "$${",
        "{a: [b",
        "&a",
        "*a",
        "!!int x",
        "|",
        "\t",
        ".nan",
    ]
)


@pytest.mark.slow
@settings(max_examples=100 * DEPTH, deadline=None)
@given(st.text(max_size=200))
@example("a: &a [*a]")
@example("&a a: *a")
@example("? [a]\n: b")
@example("\ufeffversion: 1")
@example("[" * 100_000)
@example("a: " * 1000)
@example("--- \n...\n---\n")
def test_any_text_gives_problems_and_no_traceback(text: str) -> None:
    look_at(text)


@pytest.mark.slow
@settings(max_examples=100 * DEPTH, deadline=None)
@given(st.data())
def test_a_changed_sample_gives_problems_and_no_traceback(data: st.DataObject) -> None:
    lines = list(LINES)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        kind = data.draw(st.sampled_from(["drop", "repeat", "cut", "value", "swap", "word"]))
        if kind == "drop":
            lines[at] = "\n"
        elif kind == "repeat":
            lines[at] = line + line
        elif kind == "cut":
            lines[at] = line[: data.draw(st.integers(0, len(line)))] + "\n"
        elif kind == "value":
            lines[at] = line.partition(":")[0] + ": " + data.draw(WORDS) + "\n"
        elif kind == "word":
            place = data.draw(st.integers(0, len(line)))
            lines[at] = line[:place] + data.draw(WORDS | st.text(max_size=5)) + line[place:]
        else:
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
    look_at("".join(lines))


@pytest.mark.slow
@settings(max_examples=70 * DEPTH, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(
        ["sources", "steps", "sinks", "kafka", "spark", "checkpoints", "name", "restart", "http", "version"]
    ),
)
def test_any_value_in_any_section_gives_problems_and_no_traceback(value: object, section: str) -> None:
    import yaml

    good = yaml.safe_load(SAMPLE)
    good[section] = value
    look_at(yaml.safe_dump(good))
