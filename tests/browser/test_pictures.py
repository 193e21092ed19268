"""Pictures of the pages for docs/page.md, made again by `TIDEGATE_PICTURES=1 make browser ARGS="-k pictures"`.

Without the variable they are only checked: each is there, small, and shown by a page of the documentation.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from tests.browser.conftest import Viewer

pytestmark = [pytest.mark.browser, pytest.mark.slow]

IMAGES = Path(__file__).parents[2] / "docs" / "images"
BYTES_MAX = 100_000
COLOURS = 255


class Picture(NamedTuple):
    """What is shown, and how large the window is."""

    situation: str
    route: str
    width: int = 1280
    height: int = 800
    scheme: Literal["light", "dark"] = "light"


PICTURES = {
    "healthy": Picture("healthy", "overview"),
    "restart": Picture("restarting", "events"),
    "graph": Picture("healthy", "graph", width=1600, height=480),
    "checkpoint": Picture("failed-checkpoint", "checkpoints/97", height=900),
    "stalled-watermark": Picture("stalled-watermark", "event-time"),
    "dead-letters": Picture("dead-letters", "dead-letters"),
    "hundred-subtasks": Picture("hundred-subtasks", "checkpoints", height=900, scheme="dark"),
    "narrow": Picture("stalled-watermark", "overview", width=320, height=720, scheme="dark"),
}


def write_small(png: bytes, file: Path) -> None:
    """Writes a picture with a palette of its own, which is a third of the size."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_the_documentation_are_small(viewer: Viewer, name: str) -> None:
    file = IMAGES / f"page-{name}.png"
    if os.environ.get("TIDEGATE_PICTURES"):
        picture = PICTURES[name]
        page = viewer.open(
            picture.situation, picture.route, width=picture.width, height=picture.height, scheme=picture.scheme
        )
        IMAGES.mkdir(exist_ok=True)
        write_small(page.screenshot(), file)
    assert 0 < file.stat().st_size <= BYTES_MAX
