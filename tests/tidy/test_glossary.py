"""docs/glossary.md can be read by programs, and names places in the code that exist."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

from tests.tidy.tree import ROOT

ROW: Final = re.compile(r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+)` \| ([^|]*)\|$")
WORD: Final = re.compile(r"[a-z]+(_[a-z]+)*")


class Entry(NamedTuple):
    """One term of the glossary."""

    term: str
    meaning: str
    where: str
    not_used: tuple[str, ...]


def read_glossary() -> list[Entry]:
    """Read the entries of all tables. Raises ValueError for a row with another form."""
    entries = []
    for line in (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines():
        if not line.startswith("| ") or line.startswith(("| Term |", "| --- |")):
            continue
        row = ROW.match(line)
        if row is None:
            raise ValueError(line)
        entries.append(Entry(row[1], row[2], row[3], tuple(word.strip() for word in row[4].split(",") if word.strip())))
    return entries


def is_defined(name: str) -> bool:
    """Whether a dotted name is a package, a module, or a name at the top of a module."""
    path = ROOT.joinpath(*name.split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    module = next((one for one in (path.parent.with_suffix(".py"), path.parent / "__init__.py") if one.is_file()), None)
    defined = re.compile(rf"^(?:class |def )?{path.name}\b", re.MULTILINE)
    return module is not None and defined.search(module.read_text(encoding="utf-8")) is not None


def test_a_term_has_one_entry_and_one_sentence_or_more() -> None:
    entries = read_glossary()
    assert [term for term, count in Counter(entry.term for entry in entries).items() if count > 1] == []
    assert [entry.term for entry in entries if not entry.meaning.endswith(".")] == []


def test_every_place_exists() -> None:
    assert [entry.where for entry in read_glossary() if not is_defined(entry.where)] == []


def test_what_is_not_used_are_words_of_identifiers_and_no_terms() -> None:
    entries = read_glossary()
    words = {word for entry in entries for word in entry.not_used}
    assert sorted(word for word in words if WORD.fullmatch(word) is None) == []
    assert words & {entry.term for entry in entries} == set()
