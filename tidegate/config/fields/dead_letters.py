"""The section `dead_letters` of the file: the topic for records that could not be processed."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from tidegate.config.fields.base import Settings
from tidegate.config.fields.types import Cluster, Topic, ValueCheck, integer
from tidegate.ids import MAIN_CLUSTER

UNLIMITED: Final = "unlimited"
_COUNT: Final = integer(1, 1_000_000_000)


def _per_minute(value: object) -> int | None:
    return None if value == UNLIMITED else _COUNT.check(value)


class DeadLetterSettings(Settings):
    """The topic for records that could not be processed, for sources with `bad_records: dead-letter`.

    A letter has the record's key, value and headers, and headers with the reason (KIP-1034 and our own). It is written
    in the transaction of the checkpoint that has the progress past the record, or of a later one: it waits where bytes
    have to be read back.
    """

    topic: Annotated[
        Topic,
        Field(
            description="The topic to write; no source or sink of the file may use it. It must not be "
            "compacted, and should accept records as large as those of the sources."
        ),
    ]
    cluster: Annotated[Cluster, Field(description="The cluster of the topic: `kafka`, or a name under `clusters`.")] = (
        MAIN_CLUSTER
    )
    retry_topic: Annotated[
        Topic | None,
        Field(
            description="A topic of its own for replays: `tidegate dead-letters replay` writes letters of steps and "
            "sinks there, and the pipeline processes their rows at the step that failed. It must not be compacted, "
            "and needs the record size and the retention of `topic`. Without it, replays write whole records again."
        ),
    ] = None
    per_minute_max: Annotated[
        int | None,
        ValueCheck(_per_minute, {"anyOf": [dict(_COUNT.schema), {"const": UNLIMITED}]}),
        Field(
            alias="max_per_minute",
            description="More dead letters in a minute stop the pipeline with the reason and exit code 4; `unlimited` "
            "for no limit.",
        ),
    ] = 1000
