"""The diagrams in docs/states.md are those of the tables."""

from __future__ import annotations

from enum import Enum

from tidegate.dev.state_diagrams import PAGE, render_diagram, render_page


class Light(Enum):
    RED = "stop"
    GREEN = "go"
    OFF = "out of order"


def test_the_page_is_what_the_tables_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_page(), "python -m tidegate.dev.state_diagrams writes it"


def test_no_text_has_what_would_end_it_in_a_diagram() -> None:
    for line in [line for line in render_page().splitlines() if line.startswith("    ")]:
        assert line.count(":") <= 1, line
        assert ";" not in line


def test_a_diagram_has_the_first_state_every_arrow_once_and_the_last_states() -> None:
    arrows = [
        (Light.RED, Light.GREEN, "a minute"),
        (Light.RED, Light.GREEN, "a button"),
        (Light.GREEN, Light.RED, "a minute"),
        (Light.GREEN, Light.OFF, ""),
    ]
    assert render_diagram(arrows).splitlines() == [
        "stateDiagram-v2",
        "    RED: RED - stop",
        "    GREEN: GREEN - go",
        "    OFF: OFF - out of order",
        "    [*] --> RED",
        "    RED --> GREEN: a minute, a button",
        "    GREEN --> RED: a minute",
        "    GREEN --> OFF",
        "    OFF --> [*]",
    ]
