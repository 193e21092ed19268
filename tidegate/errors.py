"""One base for every error Tidegate raises on purpose: a code, fields, and whether trying again can help."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

BEGIN_ANEW: Final = "an empty `checkpoints.directory` and --begin-anew"
"""What is left where nothing else fits: everything is read as `start` says, and written again (ADR 20)."""
OTHER_TOPIC: Final = "or, where no source reads it, give its sink another topic, which keeps state and positions"
"""What costs less where a topic that is gone, or is another one, is only written to."""


UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""What msgspec raises for bytes from strangers; the second where a text in them is not UTF-8."""


class TidegateError(Exception):
    """Base of all deliberate errors; never raised itself.

    `code` is stable and goes to logs and metrics; `exit_code` is what `tidegate` ends with when the error reaches the
    top; `retriable` says whether the restart strategy may try another attempt. `fields` are for machines, the message
    is for the person who is woken up: what happened, where, and what to do.
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
    """The pipeline must not go on by itself: a restart would meet the same thing or lose data."""

    code = "pipeline-stopped"
    exit_code = 4
    retriable = False


class Superseded(TidegateError):
    """A newer daemon has taken this pipeline over by the journal: stop at once, decide nothing."""

    code = "superseded"
    exit_code = 5
    retriable = False
