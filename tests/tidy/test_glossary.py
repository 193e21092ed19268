"""Programs can parse docs/glossary.md, and the places in the code that it names exist."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.tidy.tree import PACKAGE, ROOT, python_files, report

ROW: Final = re.compile(r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+)` \| ([^|]*)\|$")
WORD: Final = re.compile(r"[a-z]+(_[a-z]+)*")


class Entry(NamedTuple):
    """One term of the glossary."""

    term: str
    meaning: str
    where: str
    not_used: tuple[str, ...]


def read_glossary() -> list[Entry]:
    """Reads the entries of all tables. Raises ValueError for a row with another form."""
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
    """Returns whether a dotted name is a package, a module, or a name at the top level of a module."""
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


def find_identifiers(tree: ast.AST) -> Iterator[str]:
    """Yields the names that a module defines: classes, functions, parameters, fields, constants and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def words_of(identifier: str) -> str:
    """Returns lower-case words joined by underscores, with one at either end: `RestoreTarget` -> `_restore_target_`."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", identifier)
    return f"_{'_'.join(words).lower()}_"


class Defined(NamedTuple):
    """What a module of the package defines."""

    names: frozenset[str]
    public_classes: tuple[str, ...]


@cache
def read_definitions() -> dict[Path, Defined]:
    """Reads what each module defines."""
    found = {}
    for file in python_files(PACKAGE):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        classes = (node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
        found[file] = Defined(frozenset({*find_identifiers(tree), file.stem}), tuple(classes))
    return found


def test_no_identifier_has_a_word_that_is_not_used() -> None:
    instead = {word: entry.term for entry in read_glossary() for word in entry.not_used}
    found = []
    for file, defined in read_definitions().items():
        for name in sorted(defined.names):
            words = words_of(name)
            found += [
                f"{file.relative_to(ROOT)}: {name}: write `{term}` for `{word}`"
                for word, term in instead.items()
                if f"_{word}_" in words
            ]
    report(found)


def test_the_search_for_words_finds_them_in_every_form() -> None:
    text = "class StepWords: pass\nself.step_words = 1\ndef read(step_words): pass\nSTEP_WORDS = 2\n"
    assert all("_step_words_" in words_of(name) for name in {*find_identifiers(ast.parse(text))} - {"read"})
    assert "_step_words_" not in words_of("stepwords")


def test_names_of_public_classes_are_unique() -> None:
    """The room `python` is what users import, with short names of its own."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file, defined in read_definitions().items():
        for name in defined.public_classes if PACKAGE / "python" not in file.parents else ():
            places[name].append(str(file.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
