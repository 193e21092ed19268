"""What stands against a start, as values: problems with their places, and the exit code that they make together."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from tidegate.checks.cluster import Cluster
from tidegate.config.errors import Problem
from tidegate.coordinator.journal_state import JournalState
from tidegate.errors import TidegateError
from tidegate.storage.base import StorageError

_RANKS: Final = (2, 4, 5, 1)
"""Exit codes of a start that is refused for several reasons: what a person has to mend before what may pass."""


class StartProblem(msgspec.Struct, frozen=True):
    """One thing that is wrong, or worth a warning."""

    problem: Problem
    exit_code: int = 2
    """Of a start, if it is an error."""
    cause: TidegateError | None = None
    examined: bool = False
    """`tidegate doctor` looks at this itself, and says more."""

    @property
    def refuses(self) -> bool:
        """It is no warning."""
        return self.problem.severity == "error"

    @property
    def text(self) -> str:
        """With its place, if that is in the pipeline file."""
        return str(self.problem) if self.problem.path else self.problem.message


class StartLook(msgspec.Struct, frozen=True):
    """What was seen before a start."""

    problems: list[StartProblem]
    cluster: Cluster | None = None
    """None when no broker could be asked."""
    state: JournalState | None = None
    """None when the journal could not be read."""
    storage_trouble: StorageError | None = None
    """What a trial of the checkpoint directory ended with; it is among the problems, too."""


class StartRefused(TidegateError):
    """Nothing was started. `problems` are errors only; the start ends with `derive_exit_code` of them."""

    code = "start-refused"
    exit_code = 2

    def __init__(self, problems: Collection[StartProblem]) -> None:
        self.problems = tuple(problem for problem in problems if problem.refuses)
        super().__init__("\n".join(problem.text for problem in self.problems))


def derive_exit_code(problems: Collection[StartProblem]) -> int:
    """Of a start with these problems; 0: nothing stands against it."""
    codes = {problem.exit_code for problem in problems if problem.refuses}
    return next((code for code in _RANKS if code in codes), max(codes, default=0))
