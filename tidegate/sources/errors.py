"""Why a source cannot go on."""

from __future__ import annotations

from tidegate.errors import AttemptFailed, PipelineStopped


class SourceFailed(PipelineStopped):
    """Another attempt would meet the same: unknown topic, no permission, input lost to retention."""

    code = "source-failed"


class SourceUnavailable(AttemptFailed):
    """The brokers cannot serve the source now; another attempt may succeed."""

    code = "source-unavailable"
