"""A user who releases changed versions of the pipeline between starts, each with a change in the step `totals`.

`reset`: the step begins with empty state. `added`: the step gets a new aggregate, and that of the previous release is
dropped; its other totals continue. Each row of `sums` contains the release that counted it, so the expected output
follows from the rows alone. A release whose daemon never completed a checkpoint has no rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidegate.simulation.kernel import generator

if TYPE_CHECKING:
    from tidegate.daemon.restore_point import RestoreOption

CHANGES: Final = ("reset", "added")
STEP: Final = "totals"
NEW: Final = 0.6
"""The fraction of daemons that start with a new release."""
_STAMPED: Final = "stamped"
_COLUMNS: Final = ("sku", "orders", "revenue_cents", "last_id")


class Releases:
    """The release that each daemon is started with."""

    def __init__(self, seed: int) -> None:
        self._random = generator(seed, "releases")
        self._restore: RestoreOption | None = None
        self.number = -1

    def draw(self, restore: RestoreOption | None, *, alone: bool) -> int:
        """Returns the next release, or the same one again. With an unchanged release nothing is reset again.

        A restore always starts another release, so no history contains a release of an earlier one. A daemon that is
        not `alone` gets the file of the other daemon: either may take over from the other and continue its totals.
        """
        if self.number < 0 or restore != self._restore or (alone and self._random.random() < NEW):
            self.number += 1
        self._restore = restore
        return self.number


def release(document: dict[str, Any], change: str, number: int) -> dict[str, Any]:
    """Returns the file of release `number`, counted from 0."""
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
    """Puts the counter before the other aggregates, which moves the positions of their accumulators."""
    return {**({counter: "count(*)"} if change == "added" else {}), **step["aggregate"]}
