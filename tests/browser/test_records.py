"""The pages that show data of records: a token first, then whatever a record holds, as text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.browser.axe import find_violations
from tests.browser.conftest import Viewer, show
from tests.browser.situations import HOSTILE
from tests.daemon.http.orders import TOKEN, Daemon
from tests.daemon.reading.letters import letter
from tests.daemon.reading.test_state import GOLDEN, load
from tidegate.daemon.http.pipeline_resources import make_pipeline_resources
from tidegate.daemon.http.resources import Resource
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.reading import dead_letters, state
from tidegate.daemon.reading.dead_letters import make_dead_letters_resource
from tidegate.daemon.reading.read_dead_letters import NewestLetters
from tidegate.daemon.reading.read_state import FoundRows
from tidegate.daemon.reading.state import make_state_resource

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VALUES = {HOSTILE: HOSTILE, "n": 9007199254740993, "none": None, "empty": "", "deep": [{"b": "<b>"}]}
ROW = msgspec.json.encode(VALUES).decode()
ABOUT = {"STEP": HOSTILE, "KIND": HOSTILE, "MESSAGE": HOSTILE, "ROW": ROW}
LETTERS = (
    letter(
        b'{"a": 1}',
        about={
            "STEP": "totals",
            "KIND": "DIVIDE_BY_ZERO",
            "MESSAGE": "n is 0",
            "TOPIC": "orders",
            "ROW": '{"net": 17, "__tidegate_time": 1767225600000}',
        },
    ),
    letter(HOSTILE.encode(), [(HOSTILE, HOSTILE.encode())], HOSTILE.encode(), ABOUT),
    letter(b"\x00\x1b[2J\xff" + b"x" * 1_000_000, about={"MESSAGE": "large"}),
    letter(None, about={"MESSAGE": "a tombstone"}),
)


class Child:
    """Answers instead of a process."""

    def __init__(self, module: str, *_: object) -> None:
        placed = (
            msgspec.structs.replace(
                one,
                letter=msgspec.structs.replace(one.letter, offset=400 - at),
                replayed_to="orders" if at == 3 else None,
            )
            for at, one in enumerate(LETTERS)
        )
        rows = [msgspec.json.encode({"customer": HOSTILE, "n": 9007199254740993}).decode()]
        self._answer = (
            NewestLetters(tuple(placed), complete=True)
            if module == dead_letters.MODULE
            else FoundRows(14, 1_767_225_600_014, "totals", rows, is_cut=False)
        )

    async def read(self, _request: object) -> object:
        return self._answer


@pytest.fixture
def address(viewer: Viewer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for module in (dead_letters, state):
        monkeypatch.setattr(module, "ChildReader", Child)
    loaded = load(GOLDEN, tmp_path, "dead_letters: {topic: dead}\n")
    metrics, daemon = PipelineMetrics("shop", "0.1.0"), Daemon()
    resources: list[Resource[Any]] = [
        *make_pipeline_resources(metrics),
        make_dead_letters_resource(loaded, ()),
        make_state_resource(loaded, {"net"}),
    ]
    server = HttpServer("127.0.0.1", 0, metrics, resources=resources)
    viewer.servers.callback(daemon.close)
    server.start()
    viewer.servers.callback(server.stop)
    server.commands.serve(daemon, daemon.loop, TOKEN)
    return server.address


def open_page(viewer: Viewer, address: str, route: str) -> Page:
    page = viewer.open_address(address)
    viewer.watches[-1].expected.append("401 (Unauthorized)")
    show(page, route)
    return page


def give_token(page: Page) -> None:
    page.get_by_role("textbox", name="Token").fill("wrong")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("alert").wait_for()
    page.get_by_role("textbox", name="Token").fill(TOKEN)
    page.get_by_role("button", name="Show").click()


def test_letters_unfold_to_what_their_records_hold(viewer: Viewer, address: str) -> None:
    page = open_page(viewer, address, "dead-letters")
    give_token(page)
    letters = page.locator(".letters > li")
    letters.first.wait_for()
    assert letters.count() == len(LETTERS)
    for at in range(len(LETTERS)):
        letters.nth(at).locator("summary").first.click()
    texts = letters.all_inner_texts()
    assert "n is 0" in texts[0]
    assert "tidegate dead-letters replay" in texts[0]
    assert "net" in texts[0]
    assert "__tidegate_time" not in texts[0], "a column of the engine"
    shown = HOSTILE.replace("\u202e", r"\u{202e}")
    assert texts[1].count(shown) >= 7
    for text in ("9007199254740993", "NULL", "empty text", '[{"b":"<b>"}]'):
        assert text in texts[1]
    assert "the first 2,000 bytes are shown" in texts[2]
    assert "0000  00 1b 5b 32 4a ff 78" in texts[2]
    assert "It has already been replayed." in texts[3]
    assert "\u202e" not in page.locator("body").inner_text()
    assert page.evaluate("window.hurt") is None
    assert find_violations(page) == []


def test_filters_choose_letters_and_what_a_replay_is_for(viewer: Viewer, address: str) -> None:
    page = open_page(viewer, address, "dead-letters")
    give_token(page)
    page.get_by_label("Kind").select_option("DIVIDE_BY_ZERO")
    assert page.locator(".letters > li").count() == 1
    page.get_by_text("1 shown, 1 not replayed").wait_for()
    page.get_by_text("Replay all that match the filters").click()
    assert page.locator(".replay code").last.inner_text().endswith(" --kind DIVIDE_BY_ZERO")
    page.get_by_label("Kind").select_option(HOSTILE)
    assert page.locator(".replay").count() == 0, "a shell would run what a record says"


def test_a_key_is_looked_up_after_the_token_was_given(viewer: Viewer, address: str) -> None:
    page = open_page(viewer, address, "state/totals")
    assert page.get_by_role("combobox", name="State").input_value() == "totals/totals"
    look_up = page.get_by_role("button", name="Look up")
    assert look_up.is_disabled()
    page.get_by_label("customer").fill("ann")
    page.get_by_label("customer").press("Enter")
    give_token(page)
    page.get_by_text("1 row.").wait_for()
    text = page.get_by_role("group", name="Rows of the key").inner_text()
    assert "9007199254740993" in text
    assert HOSTILE.replace("\u202e", r"\u{202e}") in text
    assert page.locator(".command code").inner_text().endswith("totals --state totals --key customer=ann")
    assert page.evaluate("window.hurt") is None
    assert find_violations(page) == []
