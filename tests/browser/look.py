"""`python -m tests.browser.look URL FILE.png`: a picture of a page, as wide as asked, light or dark."""

from __future__ import annotations

import argparse

from tests.browser.chromium import open_browser


def main() -> None:
    """Takes one picture and prints what the console had to say."""
    parser = argparse.ArgumentParser(prog="python -m tests.browser.look", description=__doc__)
    parser.add_argument("url", help="such as http://127.0.0.1:8791/#/checkpoints")
    parser.add_argument("file")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--click", action="append", default=[], help="a selector of Playwright; may be repeated")
    given = parser.parse_args()
    with open_browser() as browser:
        page = browser.new_page(
            viewport={"width": given.width, "height": given.height}, color_scheme="dark" if given.dark else "light"
        )
        page.on("console", lambda message: print(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: print(f"error: {error}"))
        page.goto(given.url)
        page.wait_for_timeout(2_000)
        for selector in given.click:
            page.click(selector)
        page.wait_for_timeout(500)
        page.screenshot(path=given.file, full_page=True)


if __name__ == "__main__":
    main()
