"""When a source declares that it has caught up with what its topics held at the start (ADR 73): it need not be idle."""

from __future__ import annotations

import pytest

from tests.sources.scripted import NAME, P0, P1, Scripted, order
from tidegate.config.fields.records import Idle
from tidegate.coordinator.types import SourcePositions
from tidegate.operators.builtin.kafka_source import EventTime
from tidegate.task.elements import CatchUpMarker

CAUGHT_UP = CatchUpMarker()


@pytest.mark.parametrize("event_time", [None, EventTime("at", 0, Idle.NEVER)])
def test_it_follows_the_last_row_that_was_there_whatever_comes_later(event_time: EventTime | None) -> None:
    """A topic that is written all the time never ends, and is never idle."""
    with Scripted(event_time, ends={P0: 2, P1: 1}) as one:
        one.client.put(P0, order(1, 100))
        one.client.put(P1, order(2, 100))
        one.gather()
        assert CAUGHT_UP not in one.poll()
        for number in range(3, 6):
            one.client.put(P0, order(number, 100))
        one.gather()
        (rows, *_, last) = one.poll()
        assert (rows, last) == ([3, 4, 5], CAUGHT_UP)
        one.client.put(P0, order(6, 100))
        one.gather()
        assert one.poll() == [[6]], "once"


def test_an_end_behind_the_last_record_is_reached_by_what_the_client_reports() -> None:
    """Markers and aborted records are no records."""
    with Scripted(None, ends={P0: 0, P1: 2}) as one:
        one.client.put(P1, order(1, 100))
        one.gather()
        assert one.poll() == [[1]]
        one.client.put(P1, None)
        one.client.end(P1)
        one.gather()
        assert one.poll()[-1] == CAUGHT_UP


def test_an_empty_topic_has_caught_up_at_once() -> None:
    with Scripted(None, ends={P0: 0, P1: 0}) as one:
        assert one.poll() == [CAUGHT_UP]


def test_a_subtask_without_partitions_has_caught_up_at_once() -> None:
    """It would wait for ever (flink#22847)."""
    with Scripted(None, partitions=(), ends={}) as one:
        assert one.poll() == [CAUGHT_UP]
        one.source.add_partitions([P0])
        one.client.put(P0, order(1, 100))
        one.gather()
        assert one.poll() == [[1]]


def test_a_source_on_hold_that_was_restored_at_the_end_has_caught_up() -> None:
    """Else two gates in a chain would wait for more than there is."""
    with Scripted(None, SourcePositions(NAME, ((P0, 4), (P1, 0))), ends={P0: 4, P1: 0}) as one:
        assert one.poll(rows_max=0) == [CAUGHT_UP]


def test_a_source_on_hold_with_more_to_read_has_not() -> None:
    with Scripted(None, ends={P0: 1, P1: 0}) as one:
        one.client.put(P0, order(1, 100))
        one.gather()
        assert one.poll(rows_max=0) == []
        assert one.poll() == [[1], CAUGHT_UP]


def test_without_gates_nothing_is_asked_and_nothing_declared() -> None:
    with Scripted(None) as one:
        assert one.client.asked == []
        one.client.put(P0, order(1, 100))
        one.gather()
        assert one.poll() == [[1]]
