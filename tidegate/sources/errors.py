"""The errors that stop a source."""

from __future__ import annotations

from tidegate.errors import AttemptFailed, PipelineStopped


class SourceFailed(PipelineStopped):
    """A failure that another attempt would meet again: unknown topic, no permission, input lost to retention."""

    code = "source-failed"


class SourceUnavailable(AttemptFailed):
    """The brokers cannot serve the source now; another attempt may succeed."""

    code = "source-unavailable"
