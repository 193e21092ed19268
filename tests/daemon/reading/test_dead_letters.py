"""Dead letters as they are shown: whatever a record holds, without secrets and masked columns, and cheap to look at."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.reading.letters import letter
from tidegate.config.load import LoadedPipeline, read_pipeline
from tidegate.daemon.http.resources import Resource, ResourceQuery, ResourceRefused, render
from tidegate.daemon.reading import dead_letters
from tidegate.daemon.reading.dead_letters import (
    BYTES_SHOWN,
    KEPT_S,
    DeadLetterEntry,
    DeadLetters,
    make_dead_letters_resource,
)
from tidegate.daemon.reading.read_dead_letters import PART_MAX, NewestLetter, NewestLetters, NewestRequest
from tidegate.process.logs import set_secrets

SECRET = "hunter22-hunter22"
HTML = "<script>alert(1)</script>"
PIPELINE = """\
version: 1
name: shop
kafka: {bootstrap.servers: "localhost:9092"}
checkpoints: {directory: /nowhere}
sources:
  orders: {topic: orders, schema: {k: string, n: bigint}, bad_records: dead-letter}
sinks:
  out: {from: orders, topic: out}
"""


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedPipeline:
    file = tmp_path / "my pipeline.yaml"
    file.write_text(PIPELINE + "dead_letters: {topic: dead}\n", encoding="utf-8")
    return read_pipeline(file, {})


@pytest.fixture
def secret() -> Iterator[str]:
    set_secrets([SECRET])
    yield SECRET
    set_secrets([])


class Child:
    """Answers instead of a process."""

    def __init__(self, *found: NewestLetter) -> None:
        self.found = NewestLetters(found, complete=True)

    async def read(self, request: NewestRequest) -> NewestLetters:
        assert (request.place.topic, request.place.pipeline, request.count) == ("dead", "shop", 100)
        return self.found


def ask(resource: Resource[ResourceQuery]) -> DeadLetters:
    async def read() -> Any:
        return await resource.read(ResourceQuery())

    found = asyncio.run(read())
    assert isinstance(found, DeadLetters)
    return found


Answer = Callable[..., DeadLetters]


@pytest.fixture
def answer(loaded: LoadedPipeline, monkeypatch: pytest.MonkeyPatch) -> Answer:
    def make(*found: NewestLetter, masked: Collection[str] = ()) -> DeadLetters:
        monkeypatch.setattr(dead_letters, "ChildReader", lambda *_: Child(*found))
        return ask(make_dead_letters_resource(loaded, masked))

    return make


def columns_of(letter: DeadLetterEntry) -> str | None:
    return None if letter.payload.columns is None else bytes(letter.payload.columns).decode()


def test_a_letter_has_its_origin_its_row_and_the_command_that_replays_it(
    answer: Answer, loaded: LoadedPipeline
) -> None:
    reason = {
        "TOPIC": "orders",
        "PARTITION": "1",
        "OFFSET": "5",
        "MESSAGE": "no number",
        "TRIES": "2",
        "ROW": '{"n": 9007199254740993, "d": 12.50}',
    }
    found = answer(letter(own=[("h", None), ("i", b"\xff")], key=b"k", about=reason))
    (one,) = found.letters
    assert (found.topic, found.cluster, found.complete, found.masked) == ("dead", "kafka", True, False)
    assert (one.partition, one.offset, one.at_ms, one.step, one.kind, one.reason) == (
        2,
        17,
        1000,
        "totals",
        "X",
        "no number",
    )
    assert (one.source.topic, one.source.partition, one.source.offset, one.tries) == ("orders", 1, 5, 2)
    assert columns_of(one) == '{"n":9007199254740993,"d":12.50}'
    assert [(each.name, each.value.text, each.value.base64) for each in one.headers] == [
        ("h", None, None),
        ("i", None, "/w=="),
    ]
    assert one.key.text == "k"
    assert one.replay == f"tidegate dead-letters replay '{loaded.file}' --partition 2 --offset 17"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (b"", ""),
        (HTML.encode(), HTML),
        (b"\x00\x1b[2J\r\n", "\x00\x1b[2J\r\n"),
        (b"ab\xff", None),
        (b"\xed\xa0\x80", None),
        (b"x" * 1_000_000, "x" * BYTES_SHOWN),
        ("€".encode() * 1_000, "€" * (BYTES_SHOWN // 3)),
        (b"x" * BYTES_SHOWN + b"\xff", "x" * BYTES_SHOWN),
    ],
)
def test_any_bytes_can_be_shown(value: bytes | None, text: str | None, answer: Answer) -> None:
    (one,) = answer(letter(value)).letters
    assert one.payload.text == text
    assert one.payload.size_bytes == (None if value is None else len(value))
    if value is not None:
        assert base64.b64decode(one.payload.base64 or "") == value[:BYTES_SHOWN]


def test_secrets_are_removed_from_everything_that_a_record_holds(answer: Answer, secret: str) -> None:
    row = json.dumps({"a": secret, secret: [{"b": f"x{secret}"}]})
    data = f"a {secret} b".encode()
    about = {"STEP": secret, "MESSAGE": f"is {secret}", "TOPIC": secret, "CLUSTER": secret, "ROW": row}
    found = answer(
        letter(b"\xff" + data, own=[(secret, data)], key=data, about=about), letter(data, about={"KIND": secret})
    )
    body = render(found).body.decode()
    assert secret not in body
    assert base64.b64encode(data)[:8].decode() not in body
    assert base64.b64decode(found.letters[0].payload.base64 or "") == b"\xffa *** b"
    assert found.letters[1].payload.text == "a *** b"


def test_half_a_secret_at_the_end_of_a_part_that_was_cut_is_not_shown(answer: Answer, secret: str) -> None:
    """Where the text gets shorter by what is removed, its end moves forward."""
    value = (secret * 2_000).encode()
    for shift in range(len(secret)):
        (one,) = answer(letter(b"." * shift + value)).letters
        assert "hunter" not in (one.payload.text or "")


def test_with_masked_columns_only_columns_are_shown(answer: Answer) -> None:
    row = '{"Email": "ann@example", "n": 1, "deep": [{"email": "ann@example"}]}'
    about = {"ROW": row, "MESSAGE": "'ann@example' is no number"}
    found = answer(
        letter(b"ann@example", own=[("h", b"ann@example")], key=b"ann@example", about=about), masked={"email"}
    )
    assert found.masked
    assert "ann@example" not in render(found).body.decode()
    assert columns_of(found.letters[0]) == '{"Email":"***","n":1,"deep":[{"email":"***"}]}'
    assert found.letters[0].payload.size_bytes == 11


@pytest.mark.parametrize(
    ("row", "left_out"),
    [
        ("[1]", True),
        ('{"a": NaN}', True),
        ('{"a": "\\ud800"}', True),
        ('{"a": ' + "9" * 9_000 + "}", True),
        ("no json", True),
        (b"\xff", True),
        ('{"a": ' + "[" * 5_000 + "]" * 5_000 + "}", True),
        (json.dumps({"a": HTML, "": "\u202e\x00"}), False),
    ],
)
def test_a_row_that_cannot_be_shown_is_left_out(row: str | bytes, left_out: bool, answer: Answer) -> None:
    (one,) = answer(letter(about={"ROW": row})).letters
    assert (one.payload.columns is None) is left_out
    assert (one.payload.columns_left_out_bytes is not None) is left_out


def test_what_others_write_into_the_topic_is_bounded(answer: Answer) -> None:
    long = "n" * 1_000_000
    many: dict[str, str] = dict.fromkeys(("KIND", "STEP", "TOPIC", "CLUSTER", "MESSAGE"), long)
    found = answer(*[letter(long.encode(), key=b"k" * PART_MAX, about=many)] * 100)
    assert len(render(found).body) < 2 << 20


def test_letters_are_kept_for_other_viewers(loaded: LoadedPipeline) -> None:
    assert make_dead_letters_resource(loaded, ()).kept_s == KEPT_S


def test_without_dead_letters_the_answer_says_how_to_keep_them(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE, encoding="utf-8")
    resource = make_dead_letters_resource(read_pipeline(file, {}), ())
    with pytest.raises(
        ResourceRefused, match=r"shop has no dead-letter topic: set `dead_letters: \{topic: \.\.\.\}`"
    ) as refused:
        ask(resource)
    assert refused.value.refusal.status == 404
    assert resource.operates, "a reason quotes values"
