"""What `dead-letters show` and `list` print of records that somebody may have made to be printed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Self

import confluent_kafka as ck
import pytest
from click.testing import CliRunner

from tidegate.cli.letters import command
from tidegate.cli.letters.replay import Replayed
from tidegate.cli.letters.topic import letter_of
from tidegate.formats import letters
from tidegate.formats.letters.letter import Letter

OWN = ("name\x1b]0;title\x07", b"1")
ABOUT = [(letters.KIND, b"UNKNOWN_FIELD"), (letters.STEP, b"orders"), (letters.HEADERS, b"1")]
MESSAGE = ck.Message(
    topic="dead",
    partition=0,
    offset=3,
    value=b"a\tb",
    headers=[
        OWN,
        *ABOUT,
        (letters.MESSAGE, "unknown field `\x1b[2J\u202e`".encode()),
        (letters.TOPIC, "in\x9b".encode()),
    ],
)


class Topic:
    """Has one letter."""

    topic = "dead"

    def __init__(self, settings: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def bounds(self) -> dict[int, tuple[int, int]]:
        return {0: (3, 4)}

    def read(self, _: object) -> Iterator[ck.Message]:
        yield MESSAGE

    def letters(self, _: object) -> Iterator[Letter | None]:
        yield letter_of(MESSAGE)


@pytest.mark.parametrize("words", [["show", "f", "--partition", "0", "--offset", "3"], ["list", "f"]])
def test_nothing_of_a_record_reaches_the_terminal_as_an_order(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LetterTopic", Topic)
    monkeypatch.setattr(command, "read_sections", lambda *_: None)
    said = CliRunner().invoke(command.dead_letters, words, catch_exceptions=False).output
    assert "in\\x9b" in said
    assert all(each.isprintable() or each in "\n\t" for each in said)
    if words[0] == "show":
        assert "header name\\x1b]0;title\\x07: 1\n" in said
        assert "message:          unknown field `\\x1b[2J\\u202e`\n" in said
        assert said.endswith("value:\na\tb\n")


def answer(monkeypatch: pytest.MonkeyPatch, done: Replayed) -> None:
    """Of every replay of the file `f`."""
    monkeypatch.setattr(command, "replay_letters", lambda *_: done)
    monkeypatch.setattr(command, "read_sections", lambda *_: SimpleNamespace(name="shop"))
    monkeypatch.setattr(command, "_find_holding", lambda _: None)


@pytest.mark.parametrize(("count", "said"), [(0, "0 records were"), (1, "1 record was"), (2, "2 records were")])
def test_a_replay_says_how_many_records_it_has_written(count: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, Replayed(written=count))
    assert CliRunner().invoke(command.dead_letters, ["replay", "f"]).output == f"{said} written again\n"


def test_letters_whose_records_are_written_for_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, Replayed(written=1, joined=2))
    assert CliRunner().invoke(command.dead_letters, ["replay", "f"]).output.splitlines() == [
        "1 record was written again",
        "2 letters of records that are written for another letter: only marked",
    ]


def test_a_kind_that_no_letter_has_is_told_from_letters_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    for done, hints in ((Replayed(), 1), (Replayed(marked=2), 0), (Replayed(joined=2), 0)):
        answer(monkeypatch, done)
        said = CliRunner().invoke(command.dead_letters, ["replay", "f", "--kind", "WRONGTYPE"]).output
        assert said.count("no letter is of such a kind or step: `tidegate dead-letters list f`") == hints


def test_records_that_the_topic_does_not_take_are_named_by_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    done = Replayed(written=1, refused={"too old": ["dead[0]@1"], "too large": [f"dead[1]@{n}" for n in range(6)]})
    answer(monkeypatch, done)
    result = CliRunner().invoke(command.dead_letters, ["replay", "f"], standalone_mode=False)
    assert result.return_value == 1
    assert result.output.splitlines() == [
        "1 record was written again",
        "1 record not written: too old (letters dead[0]@1)",
        "6 records not written: too large (letters dead[1]@0, dead[1]@1, dead[1]@2, dead[1]@3, dead[1]@4, and others)",
    ]


def test_a_dry_run_names_what_has_the_records_already(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, Replayed(written=1, repeating={("share", "sinks copy, totals"): ["dead[0]@1", "dead[0]@2"]}))
    result = CliRunner().invoke(command.dead_letters, ["replay", "f", "--dry-run"], standalone_mode=False)
    assert result.return_value == 1
    assert result.output.splitlines() == [
        "1 record would be written again",
        "2 records not written: failed in share, and may be in sinks copy, totals (letters dead[0]@1, dead[0]@2)",
        "a replay with these is refused: leave them out, or repeat what they have done by --whole-record",
    ]
