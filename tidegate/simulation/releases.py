"""A user who puts out releases of the pipeline between two starts, each with a change in the step `totals`.

`reset`: the step begins with empty state. `added`: it gets an aggregate of its own, and the one of the release before
is given up; its other totals go on. Each row of `sums` says which release counted it, so that what it must be follows
from the rows alone: a release whose daemon never completed a checkpoint has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidegate.simulation.chance import generator

if TYPE_CHECKING:
    from tidegate.daemon.restore_point import RestoreOption

CHANGES: Final = ("reset", "added")
STEP: Final = "totals"
NEW: Final = 0.6
"""Of the daemons, this part is started with another release than the one before."""
_STAMPED: Final = "stamped"
_COLUMNS: Final = ("sku", "orders", "revenue_cents", "last_id")


class Releases:
    """Which one each daemon is started with."""

    def __init__(self, seed: int) -> None:
        self._random = generator(seed, "releases")
        self._restore: RestoreOption | None = None
        self.number = -1

    def draw(self, restore: RestoreOption | None, *, alone: bool) -> int:
        """The next one; or the same again, where whoever starts has no other wish: then nothing is to be reset again.

        Where somebody goes back is always another one, so no history has a release of an earlier one. A daemon that is
        not `alone` has the file of the other one: either may take over from the other, and continue its totals.
        """
        if self.number < 0 or restore != self._restore or (alone and self._random.random() < NEW):
            self.number += 1
        self._restore = restore
        return self.number


def release(document: dict[str, Any], change: str, number: int) -> dict[str, Any]:
    """The file of release `number`, from 0 on."""
    counter = f"since_{number}"
    words: dict[str, Any] = {}
    select: dict[str, Any] = {**{name: name for name in _COLUMNS}, "release": str(number)}
    if change == "reset" and number:
        words = {"state": {"reset": f"release {number}"}}
    elif change == "added":
        select["since"] = counter
        words = {"state": {"drop": [f"since_{older}" for older in range(number)]}} if number else {}
    steps = [
        {**step, "aggregate": _aggregate(step, change, counter), **words} if step["name"] == STEP else step
        for step in document["steps"]
    ]
    steps.append({"name": _STAMPED, "from": STEP, "select": select})
    sinks = {
        name: {**sink, "from": _STAMPED} if sink["from"] == STEP else sink for name, sink in document["sinks"].items()
    }
    return {**document, "steps": steps, "sinks": sinks}


def _aggregate(step: dict[str, Any], change: str, counter: str) -> dict[str, str]:
    """With the counter before the others: it moves the places of their accumulators."""
    return {**({counter: "count(*)"} if change == "added" else {}), **step["aggregate"]}
