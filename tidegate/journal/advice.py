"""Error texts about a journal that is damaged or has gaps. Pure."""

from __future__ import annotations

from tidegate.errors import BEGIN_ANEW, TidegateError
from tidegate.ids import CheckpointId


def advise(location: str, trouble: TidegateError, before: CheckpointId | None, first: str) -> str:
    """Describes the problem, its consequences, and every way out.

    `before` is the newest readable checkpoint; `first` is what the user must do before going back to it.
    """
    place = location.rstrip("/")
    way = (
        f"when no other daemon runs this pipeline and readers can live with output that is written again, {first}"
        f"start with --restore {before} --repeat-output; "
    )
    return (
        f"{place}/{find_problem(trouble)}. Without it nothing says which output is committed, so nothing was started. "
        f"The choices: put the whole folder {place}/journal back from a backup of this directory; "
        f"{way if before else ''}restore a savepoint into a new `checkpoints.directory` (--restore PATH "
        f"--repeat-output); or begin as `start` says, with {BEGIN_ANEW}"
    )


def find_problem(trouble: TidegateError) -> str:
    """Returns the file and its problem, without the advice that applies to every file."""
    if "problem" not in trouble.fields:
        return trouble.message
    return f"{trouble.fields['name']} is corrupt: {trouble.fields['problem']}"
