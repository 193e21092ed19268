"""How long an idle reader waits, and what wakes it."""

from __future__ import annotations

import pytest

from tests.sources.scripted import P0, ScriptedClient
from tests.sources.test_rounds import Rounds
from tidegate.operators.spec import Planned, Requirement
from tidegate.sources.fetching import MessageFetcher
from tidegate.sources.positions import Due


class Woken(MessageFetcher):
    """Notes how long it should wait, and that it is woken."""

    def __init__(self, client: ScriptedClient, *, wakes: bool) -> None:
        super().__init__(client)
        self.wakes = wakes
        self.noted: list[object] = []

    def wait(self, seconds: float) -> bool:
        self.noted.append(seconds)
        return False

    def wake(self) -> None:
        self.noted.append("woken")


@pytest.mark.parametrize(
    ("carries", "wakes", "seconds"),
    [((), True, 0.5), ((), False, 0.1), ((Requirement.EVENT_TIME,), True, 0.1)],
)
def test_an_idle_reader_waits_long_where_it_is_woken_for_all_else(
    carries: tuple[Requirement, ...], wakes: bool, seconds: float
) -> None:
    one = Rounds(until="never", planned=Planned(carries=carries))
    one.fetcher = woken = Woken(one.client, wakes=wakes)
    one.read()
    one.reader._waits.fetcher = woken
    one.reader.ask({P0: Due(9, 1)})
    one.reader.close(0)
    assert woken.noted == [seconds, "woken", "woken"]
