"""Imports the user's functions as a slot does, before anything runs.

`python -m tidegate.operators.calls.probe` reads a JSON object of modules and references and answers with a JSON object
of problems, by reference. It runs in a process of its own, so that importing a user's module has no effect on a daemon.
"""

from __future__ import annotations

import os
import sys

import msgspec

from tidegate.operators.calls.user_code import UserCodeProblem, install_modules, load_function


class ProbeRequest(msgspec.Struct, frozen=True):
    """The user's modules and references in a plan."""

    modules: dict[str, str]
    references: tuple[str, ...]


class ProbeFinding(msgspec.Struct, frozen=True):
    """Why a function cannot be used."""

    message: str
    remedy: str


def find_problems(request: ProbeRequest) -> dict[str, ProbeFinding]:
    """Returns the problems by reference; usable functions are omitted."""
    found: dict[str, ProbeFinding] = {}
    install_modules(request.modules)
    for reference in request.references:
        try:
            load_function(reference)
        except UserCodeProblem as problem:
            found[reference] = ProbeFinding(problem.message, problem.remedy)
    return found


def main() -> None:
    """Answers one request on standard output. What a module prints goes to standard error."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ProbeRequest)
    with os.fdopen(os.dup(1), "wb") as answer:
        os.dup2(2, 1)
        answer.write(msgspec.json.encode(find_problems(request)))


if __name__ == "__main__":
    main()
