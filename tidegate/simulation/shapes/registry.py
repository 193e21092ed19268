"""Every shape by name. A test adds its own shape to `SHAPES` under a new name, which no seed draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.simulation.shapes.joined import IntervalJoin, Quiet, WindowJoin
from tidegate.simulation.shapes.keyed import Best, Dedup, Expiring, LastShape
from tidegate.simulation.shapes.lookup import LookupShape, TableShape
from tidegate.simulation.shapes.python_steps import PythonBatches, PythonVisits
from tidegate.simulation.shapes.running import Both, Chain, Halves, Letters, Stateless, Totals, Union
from tidegate.simulation.shapes.shape import Shape
from tidegate.simulation.shapes.stateless import Calls, LostInput, NewTopics, Spread
from tidegate.simulation.shapes.windowed import ChainWindows, SessionWindows, UnionWindows, WideWindows, Windows

_RARE: Final[Mapping[str, Shape]] = {
    "spread": Spread(),
    "calls": Calls(),
    "new-topics": NewTopics(),
    "lost-input": LostInput(),
    "dedup": Dedup(),
    "last": LastShape(),
    "best": Best(),
    "expiring": Expiring(),
    "letters": Letters(),
}
_WINDOWED: Final[Mapping[str, Shape]] = {
    "windows": Windows(),
    "union-windows": UnionWindows(),
    "chain-windows": ChainWindows(),
    "wide-windows": WideWindows(),
    "session-windows": SessionWindows(),
}
_JOINED: Final[Mapping[str, Shape]] = {
    "lookup": LookupShape(),
    "lookup-at-once": LookupShape(gated=False),
    "lookup-drop": LookupShape("drop"),
    "lookup-fail": LookupShape("fail"),
    "lookup-wait": LookupShape("wait"),
    "table": TableShape(),
    "join-inner": IntervalJoin("inner"),
    "join-left": IntervalJoin("left"),
    "join-right": IntervalJoin("right"),
    "join-full": IntervalJoin("full"),
    "join-semi": IntervalJoin("semi"),
    "join-anti": IntervalJoin("anti"),
    "window-join": WindowJoin("full"),
    "quiet": Quiet(),
}
_PYTHON: Final[Mapping[str, Shape]] = {"python-visits": PythonVisits(), "python-batches": PythonBatches()}
SHAPES: Final[dict[str, Shape]] = {
    "stateless": Stateless(),
    "totals": Totals(),
    "both": Both(),
    "union": Union(),
    "chain": Chain(),
    "halves": Halves(),
    **_WINDOWED,
    **_RARE,
    **_JOINED,
    **_PYTHON,
}
COMMON: Final = ("stateless", "totals", "both", "union", "chain", "chain", "chain")
"""Shapes of most schedules, each as often as its weight."""
RARE: Final = tuple(_RARE)
"""Shapes of some schedules."""
WINDOWED: Final = tuple(_WINDOWED)
"""Shapes of schedules with windows."""
JOINED: Final = tuple(_JOINED)
"""Shapes of schedules with joins, tables and absence."""
PYTHON: Final = tuple(_PYTHON)
"""Shapes of schedules with steps in Python."""
