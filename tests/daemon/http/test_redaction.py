"""Rows are shown without the columns that the file masks, and without the secrets of the file."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from tidegate.daemon.http.redaction import mask
from tidegate.process.logs import set_secrets


@pytest.fixture
def secret() -> Iterator[str]:
    set_secrets(["opensesame"])
    yield "opensesame"
    set_secrets([])


def test_columns_are_masked_at_any_depth() -> None:
    row = {
        "id": 1,
        "Card": "4111",
        "address": {"card": {"number": 5}, "city": "Köln"},
        "items": [{"sku": "a", "card": None}, {"sku": "b"}],
        "nested": [[{"CARD": 1}]],
    }
    assert mask(row, {"card"}) == {
        "id": 1,
        "Card": "***",
        "address": {"card": "***", "city": "Köln"},
        "items": [{"sku": "a", "card": "***"}, {"sku": "b"}],
        "nested": [[{"CARD": "***"}]],
    }


def test_other_values_are_left_as_they_are() -> None:
    row = {"n": None, "yes": True, "amount": Decimal("5.00"), "list": [1, "two", None], "cards": "no"}
    assert mask(row, {"card"}) == row


def test_a_secret_of_the_file_is_replaced_in_texts(secret: str) -> None:
    row = {"text": f"token={secret};", "deep": [{secret: secret}]}
    assert mask(row, ()) == {"text": "token=***;", "deep": [{"***": "***"}]}
