"""Runs mutmut over the work folder it is started in, with fewer mutants, and writes `results.json`.

A program of its own (`python -P tool.py`): mutmut takes its configuration from the current directory, and what it forks
must import the tests of the work folder, not these.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import libcst
from mutmut.__main__ import cli
from mutmut.mutation import file_mutation, mutators
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.stats import status_by_exit_code
from mutmut.type_checking import TypeCheckingError, run_type_checker
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

RESULTS: Final = Path("results.json")
SHORT: Final = 20
"""Characters of a line that may stand in a function twice: `continue`."""
FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
LOGGERS: Final = ("logger.", "_LOG.")
DIED: Final = frozenset({"killed", "caught by type check"})


def leave_out_texts() -> None:
    """No mutants of log lines, of what an error says, of texts, of interfaces; one of every other string, not three.

    mutmut has patterns for lines, but errors here have several. What is replaced is private, hence the narrow bound.
    """
    skip: Callable[[MutationVisitor, libcst.CSTNode], bool] = MutationVisitor._skip_node_and_children

    def skip_or_text(visitor: MutationVisitor, node: libcst.CSTNode) -> bool:
        return _has_no_effect(node) or skip(visitor, node)

    MutationVisitor._skip_node_and_children = skip_or_text  # type: ignore[assignment,method-assign]  # see above
    operators: list[tuple[type, Callable[[Any], Iterable[libcst.CSTNode]]]] = []
    for kind, operator in mutators.mutation_operators:
        operators.append((kind, mutate_string if operator is mutators.operator_string else operator))
    mutators.mutation_operators[:] = operators  # type: ignore[index]  # a list, typed as a sequence


def _has_no_effect(node: libcst.CSTNode) -> bool:
    if isinstance(node, libcst.Raise):
        return True
    if isinstance(node, libcst.ClassDef):  # of an interface every method would be one more that classes must have
        return any(libcst.Module([]).code_for_node(base.value).startswith("Protocol") for base in node.bases)
    return isinstance(node, libcst.Call) and libcst.Module([]).code_for_node(node.func).startswith(LOGGERS)


def blame_mutants_only() -> None:
    """A method that is decorated, as mutmut does it, has another type than the plain one: what mypy says of that where
    the method is used is no mutant's fault, and mutmut would stop.
    """

    def check_mutants(command: list[str]) -> list[TypeCheckingError]:
        found = run_type_checker(command)
        return [error for error in found if any(error.line_number in one for one in _mutants(error.file_path))]

    vars(file_mutation)["run_type_checker"] = check_mutants  # under the name by which it was imported there


@cache
def _mutants(path: Path) -> list[range]:
    found = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, FUNCTIONS))
    return [range(node.lineno, (node.end_lineno or 0) + 1) for node in found if "__mutmut_" in node.name]


def mutate_string(node: libcst.BaseString) -> Iterator[libcst.BaseString]:
    """One mutant, none of a string with blanks: that is a text."""
    if isinstance(node, libcst.SimpleString) and " " not in node.value:
        yield from list(mutators.operator_string(node))[:1]


def read_results() -> Iterator[dict[str, str]]:
    """Of every mutant: module, function, what became of it; of one that did not die also the lines before and after."""
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        module = ".".join(path.with_suffix("").parts[1:])
        for name, code in data.exit_code_by_key.items():
            function, of = orig_function_and_class_names_from_key(name)
            status = status_by_exit_code[code]
            found = {
                "key": name,
                "module": module,
                "function": f"{of}.{function}" if of else function,
                "status": status,
            }
            if status not in DIED:
                found["old"], found["new"] = _derive_change(get_diff_for_mutant(name, path=path).splitlines()[3:])
            yield found


def _derive_change(diff: list[str]) -> tuple[str, str]:
    """The lines that are taken away and those that come, each in one; a short one with the line before it."""
    first = next(at for at, line in enumerate(diff) if line[0] in "-+")
    old, new = (" ".join(line[1:].strip() for line in diff if line[0] == sign) for sign in "-+")
    before = diff[first - 1][1:].strip() if first and len(old) < SHORT else ""
    return f"{before} {old}".strip(), f"{before} {new}".strip()


if __name__ == "__main__":
    leave_out_texts()
    blame_mutants_only()
    cli.main(["run", *sys.argv[1:]], standalone_mode=False)
    RESULTS.write_text(json.dumps(list(read_results()), indent=1))
