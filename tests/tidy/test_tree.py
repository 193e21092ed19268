"""The whole tree follows the style."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import pytest

from tests.tidy import rules
from tests.tidy.tree import PACKAGE, ROOT, TESTS, complaints, complaints_about, python_files, read, report, text_files

BASE = frozenset({"clock", "committable", "datatypes", "errors", "ids", "modules"})
EDGE = frozenset({"parent", "threads"})
FIRST = frozenset({"formats", "config.fields", "state", "storage"})
LANGUAGE = FIRST | {"user_code", "expressions", "operators"}
CORE = BASE | LANGUAGE | {"kafka", "config", "plan", "coordinator", "journal", "task"}
RUNTIME = frozenset({"kafka", "sinks", "sources"})
DRIVER = CORE | EDGE | RUNTIME | {"tables", "process", "registry", "slot", "spark"}
MAY_IMPORT: dict[str, frozenset[str]] = {
    "ids": frozenset(),
    "errors": frozenset(),
    "clock": frozenset(),
    "committable": frozenset({"ids"}),
    "modules": frozenset(),
    "threads": frozenset(),
    "parent": frozenset(),
    "datatypes": frozenset({"errors", "ids"}),
    "native": frozenset({"datatypes"}),
    "storage": BASE,
    "config.fields": BASE | {"storage"},
    "formats": BASE | {"native", "config.fields"},
    "python": frozenset({"config.fields"}),
    "state": BASE | {"native", "formats", "storage"},
    "user_code": BASE | FIRST | {"parent", "python"},
    "expressions": BASE | FIRST,
    "operators": BASE | FIRST | {"native", "python", "user_code", "expressions"},
    "kafka": BASE | EDGE | {"native", "formats", "storage"},
    "config": BASE | LANGUAGE | {"kafka"},
    "plan": BASE | LANGUAGE | {"config"},
    "coordinator": BASE | LANGUAGE | {"config", "plan"},
    "journal": BASE | LANGUAGE | {"config", "plan", "coordinator"},
    "task": BASE | LANGUAGE | {"config", "plan", "coordinator", "journal"},
    "tables": CORE,
    "registry": CORE,
    "sources": CORE | EDGE | {"native", "kafka"},
    "sinks": CORE | EDGE | {"kafka"},
    "process": CORE | EDGE,
    "slot": CORE | EDGE | RUNTIME | {"process"},
    "testing": CORE | EDGE | RUNTIME | {"process", "slot"},
    "spark": CORE | EDGE | {"tables", "process", "slot"},
    "checks": DRIVER | {"__version__"},
    "daemon": DRIVER | {"checks", "__version__"},
    "api": DRIVER | {"testing", "checks"},
    "cli": DRIVER | {"testing", "checks", "daemon", "__version__"},
    "dev": DRIVER | {"checks", "daemon", "cli"},
    "simulation": DRIVER | {"python", "checks", "daemon", "__version__"},
    "__init__": frozenset({"api", "config", "errors"}),
    "__main__": frozenset({"cli"}),
}
"""Maps a room to the rooms that it may import besides itself. A room may only import rooms that are listed above it."""

PURE = [
    PACKAGE / "coordinator",
    PACKAGE / "plan",
    PACKAGE / "task" / "barriers",
    PACKAGE / "ids.py",
    PACKAGE / "committable.py",
    PACKAGE / "datatypes.py",
]
SINGLE = ["ids.py", "committable.py", "errors.py", "datatypes.py", "modules.py", "__init__.py"]
LIGHT = [
    *("user_code", "expressions", "operators", "config", "plan", "coordinator", "journal", "storage"),
    *("formats/contract.py", "formats/failures.py", "formats/registry.py"),
    *("process", "registry", "slot", "spark", "checks", "daemon", "api", "cli", "dev", *SINGLE),
]
RUNNING = (
    *("expressions/compiled/", "operators/aggregates/columnar/", "operators/rowwise.py", "operators/lateness.py"),
    *("/runtime.py", "/running/", "spark/state_source.py"),
)
"""Parts of light rooms that are imported only where rows are processed."""

WORDS = {
    r"\b(?:TODO|FIXME|XXX)\b": "do it, or put it into an issue",
    r"(?i)\b(?:pypi\.org|pythonhosted|repo1?\.maven|maven\.org|registry\.npmjs|proxy\.golang)": "no registry's address",
    r"(?<![\w.])/(?:root|work|home/\w+|Users/\w+)/": "no path of somebody's machine",
    r"(?i)--(?:extra-)?index-url\b": "the user's pip knows where packages are",
}
CLIENTS = TESTS / "support" / "clients.py"
WRITERS = {
    r"\.write_(?:ipc|ipc_stream|parquet|avro|csv|ndjson|json)\(": "it is locked meanwhile: see formats/arrow.py",
}
"""Methods of Polars data frames, in code that runs in slots."""
SLOT_ROOMS = ("formats", "state", "expressions", "operators", "task", "sources", "sinks", "slot")
OWN_FRAMES = ("formats/arrow.py", "formats/kinds/avro/encoder.py", "formats/record_limits.py")
"""Exempt modules: no other code holds the frames that they write."""

CHECKED_EVERYWHERE: dict[str, Callable[[str], list[str]]] = {
    "modules have at most 700 lines": rules.check_module_size,
    "functions have at most 60 lines": rules.check_function_sizes,
    "imports are absolute": rules.check_relative_imports,
    "errors are not swallowed": rules.check_swallowed_errors,
    "tools are silenced with code and reason": rules.check_silenced_tools,
}


Rule = Callable[[str], list[str]]
KINDS, REGISTRY = PACKAGE / "operators" / "kinds", PACKAGE / "operators" / "registry.py"
PURE_FILES = frozenset(python_files(*PURE))
LIGHT_FILES = frozenset(
    file
    for file in python_files(*(PACKAGE / name for name in LIGHT))
    if not any(place in file.as_posix() for place in RUNNING)
)


def rules_of(file: Path) -> Iterator[tuple[str, Rule]]:
    """Yields the rules that a file has to keep."""
    yield from CHECKED_EVERYWHERE.items()
    yield "docstrings", rules.check_docstrings
    if PACKAGE in file.parents:
        room = rules.room_of(file.relative_to(PACKAGE).with_suffix("").parts)
        yield "rooms", partial(rules.check_rooms, room=room, allowed=MAY_IMPORT[room] | {room})
        yield "classes", rules.check_class_sizes
        if KINDS not in file.parents and file != REGISTRY:
            yield "kinds", rules.check_kinds
        if file in PURE_FILES:
            yield "purity", rules.check_purity
        if file in LIGHT_FILES:
            yield "heavy", rules.check_heavy_imports
    if TESTS in file.parents:
        yield "habits", rules.check_test_habits
        if file != CLIENTS:
            yield "clients", rules.check_clients


@cache
def said() -> dict[str, list[str]]:
    """Applies the rules file by file, so that each file is parsed once for all of them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in python_files(PACKAGE, TESTS, ROOT / "bench"):
        text = read(file)
        for name, rule in rules_of(file):
            found[name] += complaints_about(file, text, rule)
    return found


