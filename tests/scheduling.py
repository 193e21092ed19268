"""Which tests a worker of `make test` runs together, and in which order the workers take them.

Tests of one file stay together, and so do those of a room whose tests share brokers, and all that share a Spark
session: both are expensive to start for each worker. Long rooms come first, so that no worker is left alone with one of
them at the end.

One worker begins with the tests that start daemons, the others with all else: two daemons at a time on two cores take
each other's time, wait longer for everything, and need half as much CPU time again.
"""

from __future__ import annotations

from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

TOGETHER: Final = ("sinks", "operators")
DAEMONS: Final = ("e2e", "users")
"""Rooms whose tests start daemons, with Spark."""
LIKE_SPARK: Final = "like_spark.py"
"""Files whose names end so use one Spark session."""
LONG: Final = (
    "users/test_bad_records.py",
    "e2e/test_kills.py",
    "e2e/test_zombies.py",
    "e2e/test_savepoints.py",
    "users/test_owning.py",
    "users/test_wrong_settings.py",
    "e2e/test_stopping.py",
    "e2e/test_registry.py",
    "users/test_spark_masters.py",
    "e2e/test_windows.py",
    "storage/test_crash_points.py",
    "simulation/broker/test_scenarios.py",
    "sources/test_outage.py",
    "contract/test_coverage.py",
    "simulation/test_paired.py",
    "golden/test_no_pickle.py",
    "kafka/test_oauth.py",
    "dev/broker/test_server.py",
)
"""Files that take half a minute or more, the longest first: one that begins last would end alone."""
ORDER: Final = (
    *TOGETHER,
    *LONG,
    *DAEMONS,
    *(
        "simulation",
        "storage",
        "contract",
        "daemon",
        "spark",
        "dev",
        "sources",
        "kafka",
        "slot",
        "task",
    ),
)
"""The longest first; all others follow."""


def derive_unit(nodeid: str) -> str:
    """The name of what is run together with this test; `nodeid` is `tests/room/...::...`."""
    file = nodeid.split("::", 1)[0]
    if file.endswith(LIKE_SPARK):
        return LIKE_SPARK
    room = _room(nodeid)
    return room if room in TOGETHER else file


def derive_rank(nodeid: str) -> int:
    """The place in the order of a test's file, else of its room."""
    file = nodeid.split("::", 1)[0].partition("/")[2]
    room = file if file in LONG else _room(nodeid)
    if derive_unit(nodeid) == LIKE_SPARK:
        return 0
    return ORDER.index(room) if room in ORDER else len(ORDER)


def _room(nodeid: str) -> str:
    parts = nodeid.split("/")
    return parts[1] if len(parts) > 1 else ""


class ByRoom(LoadScopeScheduling):  # type: ignore[misc]  # without types
    """xdist's scheduling by units of our own, in the order of the collection but for who takes daemons."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return derive_unit(nodeid)

    def _assign_work_unit(self, node: Any) -> None:
        """The first unit of the worker's kind; of the other kind when its own is used up."""
        daemons = node is self.nodes[0]
        own = (unit for unit in self.workqueue if (_room(unit) in DAEMONS) == daemons)
        self.workqueue.move_to_end(next(own, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)
