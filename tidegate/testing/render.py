"""Results of cases for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from tidegate.config.load import LoadedPipeline
from tidegate.formats.plain import as_float, render_number
from tidegate.testing.cases import CaseFailure, CaseResult
from tidegate.testing.compare import Line, is_absent, render_flow, render_record

AGREEING_MAX: Final = 3
"""Maximum number of agreeing records shown before and after each difference."""
_STYLES: Final = {" ": "dim", "-": "red", "+": "green"}
_SIGNS: Final = {"-": "missing", "+": "unexpected", " ": "agrees"}


class ResultPrinter:
    """Prints each result as soon as it is known, with colours only on a terminal."""

    def __init__(self, console: Console, loaded: LoadedPipeline) -> None:
        self._console = console
        self._loaded = loaded

    def print_case(self, result: CaseResult) -> None:
        """Prints one line and, for a failed case, what is wrong."""
        word, style = ("passed", "green") if result.passed else ("failed", "bold red")
        line = Text.assemble((word, style), "  ", result.case.name, (f"  ({_duration(result.seconds)})", "dim"))
        if not result.passed:
            line.append(f"  {place_of(self._loaded, result)}", "dim")
        self._print(line)
        for failure in result.failures:
            self._print_failure(failure)

    def print_summary(self, results: Sequence[CaseResult], left_out: int, seconds: float) -> None:
        """Prints how many cases have passed."""
        failed = sum(not result.passed for result in results)
        parts = [f"{len(results) - failed} passed", *([f"{failed} failed"] if failed else [])]
        if left_out:
            parts.append(f"{left_out} not chosen")
        text = f"{', '.join(parts)} in {_duration(seconds)}"
        self._print(Text(text, "bold red" if failed else "bold green"))

    def _print_failure(self, failure: CaseFailure) -> None:
        first, *rest = failure.message.splitlines()
        self._print(Text(f"    {f'sink {failure.sink}: ' if failure.sink else ''}{first}"))
        for text in rest:
            self._print(Text(f"        {text}"))
        for line in shorten(failure.difference or ()):
            for text, style in _render_line(line):
                self._print(Text(f"      {text}", style))

    def _print(self, text: Text) -> None:
        self._console.print(Text(self._loaded.secrets(text.plain), spans=text.spans, style=text.style), soft_wrap=True)


def place_of(loaded: LoadedPipeline, result: CaseResult) -> str:
    """Returns `file:line:column` of a case."""
    line, column = loaded.position(("tests", loaded.settings.tests.index(result.case)))
    return f"{loaded.file}:{line}:{column}"


def shorten(lines: Sequence[Line]) -> list[Line | int]:
    """Replaces agreeing records that are far from any difference by their number."""
    near = {
        at + step
        for at, line in enumerate(lines)
        if line.sign != " "
        for step in range(-AGREEING_MAX, AGREEING_MAX + 1)
    }
    found: list[Line | int] = []
    for at, line in enumerate(lines):
        if at in near:
            found.append(line)
        elif found and isinstance(found[-1], int):
            found[-1] += 1
        else:
            found.append(1)
    return found


def _render_line(line: Line | int) -> list[tuple[str, str]]:
    if isinstance(line, int):
        return [(f"  ({line} more that agree{'s' if line == 1 else ''})", "dim")]
    rendered = [(f"{line.sign} {render_record(line.record)}", _STYLES[line.sign])]
    if any("." in path or "[" in path for path, _, _ in line.fields) or len(line.fields) > 1:
        rendered += [
            (f"      {path}: expected {_render_field(wanted)}, came {_render_field(came)}", "yellow")
            for path, wanted, came in line.fields
        ]
    return rendered


def _render_field(value: Any) -> str:
    return "nothing" if is_absent(value) else render_flow(value)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


# -- for programs ------------------------------------------------------------------------------------------------------


def render_json(loaded: LoadedPipeline, results: Sequence[CaseResult]) -> str:
    """Renders a list of objects, one per case."""
    return json.dumps([_case(loaded, result) for result in results], indent=2, ensure_ascii=False, default=_number)


def _number(value: object) -> float | str:
    """Converts a decimal as in a pipeline file."""
    if not isinstance(value, Decimal):
        raise TypeError(f"{type(value).__name__} is not of JSON")
    number = as_float(value)
    return render_number(value) if number is None else number


def _case(loaded: LoadedPipeline, result: CaseResult) -> dict[str, Any]:
    return {
        "name": result.case.name,
        "place": place_of(loaded, result),
        "passed": result.passed,
        "seconds": round(result.seconds, 4),
        "failures": [
            {
                "sink": failure.sink,
                "message": loaded.secrets(failure.message),
                "difference": [{"is": _SIGNS[one.sign], "record": one.record} for one in failure.difference or ()],
            }
            for failure in result.failures
        ],
    }


def render_failures(loaded: LoadedPipeline, result: CaseResult) -> str:
    """Renders why a case has failed; empty if it has passed."""
    return loaded.secrets("\n".join(line for failure in result.failures for line in render_failure(failure)))


def render_failure(failure: CaseFailure) -> list[str]:
    """Renders one reason as lines."""
    head = f"sink {failure.sink}: " if failure.sink else ""
    return [
        f"{head}{failure.message}",
        *(f"  {text}" for line in shorten(failure.difference or ()) for text, _ in _render_line(line)),
    ]
