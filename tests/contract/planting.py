"""Mutants: one piece of a production function is replaced, so that a line of the contract is lost.

A mutant is planted by replacing the code of the function, which takes effect wherever it was imported. The old text
must occur exactly once: a mutant whose place was moved or rewritten is an error, never a test that passes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import msgspec


class MutantLost(Exception):
    """A mutant no longer fits the production code."""


class Mutant(msgspec.Struct, frozen=True):
    """A change that loses a line. `place` is where production keeps it: `task.barriers.aligner:Aligner.on_barrier`."""

    line: str
    place: str
    old: str
    """A piece of the function's source, with its indentation relative to the `def`."""
    new: str

    def __str__(self) -> str:
        return f"{self.line}: tidegate.{self.place}: {self.old!r} -> {self.new!r}"


def find_function(place: str) -> FunctionType:
    """Finds a function, also that of a property, class method or static method. Raises MutantLost."""
    module, _, path = place.partition(":")
    try:
        found: Any = importlib.import_module(f"tidegate.{module}")
        for name in path.split("."):
            found = found.__dict__[name]
    except (ImportError, KeyError) as error:
        raise MutantLost(f"tidegate.{place} is not there: {error}") from error
    found = inspect.unwrap(getattr(found, "fget", None) or getattr(found, "__func__", found))
    if not isinstance(found, FunctionType):
        raise MutantLost(f"tidegate.{place} is no function, but {type(found).__name__}")
    return found


def derive_code(mutant: Mutant) -> CodeType:
    """Returns the code of the function with the mutant in it. Raises MutantLost."""
    function = find_function(mutant.place)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.old) != 1:
        raise MutantLost(f"{mutant}: the old text stands {source.count(mutant.old)} times in the function")
    if function.__code__.co_freevars:
        raise MutantLost(f"{mutant}: the function refers to variables around it")
    tree = ast.parse(source.replace(mutant.old, mutant.new))
    if ast.dump(tree) == ast.dump(ast.parse(source)):
        raise MutantLost(f"{mutant}: it changes nothing")
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    definition.decorator_list = []
    namespace = dict(function.__globals__)
    flags = function.__code__.co_flags & annotations.compiler_flag
    exec(compile(tree, f"<{mutant.place}>", "exec", flags=flags, dont_inherit=True), namespace)
    made = namespace[definition.name]
    assert isinstance(made, FunctionType)
    return made.__code__


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Keeps the mutant in the production code within the block. Raises MutantLost."""
    code, function = derive_code(mutant), find_function(mutant.place)
    sound = function.__code__
    function.__code__ = code
    try:
        yield
    finally:
        function.__code__ = sound
