"""Survivors that a person has looked at: `judged/<room>.txt` has reasons at the margin and, indented below each, the
mutants it holds for, as a run prints them. A mutant is named by its function and its lines, so it may move; `*` in
place of the lines stands for the whole function.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.work import Mutant

JUDGED: Final = Path(__file__).parent / "judged"


def read_judged(place: str) -> set[str]:
    """Names of the judged mutants of this room, or of this module."""
    room, _, module = place.partition("/")
    file = JUDGED / f"{room}.txt"
    lines = file.read_text().splitlines() if file.exists() else []
    names = {line.strip() for line in lines if line.startswith(" ")}
    prefix = ".".join([room, *module.split("/")]) if module else f"{room}."
    return {name for name in names if name.startswith(prefix)}


def find_unjudged(mutants: Sequence[Mutant], judged: set[str]) -> list[Mutant]:
    """Survivors that no line of these is for."""
    return [mutant for mutant in mutants if mutant.survived and judged.isdisjoint({mutant.name, mutant.any_name})]


def print_as_judged(mutants: Sequence[Mutant]) -> None:
    """So that the lines can be put below their reason."""
    for name in dict.fromkeys(mutant.name for mutant in mutants):
        print(f"    {name}")
