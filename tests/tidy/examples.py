"""Completes the examples of pages: a fragment of a pipeline file gets its missing parts, so that it can be checked.

Sources and steps that a fragment reads are taken from earlier examples of the page, otherwise a source with many
columns is added. Outputs that are not read get a sink.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import yaml

from tests.tidy.pages import find_fences

Fragment = dict[str, Any]

BASE: Final[Fragment] = {
    "version": 1,
    "name": "page",
    "kafka": {"bootstrap.servers": "b:9092"},
    "checkpoints": {"directory": "/nowhere/checkpoints"},
    "registry": {"url": "http://registry:8081"},
    "dead_letters": {"topic": "dead"},
}
COLUMNS: Final = dict.fromkeys(("customer", "sku", "currency", "ip", "user"), "string") | {
    **dict.fromkeys(("amount", "net", "total"), "double"),
    **dict.fromkeys(("at", "window_start"), "timestamp"),
    "id": "bigint",
}
CHART: Final = ("image", "secrets", "metrics", "ingress")
"""Keys that identify values of the chart."""


class _Loader(yaml.SafeLoader):
    """Loads YAML as Tidegate does: YAML 1.2 has no dates, and `on` is a text."""


_loads = {first: dict(found) for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()}
_loads |= {first: {tag: one for tag, one in _loads[first].items() if not tag.endswith(":bool")} for first in "yYnNoO"}
_Loader.yaml_implicit_resolvers = {
    first: [one for one in found.items() if one[0] != "tag:yaml.org,2002:timestamp"] for first, found in _loads.items()
}


class Example(NamedTuple):
    """A fragment and its first line. For a pipeline file, `pipeline` is the whole file; otherwise `values` are values
    of the chart.
    """

    line: int
    pipeline: Fragment | None
    values: Fragment


def find_examples(page: str) -> Iterator[Example]:
    """Yields all YAML of a page in order."""
    seen: Fragment = {"sources": {}, "steps": {}}
    for fence in find_fences(page):
        if fence.language != "yaml":
            continue
        read = yaml.load(_without_files(textwrap.dedent(fence.text)), _Loader)
        if read is None:
            continue
        fragment: Fragment = {"steps": read} if isinstance(read, list) else read
        if any("." in key for key in fragment):
            fragment = {"kafka": {"security.protocol": "sasl_ssl"} | fragment}
        if any(key in fragment for key in CHART):
            yield Example(fence.line, None, fragment)
            continue
        seen["sources"] |= fragment.get("sources", {})
        seen["steps"] |= {step["name"]: step for step in fragment.get("steps", ())}
        yield Example(fence.line, _make_whole(fragment, seen), fragment)


def find_modules(page: str) -> Iterator[tuple[str, str]]:
    """Yields the Python files of a page, whose first line contains their name."""
    for fence in find_fences(page):
        named = re.match(r"# (\S+\.py)\b", fence.text)
        if fence.language == "python" and named:
            yield named[1], fence.text


def _without_files(text: str) -> str:
    """Replaces secrets, which would be read from files that do not exist."""
    return re.sub(r"\$\{(?:file:)?[^}]*\}", "secret", text)


def _names(reads: str | list[str]) -> list[str]:
    return [name.partition(".")[0] for name in ([reads] if isinstance(reads, str) else reads)]


def _inputs(reader: Fragment) -> list[str]:
    """Returns the sources and steps that a step or sink reads."""
    joined = reader.get("join", {}).values()
    return [*_names(reader.get("from", [])), *_names(reader.get("lookup", [])), *joined]


def _make_whole(fragment: Fragment, seen: Fragment) -> Fragment:
    steps, sources = list(fragment.get("steps", ())), dict(fragment.get("sources", {}))
    sinks = dict(fragment.get("sinks", {}))
    wanted = [*steps, *sinks.values()] or [{"from": "orders"}]
    while wanted:
        for name in _inputs(wanted.pop()):
            if name in sources or name in {step["name"] for step in steps}:
                continue
            if name in seen["steps"]:
                steps.append(seen["steps"][name])
                wanted.append(steps[-1])
            else:
                sources[name] = seen["sources"].get(name, {"topic": name, "schema": COLUMNS})
    read = set(_all_names([*steps, *sinks.values()]))
    for name in [*(step["name"] for step in steps), *sources]:
        if name not in read:
            sinks[f"to_{name}"] = {"from": name, "topic": f"out-{name}"}
    for case in fragment.get("tests", ()):
        asked = {name: {"from": next(iter(sources)), "topic": name, "key": "customer"} for name in case["expect"]}
        sinks = asked | sinks
    whole = {**BASE, **fragment, "sources": sources, "sinks": sinks}
    whole["kafka"] = BASE["kafka"] | whole["kafka"]
    return whole | ({"steps": steps} if steps else {})


def _all_names(readers: Iterable[Fragment]) -> Iterator[str]:
    for reader in readers:
        yield from _inputs(reader)