@pytest.mark.parametrize("name", CHECKED_EVERYWHERE)
def test_every_python_file_keeps_the_rule(name: str) -> None:
    report(said()[name])


def test_classes_have_one_job() -> None:
    """Checks the limits of 20 attributes and 8 constructor parameters."""
    report(said()["classes"])


def test_everything_public_has_a_docstring() -> None:
    report([one for one in said()["docstrings"] if one.startswith(f"{PACKAGE.name}/")])


def test_every_test_module_says_its_subject() -> None:
    of_tests = [one for one in said()["docstrings"] if one.startswith(f"{TESTS.name}/")]
    report([one for one in of_tests if one.endswith("no module docstring")])


def test_rooms_import_one_way_only() -> None:
    report(said()["rooms"])


def test_nothing_outside_the_kinds_of_operators_knows_one_of_them() -> None:
    report(said()["kinds"])


def test_table_of_rooms_has_no_cycle() -> None:
    order = list(MAY_IMPORT)
    assert [
        (room, other)
        for room, others in MAY_IMPORT.items()
        for other in others & set(order)
        if room not in ("datatypes", "__main__") and order.index(other) >= order.index(room)
    ] == []


def test_core_has_no_clock_thread_socket_file_or_random_number() -> None:
    report(said()["purity"])


def test_heavy_libraries_are_imported_where_they_run() -> None:
    report(said()["heavy"])


def test_frames_that_others_may_have_are_written_in_one_place() -> None:
    files = python_files(*(PACKAGE / name for name in SLOT_ROOMS))
    others = [file for file in files if not file.as_posix().endswith(OWN_FRAMES)]
    report(complaints(others, partial(rules.check_words, banned=WRITERS)))


def test_tests_neither_sleep_nor_skip() -> None:
    report(said()["habits"])


def test_tests_make_their_kafka_clients_in_one_place() -> None:
    report(said()["clients"])


def test_no_file_holds_a_banned_word() -> None:
    own = Path(__file__).resolve()
    files = [file for file in text_files() if file != own and file.parent != own.parent]
    report(complaints(files, partial(rules.check_words, banned=WORDS)))


def test_locks_hold_hashes_and_no_address() -> None:
    for lock in sorted(ROOT.glob("*.lock")):
        lines = lock.read_text(encoding="utf-8").splitlines()
        assert "://" not in "\n".join(lines), f"{lock.name} holds an address"
        pinned = [number for number, line in enumerate(lines) if line and not line[0].isspace()]
        assert pinned, f"{lock.name} is empty"
        assert [lines[n] for n in pinned if "==" not in lines[n] or "--hash=sha256:" not in lines[n + 1]] == []
