"""Answers of a server as columns: a bad one is shown as what the server has said, not as the record."""

from __future__ import annotations

import pytest

from tidegate.datatypes import DOUBLE, STRING, DataType, map_of
from tidegate.formats.contract import Columns
from tidegate.formats.failures import FailureKind
from tidegate.operators.calls.answers import DictDecoder, JsonAnswerDecoder

COLUMNS: Columns = (("price", DOUBLE),)


def test_a_bad_answer_is_shown_as_one_of_the_server() -> None:
    answers = [b"<html>" + b"x" * 100, b'{"price": 2}', None, b'{"price": "\xc3\xa4"}', b"\xff"]
    decoded = JsonAnswerDecoder(COLUMNS, COLUMNS).decode(answers)
    assert decoded.frame["price"].to_list() == [2.0, None]
    page, text, bytes_ = decoded.failures
    assert (page.row, text.row, bytes_.row) == (0, 3, 4)
    assert page.kind is FailureKind.MALFORMED_JSON
    assert page.message.startswith("the server answered '<html>xxxx")
    assert "...: JSON is malformed" in page.message
    assert text.message.startswith("""the server answered '{"price": "ä"}': Expected""")
    assert bytes_.message.startswith(r"the server answered '\\xff': ")


@pytest.mark.parametrize(
    ("kind", "whole", "half"),
    [
        (STRING, "\U0001f600", "\ud83d"),
        (DataType("array", element=STRING), ["b"], ["b", "\ud83d"]),
        (DataType("struct", fields=(("a", STRING),)), {"a": "b"}, {"a": "\ud83d"}),
        (map_of(STRING, STRING), {"k": "v"}, {"\ud83d": "v"}),
    ],
    ids=str,
)
def test_half_a_character_in_an_answer_makes_its_own_row_bad_and_no_other(
    kind: DataType, whole: object, half: object
) -> None:
    """No column can hold it: all rows of the batch failed, in every attempt."""
    columns: Columns = (("name", kind),)
    answers = [{"name": whole}, {"name": half}, None, {"name": whole, "more": "\ud83d"}]
    decoded = DictDecoder(columns, columns, "lookup.find").decode(answers)
    assert decoded.frame.height == 3
    (failure,) = decoded.failures
    assert (failure.row, failure.kind) == (1, FailureKind.WRONG_TYPE)
    assert failure.message.startswith("lookup.find gave a text with half a character")
    failure.message.encode()
