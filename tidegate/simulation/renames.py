"""A user who renames every step at each start of the pipeline, and declares it with `was`."""

from __future__ import annotations

from typing import Any, Final

OTHER: Final = "-2"


def rename_steps(document: dict[str, Any], turn: int) -> dict[str, Any]:
    """Returns the file with the original step names in even turns, and with other names in odd ones."""
    names = {step["name"]: f"{step['name']}{OTHER}" for step in document["steps"]}
    now = names if turn % 2 else {name: name for name in names}
    was = {other: name for name, other in names.items()} if turn % 2 else names

    def of_now(upstream: str | list[str]) -> str | list[str]:
        if isinstance(upstream, list):
            return [str(of_now(one)) for one in upstream]
        step, dot, output = upstream.partition(".")
        return f"{now.get(step, step)}{dot}{output}"

    steps = [
        {**step, "name": now[step["name"]], "was": was[now[step["name"]]], "from": of_now(step["from"])}
        for step in document["steps"]
    ]
    sinks = {
        name: {**sink, "from": of_now(sink["from"])} if "from" in sink else sink
        for name, sink in document["sinks"].items()
    }
    return {**document, "steps": steps, "sinks": sinks}
