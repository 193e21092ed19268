"""The shop of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.shop import Shop
from tests.conftest import SessionBroker, TopicMaker


@pytest.fixture
def shop(broker: SessionBroker, topics: TopicMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    directory = tmp_path / f"shop-{tmp_path.name}"
    directory.mkdir()
    made = Shop(directory, broker.bootstrap, topics("orders", 2), topics("out", 1))
    monkeypatch.setattr("tidegate.daemon.service.SparkHost.start", lambda _host, slots: made.start_spark(slots))
    return made
