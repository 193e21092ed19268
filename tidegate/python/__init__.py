"""Steps in Python: what a module next to a pipeline file imports (`tidegate docs python`).

A step is a function of a row, or a class derived from `Step` with declared state and timers. A pipeline file names it
as `python: module:Name`.
"""

from tidegate.python.state import List, Map, Timer, Value
from tidegate.python.step import Out, Row, Settings, Step

__all__ = ["List", "Map", "Out", "Row", "Settings", "Step", "Timer", "Value"]
