"""What `tidegate doctor` asks, of a cluster of answers that are written down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import NodeNotReadyError, ThrottlingQuotaExceededError

from tests.kafka.test_connection import HELD_BACK, Scripted
from tidegate.kafka import inspection
from tidegate.kafka.inspection import THROTTLED_MAX, Inspector


def inspector_of(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> tuple[Inspector, Scripted]:
    """The last answer is given again and again."""
    left = list(answers)
    manager = Scripted(lambda _request, _node: left.pop(0) if len(left) > 1 else left[0])
    monkeypatch.setattr(inspection, "connect", lambda _kafka, _timeout_s: SimpleNamespace(_manager=manager))
    return Inspector({}, 1.0), manager


def read(code: int) -> Any:
    return SimpleNamespace(responses=[SimpleNamespace(partitions=[SimpleNamespace(error_code=code)])])


@pytest.mark.parametrize(("code", "may"), [(29, False), (3, True), (0, True)])
def test_whether_a_topic_may_be_read_is_asked_again_while_a_quota_holds_it_back(
    monkeypatch: pytest.MonkeyPatch, code: int, may: bool
) -> None:
    monkeypatch.setattr(inspection, "PAUSE_S", 0.0)
    inspector, manager = inspector_of(monkeypatch, HELD_BACK, NodeNotReadyError("paused"), read(code))
    assert inspector.may_read("orders") is may
    assert len(manager.asked) == 3


def test_a_quota_that_leaves_no_room_to_ask_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    inspector, manager = inspector_of(monkeypatch, HELD_BACK)
    with pytest.raises(ThrottlingQuotaExceededError, match="about topic orders"):
        inspector.may_read("orders")
    assert len(manager.asked) == THROTTLED_MAX
