"""The engine's columns begin with `__tidegate`, so that users are free to choose names."""

from __future__ import annotations

import re

from tests.tidy.tree import PACKAGE, complaints, python_files, report
from tidegate.datatypes import RESERVED

LITERAL = re.compile(r"""(?<!`)["'](__[A-Za-z_{}]+)["']""")
PYTHON = re.compile(r"__\w+__")
ELSEWHERE = frozenset(
    {
        "__",
        "__cluster_metadata",
        "__consumer_offsets",
        "__debezium_unavailable_value",
        "__deleted",
        "__key",
        "__key_schema_id",
        "__op",
        "__transaction_state",
        "__value_schema_id",
    }
)
"""Topics, headers and fields of other systems, and the name of a schema."""


def check_names(text: str) -> list[str]:
    """Returns complaints about names that begin with two underscores and are not known names of other systems."""
    found = [name for name in LITERAL.findall(text) if not PYTHON.fullmatch(name) and name not in ELSEWHERE]
    return [f"`{name}`: a column of the engine begins with `{RESERVED}`" for name in found
            if not name.startswith(RESERVED)]  # fmt: skip


def test_columns_of_the_engine_have_its_prefix() -> None:
    report(complaints(python_files(PACKAGE), check_names))


def test_a_name_without_the_prefix_is_found() -> None:
    assert check_names('pl.Series("__row", rows)\nname = f"__part_{number}"\n') != []
    assert len(check_names('x = ("__time", f"__part_{number}", "__tidegate_time", "__init__", "__deleted")')) == 2
