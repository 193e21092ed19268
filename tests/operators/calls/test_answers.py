"""Answers of a server as columns: a bad one is shown as what the server has said, not as the record."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping

import pytest

from tidegate.datatypes import BIGINT, DOUBLE, STRING, TIMESTAMP, DataType, map_of
from tidegate.formats.contract import Columns
from tidegate.formats.failures import FailureKind
from tidegate.operators.calls.function import DictDecoder
from tidegate.operators.calls.http_client import JsonAnswerDecoder

COLUMNS: Columns = (("price", DOUBLE),)
OF = "`name` of the answer of lookup.find is "


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
    assert "lone surrogate" in failure.message or "surrogates not allowed" in failure.message
    failure.message.encode()


class _Shy:
    def __repr__(self) -> str:
        raise KeyError("no")


class _Lazy(Mapping[str, str]):
    def __getitem__(self, name: str) -> str:
        raise OSError("the server is gone")

    def __iter__(self) -> Iterator[str]:
        return iter(("name",))

    def __len__(self) -> int:
        return 1


class _Zone(dt.tzinfo):
    def utcoffset(self, _moment: dt.datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, _moment: dt.datetime | None) -> str:
        return "odd"


def _deep() -> list[object]:
    found: list[object] = []
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.parametrize(
    ("kind", "bad", "message"),
    [
        (
            BIGINT,
            {"name": 10**5000},
            f"{OF}bigint, and a value of type int (its repr raises ValueError) is not",
        ),
        (
            DataType("decimal", precision=10, scale=2),
            {"name": 10**5000},
            f"{OF}decimal(10,2), and a value of type int ",
        ),
        (
            TIMESTAMP,
            {"name": "2026\ud83d"},
            OF + r"timestamp, and '2026\ud83d' is not (Invalid RFC3339 encoded datetime): return a value of that type",
        ),
        (TIMESTAMP, {"name": dt.datetime(2026, 1, 1, tzinfo=_Zone())}, f"{OF}timestamp, and datetime."),
        (STRING, _Shy(), "lookup.find returned a value of type _Shy (its repr raises KeyError): return a dict"),
        (STRING, {"name": _Shy()}, f"{OF}string, and a value of type _Shy (its repr raises KeyError) is not"),
        (STRING, {"name": _deep()}, f"{OF}string, and a value of type list"),
        (STRING, _Lazy(), "lookup.find returned <"),
        (
            DataType("struct", fields=(("a", STRING),)),
            {"name": {"\ud83d": 1}},
            "the answer of lookup.find has a string",
        ),
        (map_of(STRING, STRING), {"name": {1: "b"}}, f"{OF}map<string, string>, and {{1: 'b'}} is not"),
    ],
    ids=["digits", "decimal", "surrogate", "zone", "repr", "field", "depth", "lazy", "struct", "key"],
)
def test_whatever_an_answer_is_only_its_own_record_is_bad(kind: DataType, bad: object, message: str) -> None:
    """What its objects raise got out of the step, and ended every attempt."""
    columns: Columns = (("name", kind), ("more", STRING))
    bad = {**bad, "more": "x"} if isinstance(bad, dict) else bad
    answers = [None, bad, {"name": None, "more": "\ud83d"}, {"name": None, "more": "y"}]
    decoded = DictDecoder(columns, columns, "lookup.find").decode(answers)
    assert decoded.frame["more"].to_list() == [None, "y"]
    failure, half = decoded.failures
    assert (failure.row, half.row) == (1, 2)
    assert failure.message.startswith(message)


@pytest.mark.parametrize("more", ["\ud83d", 1, None])
def test_what_is_not_declared_is_left_out_of_a_dict_whatever_it_is(more: object) -> None:
    columns: Columns = (("name", STRING),)
    decoded = DictDecoder(columns, columns, "lookup.find").decode([{"name": "b", more: 2}])
    assert (decoded.frame["name"].to_list(), list(decoded.failures)) == (["b"], [])
