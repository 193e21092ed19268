"""Imports and describes user code as a slot imports it, before anything runs.

`python -m tidegate.user_code.probe PID` reads a JSON object of modules and references, and answers with a JSON object
for each reference, one a line. It runs in a process of its own, so that importing a user's module has no effect on a
daemon. It ends with the process PID that started it, even in the middle of an import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tidegate.parent import die_with_parent
from tidegate.user_code.describe import CodeDescription, CodeProblem, describe
from tidegate.user_code.files import install_wheels
from tidegate.user_code.modules import install_modules


class ProbeRequest(msgspec.Struct, frozen=True):
    """The user's modules and references in a pipeline."""

    modules: dict[str, str]
    references: tuple[str, ...]
    wheels: tuple[str, ...] = ()
    """Directories with the unpacked wheels of the pipeline."""


class ProbeAnswer(msgspec.Struct, frozen=True):
    """What a reference names, or why it cannot be used."""

    reference: str
    description: CodeDescription | None = None
    problem: CodeProblem | None = None


def answer(request: ProbeRequest) -> Iterator[ProbeAnswer]:
    """Yields an answer for each reference."""
    install_wheels(tuple(map(Path, request.wheels)))
    install_modules(request.modules)
    for reference in request.references:
        found = describe(reference, request.modules)
        if isinstance(found, CodeProblem):
            yield ProbeAnswer(reference, problem=found)
        else:
            yield ProbeAnswer(reference, found)


def main() -> None:
    """Answers one request on standard output, and ends. What a module prints goes to standard error."""
    die_with_parent(int(sys.argv[1]))
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ProbeRequest)
    with os.fdopen(os.dup(1), "wb", 0) as lines:
        os.dup2(2, 1)
        for one in answer(request):
            lines.write(msgspec.json.encode(one) + b"\n")
    sys.stderr.flush()
    os._exit(0)  # without waiting for threads that a module has started


if __name__ == "__main__":
    main()
