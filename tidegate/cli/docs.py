"""`tidegate docs [PAGE]`: the documentation of this version, included in every installation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import click

from tidegate.config.fields.suggest import derive_suggestion
from tidegate.errors import TidegateError

SUFFIX: Final = ".md"
DECISIONS: Final = "adr/"
INDEX: Final = "README"
_TITLE: Final = re.compile(r"^# (.+)$", re.MULTILINE)
_ADR: Final = re.compile(r"^(?:adr[/ ]?)?0*(\d{1,4})$", re.IGNORECASE)


class PageMissing(TidegateError):
    """No page of that name is part of this version."""

    code = "page-missing"
    exit_code = 2
    retriable = False


@click.command()
@click.argument("page", required=False)
def docs(page: str | None) -> None:
    """Print PAGE of the documentation as Markdown; without PAGE, list all pages.

    `tidegate docs README` lists the pages by task, `tidegate docs adr` lists the architecture decisions, and
    `tidegate docs 24` prints ADR 24.
    """
    pages = find_pages(find_shipped("pages", "docs"))
    if page is None:
        _print_list(pages)
        return
    click.echo_via_pager(pages[choose_page(page, list(pages))].read_text(encoding="utf-8"))


def find_shipped(installed: str, source: str) -> Traversable:
    """Return a folder of the wheel, or where it comes from in the working tree of an editable installation."""
    package = files("tidegate")
    folder = package / installed
    return folder if folder.is_dir() else Path(str(package)).parent / source


def find_pages(folder: Traversable) -> dict[str, Traversable]:
    """Find all pages, by their paths without suffix, decisions last."""
    if not folder.is_dir():
        raise PageMissing("this installation has no documentation: install the wheel of this version again")
    return dict(sorted(_walk(folder, ""), key=lambda found: (found[0].startswith(DECISIONS), found[0])))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _walk(one, f"{prefix}{one.name}/")
        elif one.name.endswith(SUFFIX):
            yield prefix + one.name.removesuffix(SUFFIX), one


def choose_page(asked: str, names: list[str]) -> str:
    """Resolve a page by its name, path, folder or ADR number. Raises PageMissing."""
    name = asked.removeprefix("docs/").removesuffix(SUFFIX)
    for one in (name, f"{name}/{INDEX}"):
        if one in names:
            return one
    number = _ADR.match(name)
    if number is not None:
        beginning = f"{DECISIONS}{int(number[1]):04d}-"
        for one in names:
            if one.startswith(beginning):
                return one
    raise PageMissing(f"there is no page {asked}; {_suggest(name, names)}", page=asked)


def _suggest(name: str, names: list[str]) -> str:
    inside = [one for one in names if one.startswith(f"{name.rstrip('/')}/")]
    if inside:
        return "use one of " + ", ".join(f"`{one}`" for one in inside)
    for one in names:
        if one.endswith(f"/{name}"):
            return f"did you mean `{one}`?"
    return derive_suggestion(name, names, otherwise="`tidegate docs` lists all pages")


def _print_list(pages: dict[str, Traversable]) -> None:
    guides = {name: page for name, page in pages.items() if not name.startswith(DECISIONS)}
    width = max(map(len, guides))
    for name, page in guides.items():
        title = _TITLE.search(page.read_text(encoding="utf-8"))
        click.echo(f"{name:<{width}}  {'' if title is None else title[1]}")
    click.echo("\n`tidegate docs adr` lists the architecture decisions, `tidegate docs 24` prints ADR 24")
