"""The web page's files: who may load them, with which headers, and what they may contain."""

from __future__ import annotations

import hashlib
import http.client
import re
from itertools import product

import pytest

from tests.waiting import PATIENCE_S
from tidegate.daemon.http.server import CONTENT_TYPES, FILES, FOLDER, INDEX, PREFIX, SECURITY_HEADERS, HttpServer

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
VENDORED = {
    "vendor/preact.js": "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
    "vendor/htm-LICENSE.txt": "740725f7252e750af735d0028cc534970772f513331e9f68150fede8fb3ce00f",
    "vendor/preact-LICENSE.txt": "1fe6958409c8c257a70c587a18b6f7f412b179b456630790d30b2ec9a8e4b7d4",
}
"""SHA-256 of the files that others have written: `preact/standalone.module.js` of npm's htm 3.1.1, and licences."""

OWN = sorted(name for name in FILES if name not in VENDORED)


def get(server: HttpServer, path: str, headers: dict[str, str] | None = None) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=PATIENCE_S)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        return response, response.read().decode()
    finally:
        connection.close()


def text_of(name: str) -> str:
    return FILES[name].body.decode()


# -- serving -----------------------------------------------------------------------------------------------------------


def test_the_root_is_the_page_for_a_browser_and_the_paths_as_json_for_others(server: HttpServer) -> None:
    response, text = get(server, "/", HTML)
    assert (response.headers["Content-Type"], text) == ("text/html; charset=utf-8", text_of(INDEX))
    assert response.headers["Vary"] == "Accept"
    for accept in ("*/*", "application/json", ""):
        response, text = get(server, "/", {"Accept": accept})
        assert response.headers["Content-Type"].startswith("application/json")
        assert '"/metrics"' in text


def test_every_file_is_served_with_its_type_and_as_it_is(server: HttpServer) -> None:
    for name, file in FILES.items():
        response, text = get(server, PREFIX + name)
        assert (response.status, text.encode()) == (200, file.body), name
        assert response.headers["Content-Type"] == f"{file.content_type}; charset=utf-8"


def test_a_file_that_the_browser_has_is_not_sent_again(server: HttpServer) -> None:
    response, _ = get(server, f"{PREFIX}lib.js")
    assert response.headers["Cache-Control"] == "no-cache"
    etag = response.headers["ETag"]
    response, text = get(server, f"{PREFIX}lib.js", {"If-None-Match": f'"other", {etag}'})
    assert (response.status, text, response.headers["ETag"]) == (304, "", etag)
    assert get(server, f"{PREFIX}lib.js", {"If-None-Match": '"other"'})[0].status == 200


def test_nothing_but_its_files_is_below_static(server: HttpServer) -> None:
    for path in ("", "nothing.js", "../page.py", "%2e%2e/page.py", "..%2fpage.py", "//etc/passwd", "vendor", "pages/"):
        assert get(server, PREFIX + path)[0].status == 404, path


def test_the_files_need_no_token_and_the_figures_do(server: HttpServer) -> None:
    server.read_token = "reading-is-all-that-this-is-for"
    assert get(server, "/", HTML)[0].status == 200
    assert get(server, f"{PREFIX}app.js")[0].status == 200
    assert get(server, "/")[0].status == 401
    assert get(server, "/status", HTML)[0].status == 401


def test_every_response_forbids_other_sites(server: HttpServer) -> None:
    server.read_token = "reading-is-all-that-this-is-for"
    for path in ("/", "/livez", "/status", "/nowhere", f"{PREFIX}app.js", f"{PREFIX}nowhere"):
        response, _ = get(server, path, HTML)
        assert SECURITY_HEADERS.items() <= dict(response.headers).items(), path


# -- the files ---------------------------------------------------------------------------------------------------------


def test_vendored_files_are_those_that_were_published() -> None:
    found = {name: hashlib.sha256(FILES[name].body).hexdigest() for name in FILES if name.startswith("vendor/")}
    assert found == VENDORED


