"""Tidegate moves data from Kafka to Kafka exactly once, on the Spark executors you already run.

From Python, in a notebook or a test, `tidegate.load("orders.yaml")` reads a pipeline file; see docs/python-api.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.api.pipeline import CaseReport, Pipeline, load, loads
    from tidegate.api.rows import Frames
    from tidegate.config.errors import ConfigErrors, Problem
    from tidegate.errors import TidegateError

__version__ = "0.1.0"
__all__ = [
    "CaseReport",
    "ConfigErrors",
    "Frames",
    "Pipeline",
    "Problem",
    "TidegateError",
    "load",
    "loads",
]

_HOMES = {
    **dict.fromkeys(("CaseReport", "Pipeline", "load", "loads"), "tidegate.api.pipeline"),
    "Frames": "tidegate.api.rows",
    **dict.fromkeys(("ConfigErrors", "Problem"), "tidegate.config.errors"),
    "TidegateError": "tidegate.errors",
}
"""Where public names are defined. They are imported when they are used: the daemon's processes need none of them."""

if not TYPE_CHECKING:  # a type checker takes a module with this function for one that has every name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
