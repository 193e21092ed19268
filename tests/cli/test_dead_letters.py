"""What `dead-letters show` and `list` print of records that somebody may have made to be printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Self

import confluent_kafka as ck
import pytest
from click.testing import CliRunner

from tidegate.cli import dead_letters as command
from tidegate.cli.replay import Replayed
from tidegate.config.errors import ConfigErrors, Problem
from tidegate.formats import dead_letters as letters
from tidegate.formats.dead_letters.letter import DeadLetter, make_mark
from tidegate.plan.replays import Route
from tidegate.sources.dead_letter_topic import dead_letter_of

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
    """Has one letter; a subclass has others."""

    found: tuple[ck.Message, ...] = (MESSAGE,)

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
        yield from self.found

    def letters(self, _: object) -> Iterator[DeadLetter]:
        yield from filter(None, map(dead_letter_of, self.found))


def serve(monkeypatch: pytest.MonkeyPatch, topic: type[Topic]) -> None:
    """To the commands, for any file; who has the records of the step `share` is known."""
    monkeypatch.setattr(command, "DeadLetterTopic", topic)
    monkeypatch.setattr(command, "find_place", lambda _: None)
    monkeypatch.setattr(command, "read_sections", lambda *_: None)
    monkeypatch.setattr(
        command,
        "_read_replays",
        lambda *_: SimpleNamespace(
            holders=lambda step, *_: "sink copy" if step == "share" else "", route=lambda _: Route()
        ),
    )


@pytest.mark.parametrize("words", [["show", "f", "--partition", "0", "--offset", "3"], ["list", "f"]])
def test_nothing_of_a_record_reaches_the_terminal_as_an_order(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    serve(monkeypatch, Topic)
    said = CliRunner().invoke(command.dead_letters, words, catch_exceptions=False).output
    assert "in\\x9b" in said
    assert all(each.isprintable() or each in "\n\t" for each in said)
    if words[0] == "show":
        assert "header name\\x1b]0;title\\x07: 1\n" in said
        assert "message:          unknown field `\\x1b[2J\\u202e`\n" in said
        assert said.endswith("value:\na\tb\n")


def answer(monkeypatch: pytest.MonkeyPatch, done: Replayed) -> None:
    """Of every replay of the file `f`."""
    monkeypatch.setattr(command, "replay_dead_letters", lambda *_: done)
    monkeypatch.setattr(
        command, "read_sections", lambda *_: SimpleNamespace(name="shop", dead_letters=None, clusters={})
    )
    monkeypatch.setattr(command, "_read_replays", lambda *_: SimpleNamespace(route=lambda _: Route()))


@pytest.mark.parametrize(("count", "said"), [(0, "0 records were"), (1, "1 record was"), (2, "2 records were")])
def test_a_replay_says_how_many_records_it_has_written(count: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, Replayed(written=count))
    assert CliRunner().invoke(command.dead_letters, ["replay", "f"]).output == f"{said} written again\n"


def test_letters_whose_records_are_written_for_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, Replayed(written=1, joined=2))
    assert CliRunner().invoke(command.dead_letters, ["replay", "f"]).output.splitlines() == [
        "1 record was written again",
        "2 letters of records that are written for another letter, only marked",
    ]


def test_a_kind_that_no_letter_has_is_told_from_letters_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    for done, hints in ((Replayed(), 1), (Replayed(marked=2), 0), (Replayed(joined=2), 0)):
        answer(monkeypatch, done)
        said = CliRunner().invoke(command.dead_letters, ["replay", "f", "--kind", "WRONGTYPE"]).output
        assert said.count("no letter has this kind or step: `tidegate dead-letters list f`") == hints


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
        "a replay that includes these is refused: leave them out, or process them again with --whole-record",
    ]


def message(partition: int, offset: int, written_ms: int, step: str, *more: tuple[str, bytes]) -> ck.Message:
    about = [(letters.HEADERS, b"0"), (letters.KIND, b"X"), (letters.STEP, step.encode()), (letters.TOPIC, b"in")]
    place = [(letters.PARTITION, b"5"), (letters.OFFSET, str(100 + offset).encode())]
    return ck.Message(
        topic="dead",
        partition=partition,
        offset=offset,
        value=b"v",
        headers=[*about, *place, *more],
        timestamp=(ck.TIMESTAMP_CREATE_TIME, written_ms),
    )


class Letters(Topic):
    """Four letters, of which one was written again."""

    found = (
        message(0, 3, 1000, "orders"),
        message(0, 4, 4000, "share"),
        message(1, 7, 3000, "share"),
        message(1, 8, 2000, "orders"),
        ck.Message(topic="dead", partition=0, offset=5, value=make_mark([3], "in"), headers=[(letters.MARKER, b"1")]),
    )


def listed(*words: str) -> list[list[str]]:
    result = CliRunner().invoke(command.dead_letters, ["list", "f", *words], catch_exceptions=False)
    return [line.split() for line in result.output.splitlines()]


def test_the_newest_letters_are_listed_with_the_place_that_show_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, Letters)
    groups, _, found = [" ".join(line) for line in listed()], None, listed()[4:]
    assert groups[0] == "step kind topic letters open first last records may be in"
    assert [line.split()[:5] for line in groups[1:3]] == [
        ["share", "X", "in", "2", "2"],
        ["orders", "X", "in", "2", "1"],
    ]
    assert [line.rsplit("Z ")[-1] for line in groups[1:3]] == ["sink copy", "-"]
    assert found[0] == ["partition", "offset", "written", "step", "kind", "record", "written", "again", "to"]
    assert [line[:2] for line in found[1:]] == [["0", "4"], ["1", "7"], ["1", "8"], ["0", "3"]]
    assert found[-1][-6:] == ["orders", "X", "in[5]", "offset", "103", "in"]


def test_a_listing_is_bounded_and_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, Letters)
    found = listed("--limit", "1")
    assert [line[:2] for line in found[5:6]] == [["0", "4"]]
    assert " ".join(found[6]) == "3 older letters not listed: use --limit, --step or --kind"
    assert [line[:2] for line in listed("--step", "orders")[4:]] == [["1", "8"], ["0", "3"]]
    assert listed("--kind", "Y") == [["no", "dead", "letters"]]
    assert len(listed("--limit", "0")) == 4


def test_a_listing_as_json_has_groups_and_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, Letters)
    output = CliRunner().invoke(command.dead_letters, ["list", "f", "--format", "json", "--limit", "1"]).output
    found = json.loads(output)
    assert [(one["step"], one["open"], one["repeats"]) for one in found["groups"]] == [
        ("share", 2, "sink copy"),
        ("orders", 1, ""),
    ]
    assert found["letters"] == [
        {
            "partition": 0,
            "offset": 4,
            "written_ms": 4000,
            "step": "share",
            "kind": "X",
            "record": "in[5] offset 104",
            "written_again_to": None,
        }
    ]


def test_letters_of_a_file_that_makes_no_plan_are_listed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConfigErrors([Problem("f", 3, 1, "steps.share", "is wrong", "correct it")])

    serve(monkeypatch, Letters)
    monkeypatch.setattr(command, "_read_replays", refuse)
    result = CliRunner().invoke(command.dead_letters, ["list", "f"], catch_exceptions=False)
    assert result.stderr.startswith("cannot tell which sinks and states may have the records: f:3:1: steps.share")
    assert result.stdout.splitlines()[1].endswith("?")


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (
            [(letters.ROW, b'{"id":1}'), (letters.ROW_TYPES, b'{"id":"int"}')],
            ['row: {"id":1}', 'row\'s types: {"id":"int"}'],
        ),
        ([(letters.ROW_SIZE, b"70000")], ["row: left out, it has 70,000 bytes"]),
        (
            [(letters.ROW, b'{"s":"***"}'), (letters.ROW_TYPES, b"{}"), (letters.ROW_MASKED, b"1")],
            [
                'row: {"s":"***"}',
                "row's types: {}",
                "row: 1 text had a secret of the pipeline, which is replaced",
            ],
        ),
        ([], []),
    ],
)
def test_a_letter_is_shown_with_its_row_or_why_it_has_none(
    headers: list[tuple[str, bytes]], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class One(Topic):
        found = (message(0, 3, 1000, "share", *headers),)

    serve(monkeypatch, One)
    shown = CliRunner().invoke(command.dead_letters, ["show", "f", "--partition", "0", "--offset", "3"]).output
    lines = shown.splitlines()
    assert lines[9:-2] == said
