"""The base of every deliberate Tidegate error: a code, fields, and whether a retry can help."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

BEGIN_ANEW: Final = "an empty `checkpoints.directory` and --begin-anew"
"""The last remedy if no other applies: everything is read according to `start`, and written again (ADR 20)."""
REPLACED_TOPIC: Final = (
    "If a source reads it and others, leave it out of the source, and start once with --drop SOURCE.TOPIC, which "
    "gives up the positions in this topic alone. If a source reads nothing else, give the source a new name, leave the "
    "topic out of it, and start once with --drop and the former name: steps keep their state, and the new source "
    f"begins at its `start`; or start with {BEGIN_ANEW}. If only a sink writes to it, give the sink another topic, "
    "which keeps state and positions"
)
"""The remedies for a topic that was deleted, or deleted and created again: a start refuses the new one."""


UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""What msgspec raises for untrusted bytes; the second for text in them that is not UTF-8."""


def describe_cause(error: Exception) -> str:
    """Returns the cause of an OSError, which includes those of TLS, without its number and file name.

    An SSLError has it in `reason`; other system errors have it in `strerror`.
    """
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


class TidegateError(Exception):
    """Base of all deliberate errors; never raised itself.

    `code` is stable and appears in logs and metrics. `exit_code` is the exit status of `tidegate` if the error reaches
    the top. `retriable` tells the restart strategy whether it may start another attempt. `fields` are for machines; the
    message tells the operator on call what happened, where, and what to do.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **fields: object) -> None:
        if type(self) is TidegateError:
            raise TypeError("TidegateError is abstract: raise one of its subclasses")
        super().__init__(message)
        self.message = message
        self.fields = fields


class AttemptFailed(TidegateError):
    """An attempt ended for a reason that another attempt may cure (lost worker, broker outage, failed flush)."""

    code = "attempt-failed"
    exit_code = 1
    retriable = True


class PipelineStopped(TidegateError):
    """The pipeline must not continue by itself: a restart would fail in the same way or lose data."""

    code = "pipeline-stopped"
    exit_code = 4
    retriable = False


class Superseded(TidegateError):
    """A newer daemon has taken over this pipeline in the journal: stop at once, decide nothing."""

    code = "superseded"
    exit_code = 5
    retriable = False