def test_the_page_loads_only_files_that_exist_by_relative_addresses() -> None:
    addresses = re.findall(r'(?:href|src)="([^"]*)"', text_of(INDEX))
    assert {one for one in addresses if one.startswith("static/")} == set(addresses) - {"api/v1/status"}
    assert {one.removeprefix("static/") for one in addresses if one.startswith("static/")} <= FILES.keys()
    for name in (name for name in OWN if name.endswith(".js")):
        folder = FOLDER / name
        for imported in re.findall(r'^(?:import|export)\b.*?from "([^"]*)";', text_of(name), re.MULTILINE | re.DOTALL):
            assert imported.startswith("."), f"{name} imports {imported}: not by a relative path"
            target = (folder.parent / imported).resolve().relative_to(FOLDER).as_posix()
            assert target in FILES, f"{name} imports {imported}"


def test_every_page_is_linked_with_its_style() -> None:
    pages = {name for name in OWN if name.startswith("pages/") and name.endswith(".css")}
    assert set(re.findall(r'href="static/(pages/[^"]*)"', text_of(INDEX))) == pages


@pytest.mark.parametrize("name", OWN)
def test_no_file_needs_what_the_policy_forbids(name: str) -> None:
    text = text_of(name)
    inline = r"<script(?![^>]*\bsrc=)|<style|\son\w+=\"|\sstyle=\"|javascript:|\beval\(|new Function|innerHTML|@import"
    assert re.findall(inline, text) == []
    assert set(re.findall(r"https?://[^\s\"'<>`]*", text)) <= {"http://www.w3.org/2000/svg"}


def test_files_have_known_types() -> None:
    assert {f".{name.rpartition('.')[2]}" for name in FILES} <= CONTENT_TYPES.keys()


# -- colours -----------------------------------------------------------------------------------------------------------

CONTRAST_OF_TEXT = 4.5
CONTRAST_OF_PARTS = 3.0
INKS = ("text", "muted", "accent", "good", "warn", "bad", "idle")
STATES = ("accent", "good", "warn", "bad", "idle")
GROUNDS = ("background", "surface", "raised")
Colour = tuple[float, float, float]


def colours(theme: str) -> dict[str, Colour]:
    """Returns the custom properties of a theme that are colours; the dark one overrides the light one."""
    found: dict[str, Colour] = {}
    blocks = re.findall(r":root \{(.*?)\}", text_of("style.css"), re.DOTALL)
    for block in blocks[: 1 if theme == "light" else 2]:
        for name, digits in re.findall(r"--([\w-]+): #([0-9a-f]{6});", block):
            found[name] = (int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16))
    return found


def tinted(colour: Colour, ground: Colour) -> Colour:
    """Returns the ground with the share `--tint` of a colour, as `color-mix(in srgb, ...)` does."""
    found = re.search(r"--tint: (\d+)%", text_of("style.css"))
    assert found is not None
    share = int(found[1]) / 100
    first, second, third = (share * one + (1 - share) * other for one, other in zip(colour, ground, strict=True))
    return first, second, third


def contrast(one: Colour, other: Colour) -> float:
    """Returns the contrast ratio as WCAG 2 defines it."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: Colour) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast_is_computed_as_wcag_defines_it() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_has_the_contrast_that_wcag_aa_requires(theme: str) -> None:
    found = colours(theme)
    pairs = {f"{ink} on {ground}": (found[ink], found[ground]) for ink, ground in product(INKS, GROUNDS)}
    pairs |= {f"{state} on its tint": (found[state], tinted(found[state], found["surface"])) for state in STATES}
    pairs |= {f"{ink} on bad's tint": (found[ink], tinted(found["bad"], found["surface"])) for ink in ("text", "muted")}
    pairs["on-accent on accent"] = found["on-accent"], found["accent"]
    pairs["surface on bad"] = found["surface"], found["bad"]
    assert {name: contrast(*pair) for name, pair in pairs.items() if contrast(*pair) < CONTRAST_OF_TEXT} == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_stand_out_from_their_ground(theme: str) -> None:
    found = colours(theme)
    low = {state: contrast(found[state], found["raised"]) for state in STATES}
    assert {state: ratio for state, ratio in low.items() if ratio < CONTRAST_OF_PARTS} == {}
