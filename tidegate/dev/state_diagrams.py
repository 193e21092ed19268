"""The state tables as diagrams for docs/states.md: `python -m tidegate.dev.state_diagrams` writes the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from tidegate.coordinator.pending import NEXT
from tidegate.coordinator.triggers import PHASES
from tidegate.sinks.pool import LIFE

S = TypeVar("S", bound=Enum)
C = TypeVar("C", bound=Enum)

PAGE: Final = Path(__file__).parents[2] / "docs" / "states.md"
HEAD: Final = """\
# State machines

Every state machine is a table. A transition that the table lacks is impossible: it ends the pipeline with
`protocol-broken`, and the error reports what came before. This page is generated from the tables by
`python -m tidegate.dev.state_diagrams`; a test compares it with them.
"""


def render_page() -> str:
    """Renders the whole page."""
    return "\n".join([
        HEAD,
        _section("An attempt, as the coordinator sees it", "coordinator/triggers.py", _by_step(PHASES)),
        _section("A checkpoint or savepoint in progress", "coordinator/pending.py", _without_steps(NEXT)),
        _section("A transactional id in a sink subtask", "sinks/pool.py", _by_step(LIFE)),
    ])  # fmt: skip


Arrow = tuple[Enum, Enum, str]
"""State before, state after, and the cause."""


def render_diagram(arrows: Iterable[Arrow]) -> str:
    """Renders a Mermaid diagram, in which a cause must not contain a colon.

    It begins at the first state of the first arrow. Several causes share an arrow.
    """
    causes: dict[tuple[Enum, Enum], list[str]] = {}
    for before, after, cause in arrows:
        causes.setdefault((before, after), []).append(cause)
    states = list(dict.fromkeys(state for pair in causes for state in pair))
    ends = [state for state in states if not any(before is state for before, _ in causes)]
    lines = ["stateDiagram-v2", *(f"    {state.name}: {state.name} - {state.value}" for state in states)]
    lines.append(f"    [*] --> {states[0].name}")
    for (before, after), whys in causes.items():
        why = ", ".join(filter(None, whys))
        lines.append(f"    {before.name} --> {after.name}" + (f": {why}" if why else ""))
    lines += [f"    {state.name} --> [*]" for state in ends]
    return "\n".join(lines)


def _section(title: str, place: str, arrows: Iterable[Arrow]) -> str:
    return f"## {title}\n\nThe table is in `{place}`.\n\n```mermaid\n{render_diagram(arrows)}\n```\n"


def _by_step(table: Mapping[tuple[S, C], S]) -> list[Arrow]:
    return [(before, after, str(step.value)) for (before, step), after in table.items()]


def _without_steps(table: Mapping[S, Iterable[S]]) -> list[Arrow]:
    return [(before, after, "") for before, all_after in table.items() for after in sorted(all_after, key=_place)]


def _place(state: Enum) -> int:
    return list(type(state)).index(state)


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
