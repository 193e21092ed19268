"""What is said of an exception of user code: type, text, and the last line that is the user's."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from tidegate.user_code.failure import TEXT_MAX, describe_failure
from tidegate.user_code.modules import install_modules

OWN = """
import json
from lookup.table import find

def raises(row):
    raise KeyError(row)

def in_library(row):
    return json.loads(b"[7")

def below(row):
    return [find(one) for one in [row]]

class Unshown(Exception):
    def __str__(self):
        raise RuntimeError("no text")

def unshown(row):
    raise Unshown

def ends(row):
    raise SystemExit(3)

def deep(row):
    return deep(row)
"""


@pytest.fixture(autouse=True)
def _own() -> Iterator[None]:
    install_modules({"own.py": OWN, "lookup/table.py": "def find(row):\n    raise ValueError('x' * 9999)\n"})
    yield
    install_modules({})


def said(name: str) -> str:
    function = getattr(importlib.import_module("own"), name)
    with pytest.raises(BaseException) as caught:
        function("user")
    return describe_failure(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("raises", "KeyError: 'user', at own.py:6 in raises"),
        ("in_library", "JSONDecodeError: Expecting ',' delimiter: line 1 column 3 (char 2), at own.py:9 in in_library"),
        ("unshown", "Unshown: (its text raises RuntimeError), at own.py:19 in unshown"),
        ("ends", "SystemExit: 3, at own.py:22 in ends"),
    ],
)
def test_a_failure_names_the_last_line_of_the_users_code(name: str, text: str) -> None:
    assert said(name) == text


def test_another_module_of_the_users_is_theirs_too_and_the_text_is_bounded() -> None:
    text = said("below")
    assert text.endswith("x, at lookup/table.py:2 in find")
    assert len(text) < TEXT_MAX + 60


def test_a_recursion_without_end_is_a_failure_like_others() -> None:
    assert said("deep") == "RecursionError: maximum recursion depth exceeded, at own.py:25 in deep"


def test_an_exception_without_frames_of_the_users_has_no_place() -> None:
    assert describe_failure(ValueError("x")) == "ValueError: x"
