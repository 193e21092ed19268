"""The text of `server.properties`, which Java reads as Latin-1."""

from __future__ import annotations

import pytest

from tidegate.dev.broker.server import render_properties


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("/srv/données", r"/srv/donn\u00e9es"),
        ("/srv/データ", r"/srv/\u30c7\u30fc\u30bf"),
        ("/srv/🌊", r"/srv/\ud83c\udf0a"),
        (r"C:\data", r"C:\\data"),
        ("/srv/my data=1", "/srv/my data=1"),
    ],
)
def test_a_value_is_what_java_reads(value: str, written: str) -> None:
    """A directory with an accent in its name was another one next to it."""
    assert render_properties({"log.dirs": value}) == f"log.dirs={written}\n"
