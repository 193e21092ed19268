"""Which combinations of Spark, Kafka, Python and Java are run: one axis at a time from the middle, and corners."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

import msgspec

Axis = Literal["spark", "kafka", "python", "java"]


class Cell(msgspec.Struct, frozen=True):
    """One combination. `kafka` is a version, and after a slash the transaction version of the cluster if it is set."""

    spark: str = "4.3.0"
    kafka: str = "4.3.1"
    python: str = "3.11"
    java: str = "17"

    @property
    def name(self) -> str:
        """For a person, and for the names of directories."""
        return f"spark-{self.spark}-kafka-{self.kafka}-python-{self.python}-java-{self.java}".replace("/", "-t")

    @property
    def kafka_version(self) -> str:
        """Of the broker's jars."""
        return self.kafka.partition("/")[0]

    @property
    def transaction_version(self) -> int | None:
        """As formatted; None: the broker's own choice."""
        chosen = self.kafka.partition("/")[2]
        return int(chosen) if chosen else None


MIDDLE: Final = Cell()
"""What the lock pins."""
AXES: Final[Mapping[Axis, tuple[str, ...]]] = {
    "spark": ("3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0"),
    "kafka": (
        *("3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.2"),
        *("4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.3.1/1"),
    ),
    "python": ("3.11", "3.12", "3.13", "3.14"),
    "java": ("17", "21", "25"),
}
CORNERS: Final = (
    Cell(spark="3.5.9", kafka="3.3.2"),
    Cell(spark="3.5.9", python="3.12"),
    Cell(spark="3.5.9", java="21"),
    Cell(spark="4.0.5", python="3.13", java="21"),
    Cell(spark="4.1.4", python="3.13", java="21"),
    Cell(spark="4.2.1", python="3.12"),
    Cell(spark="4.3.0", python="3.13", java="25"),
)


def derive_cells(chosen: Mapping[Axis, Collection[str]]) -> list[Cell]:
    """All cells, the middle first; where axes are chosen, only those with a chosen version on each.

    A version is chosen by its beginning: `4.0` is any 4.0.x, so that the command outlives a new patch.
    """
    varied = [msgspec.structs.replace(MIDDLE, **{axis: one}) for axis, versions in AXES.items() for one in versions]
    cells = list(dict.fromkeys([MIDDLE, *varied, *CORNERS]))
    return [cell for cell in cells if all(_is_chosen(getattr(cell, axis), chosen[axis]) for axis in chosen)]


def _is_chosen(version: str, chosen: Collection[str]) -> bool:
    return any(version == one or version.startswith((f"{one}.", f"{one}/")) for one in chosen)
