"""The pages that people read, as input of the rules: headings, links, examples and commands."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from tests.tidy.tree import ROOT, text_files

PAGES: Final = tuple(file for file in text_files() if file.suffix == ".md")
USED: Final = (
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "adr"),
)
"""Pages for users, without the decisions."""

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_COMMAND: Final = re.compile(r"(?:^(?: {4,}|\$ |)|(?<=`)|(?<=&& )|(?<=bin/))tidegate ([a-z][^`\n#|>]*)", re.MULTILINE)

_TARGET: Final = re.compile(r"(?:^ {4,}|`)(?:[A-Z_]+=\S+ )*make ([a-z][a-z-]*)", re.MULTILINE)
_MODULE: Final = re.compile(r"python -m ((?:tidegate|tests|tools|bench)[\w.]*\w)")


class Fence(NamedTuple):
    """A block between fences: its first line in the page, its language and its text."""

    line: int
    language: str
    text: str


def find_fences(page: str) -> Iterator[Fence]:
    """Yields the fences of a page in order."""
    for found in _FENCE.finditer(page):
        yield Fence(page[: found.start()].count("\n") + 2, found[1], found[2])


def find_anchors(page: str) -> set[str]:
    """Returns the anchors that `#...` may name, as GitHub derives them from the headings."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", _without_fences(page), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(1 for one in anchors if one == anchor or re.fullmatch(rf"{re.escape(anchor)}-\d+", one))
        anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def find_dead_links(page: str, folder: Path) -> list[str]:
    """Returns links to files that do not exist or to headings that are missing in them."""
    dead = []
    for number, line in enumerate(_without_fences(page).splitlines(), 1):
        for target in _LINK.findall(line):
            name, _, anchor = target.partition("#")
            file = folder / name
            if "://" in target:
                continue
            if name and not file.exists():
                dead.append(f"line {number}: there is no {name}")
            elif anchor and anchor not in find_anchors(file.read_text(encoding="utf-8") if name else page):
                dead.append(f"line {number}: there is no heading {target}")
    return dead


def find_wrong_commands(page: str, group: click.Group) -> list[str]:
    """Returns commands that do not exist or lack an option used with them."""
    wrong = []
    for found in _COMMAND.finditer(page):
        problem = _check_command(group, found[1].replace(",", " ").split())
        if problem:
            wrong.append(f"line {page[: found.start()].count(chr(10)) + 1}: {problem}")
    return wrong


def find_missing_programs(page: str, targets: Collection[str]) -> list[str]:
    """Returns targets of make other than `targets`, and modules to run with `python -m` that do not exist."""
    missing = []
    for number, line in enumerate(page.splitlines(), 1):
        missing += [f"line {number}: make has no {one}" for one in _TARGET.findall(line) if one not in targets]
        for name in _MODULE.findall(line):
            module = ROOT / name.replace(".", "/")
            if not module.with_suffix(".py").exists() and not (module / "__main__.py").exists():
                missing.append(f"line {number}: there is no module {name} to run")
    return missing


def _check_command(group: click.Group, words: Sequence[str]) -> str:
    command: click.Command = group
    used = 0
    for word in words:
        if not isinstance(command, click.Group):
            break
        inner = command.get_command(click.Context(command), word)
        if inner is None and command is group:
            return f"there is no command {word}"
        used += inner is not None
        command = inner or command.get_command(click.Context(command), "take") or command
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    given = {word.partition("=")[0].rstrip("`.);:]") for word in words[used:] if word.startswith("--")}
    unknown = sorted(given - options - {"--help"})
    return f"`tidegate {' '.join(words[:used])}` has no {', '.join(unknown)}" if unknown else ""


def _without_fences(page: str) -> str:
    """Removes the fences but keeps the number of lines."""
    return _FENCE.sub(lambda found: "\n" * found[0].count("\n"), page)
