"""The page of a real daemon: a slot is killed, and the page shows the restart and recovers; a daemon that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import PATIENCE_MS, Viewer, show
from tests.conftest import SessionBroker
from tests.support.processes import kill
from tests.support.rig import Rig

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture
def rig(broker: SessionBroker, tmp_path: Path) -> Iterator[Rig]:
    with Rig(broker, tmp_path / "rig", seed=44) as rig:
        yield rig


def test_the_page_shows_a_restart_and_recovers_and_greys_out_when_the_daemon_has_ended(
    rig: Rig, viewer: Viewer
) -> None:
    rig.writer.start()
    daemon = rig.daemon().start()
    daemon.wait_running()
    address = f"http://127.0.0.1:{daemon.wait_for(r'http://127[.]0[.]0[.]1:([0-9]+)').group(1)}"
    page = viewer.open_address(address)
    page.set_default_timeout(10 * PATIENCE_MS)
    show(page, "overview")
    state = page.locator("header [role='status']")
    state.filter(has_text="running").wait_for()

    assert kill(daemon.slots()[0])
    page.get_by_text("1 restart").wait_for()  # the state in between may be shorter than the page's interval
    state.filter(has_text="running").wait_for()
    page.get_by_role("link", name="Events", exact=True).click()
    page.get_by_text("attempt 1 failed").first.wait_for()
    page.get_by_role("link", name="Checkpoints", exact=True).click()
    page.locator(".checkpoint-bars li").first.wait_for()

    viewer.watches[-1].expected.append("net::ERR")
    assert daemon.terminate() == 0
    page.get_by_role("alert").filter(has_text="The daemon has not answered since").wait_for()
    assert page.locator("main.stale .checkpoint-bars li").count() > 0
    page.get_by_text("no answer").wait_for()
