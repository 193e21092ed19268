"""Answers of a server as columns: a bad one is shown as what the server has said, not as the record."""

from __future__ import annotations

from tidegate.datatypes import DOUBLE
from tidegate.formats.contract import Columns
from tidegate.formats.failures import FailureKind
from tidegate.operators.calls.answers import JsonAnswerDecoder

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
