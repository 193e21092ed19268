"""What a reference names: a function, a class for `async`, or a step, described in plain values or refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidegate.user_code.describe import CodeDescription, CodeProblem, describe
from tidegate.user_code.modules import install_modules


@pytest.fixture(autouse=True)
def _nothing_installed() -> Iterator[None]:
    yield
    install_modules({})


def described(source: str, name: str, **others: str) -> CodeDescription | CodeProblem:
    modules = {"own.py": source, **{f"{path}.py": text for path, text in others.items()}}
    install_modules(modules)
    return describe(f"own:{name}", modules)


def fact(source: str, name: str, **others: str) -> CodeDescription:
    found = described(source, name, **others)
    assert isinstance(found, CodeDescription), found
    return found


FUNCTIONS = """
import functools
async def one(row): ...
async def more(row, option=1): ...
async def two(row, settings): ...
def plain(row): ...
def yielding(row): yield row
class Called:
    async def open(self): ...
    async def __call__(self, row): ...
class Derived(Called): ...
class Plain:
    def __call__(self, row): ...
scorer = Plain()
bound = functools.partial(two, settings={})
compiled = dict
"""


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("one", (False, True, False)),
        ("more", (False, True, False)),
        ("two", (False, True, True)),
        ("plain", (False, False, False)),
        ("yielding", (False, False, False)),
        ("Called", (True, True, False)),
        ("Derived", (True, True, False)),
        ("Plain", (True, False, False)),
        ("scorer", (False, False, False)),
        ("bound", (False, True, False)),
    ],
)
def test_what_can_be_called_is_described(name: str, facts: tuple[bool, bool, bool]) -> None:
    found = fact(FUNCTIONS, name)
    assert (found.is_class, found.is_async, found.takes_settings) == facts
    assert (found.is_step, found.version, found.states, found.timers) == (False, 1, (), ())


BAD = """
async def none(): ...
def three(row, settings, more): ...
async def produced(row): yield row
class Uncalled: ...
class Wanting:
    def __init__(self, url): ...
    async def __call__(self, row): ...
class Blocking:
    def open(self): ...
    async def __call__(self, row): ...
number = 7
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "`none` cannot be called: too many positional arguments"),
        ("three", "`three` cannot be called: missing a required argument: 'settings'"),
        ("produced", "`produced` is an asynchronous generator"),
        ("Uncalled", "the class `Uncalled` has no `__call__`"),
        ("Wanting", "the class `Wanting` cannot be called: missing a required argument: 'url'"),
        ("Blocking", "`open` of `Blocking` is not async"),
        ("number", "`number` is neither a function nor a class"),
        ("missing", "`own` has no `missing`"),
    ],
)
def test_what_cannot_be_used_in_any_pipeline_is_refused(name: str, message: str) -> None:
    found = described(BAD, name)
    assert isinstance(found, CodeProblem)
    assert found.message == message
    assert found.remedy


def test_a_module_that_ends_the_process_is_refused() -> None:
    found = described("import sys\nsys.exit(3)\n", "f")
    assert isinstance(found, CodeProblem)
    assert found.message == "the module `own` ends the process when it is imported: SystemExit: 3"


def test_a_digest_changes_with_the_code_and_not_with_comments_or_layout() -> None:
    first = fact("import table\ndef f(row): return table.X\n", "f", table="X = 1\n").digest
    assert fact("import table\n# why\ndef f(row):\n\n    return table.X\n", "f", table="X=1").digest == first
    assert fact("import table\ndef f(row): return table.Y\n", "f", table="X = 1\n").digest != first
    assert fact("import table\ndef f(row): return table.X\n", "f", table="X = 2\n").digest != first
    unread = fact("import table\ndef f(row): return table.X\n", "f", table="X = 1\n", other="X = 1\n").digest
    assert unread == first, "a module that it does not import does not count"


def test_an_installed_function_has_the_digest_of_its_source() -> None:
    found = describe("textwrap:dedent", {})
    assert isinstance(found, CodeDescription)
    assert found.digest != fact("def dedent(text): ...\n", "dedent").digest
