"""URLs with columns in them: a record decides what is asked for, never who is asked."""

from __future__ import annotations

import datetime as dt

import pytest
from pydantic_core import PydanticCustomError

from tidegate.operators.async_queue import CallFailure
from tidegate.operators.calls.http_client import OVERHEAD_BYTES, AnswerCache
from tidegate.operators.kinds.http_calls import parse_url


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("https://prices/{sku}", ["a"], "https://prices/a"),
        ("https://prices/{sku}/of?in={currency}&x=1", ["a b/c?", "€&="], "https://prices/a%20b%2Fc%3F/of?in=%E2%82%AC%26%3D&x=1"),
        ("http://h:80/{a}{b}", [True, -7], "http://h:80/true-7"),
        ("http://h/?day={day}", [dt.date(2026, 1, 31)], "http://h/?day=2026-01-31"),
        ("http://h/?q={q}", [""], "http://h/?q="),
    ],
)  # fmt: skip
def test_columns_are_filled_in_percent_encoded(text: str, values: list[object], expected: str) -> None:
    assert parse_url(text).fill(values) == expected


def test_a_null_asks_for_nothing() -> None:
    assert parse_url("http://h/{a}").fill([None]) is None


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_value_that_is_no_part_of_a_path_fails_its_row(value: str) -> None:
    failure = parse_url("http://h/v1/{a}/x").fill([value])
    assert isinstance(failure, CallFailure)
    assert failure.message == f"`a` is {value!r}, which cannot be part of a path: filter out such records"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prices/{sku}", "http or https"),
        ("ftp://prices/{sku}", "http or https"),
        ("https://{host}/x", "http or https"),
        ("https://prices{sku}/x", "cannot be part of the host"),
        ("https://user:secret@prices/{sku}", "user or password"),
        ("https://prices/{sku}#x", "fragment"),
        ("https://prices/{sku", "placeholder"),
        ("https://prices/{}", "placeholder"),
        ("https://prices/a b", "spaces"),
        ("https://prices:port/", "not a URL"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(PydanticCustomError, match=message):
        parse_url(text)


def test_a_template_is_shown_as_it_was_written() -> None:
    text = "https://prices/{sku}/x?in={currency}"
    assert str(parse_url(text)) == text


def test_requests_of_rows() -> None:
    assert parse_url("http://h/{a}").derive_requests({"a": ["x", None]}, 2) == ["http://h/x", None]
    assert parse_url("http://h/").derive_requests({}, 3) == ["http://h/"] * 3


def test_answers_are_kept_for_their_time() -> None:
    cache = AnswerCache(10.0)
    cache.put("u", None, 100.0)
    cache.put("v", b"1", 100.0)
    assert (cache.find("u", 109.9), cache.find("v", 109.9)) == ((None,), (b"1",))
    assert cache.find("v", 110.0) is None
    assert len(cache) == 1, "what is too old goes"


def test_the_oldest_answers_make_room() -> None:
    cache = AnswerCache(10.0, bytes_max=2 * (OVERHEAD_BYTES + 11))
    for number in range(3):
        cache.put(str(number), b"x" * 10, 0.0)
    assert [cache.find(str(number), 1.0) for number in range(3)] == [None, (b"x" * 10,), (b"x" * 10,)]
    cache.put("1", b"y", 0.0)
    cache.put("large", b"x" * 1000, 0.0)
    assert (cache.find("large", 1.0), len(cache)) == (None, 2), "nobody makes room for what has none"


def test_without_a_lifetime_nothing_is_kept() -> None:
    cache = AnswerCache(0.0)
    cache.put("u", b"1", 0.0)
    assert (cache.keeps, len(cache)) == (False, 0)
