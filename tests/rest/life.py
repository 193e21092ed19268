"""The life of a daemon, driven by the client that was generated from its description. Knows nothing of Tidegate.

`life.py ADDRESS TOKEN PIPELINE` prints what it saw as JSON; `life.py ADDRESS TOKEN PIPELINE stop` ends the daemon.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tidegate_client import AuthenticatedClient, Client
from tidegate_client.api.commands import stop, take_checkpoint, take_savepoint
from tidegate_client.api.reading import (
    get_checkpoints,
    get_config,
    get_dead_letters,
    get_events,
    get_failures,
    get_history,
    get_partitions,
    get_plan,
    get_state,
    get_status,
    get_tap,
)
from tidegate_client.models import ControlRequest, Refusal

PATIENCE_S = 60.0


def main(address: str, token: str, pipeline: str, *words: str) -> None:
    """Prints JSON."""
    client = AuthenticatedClient(base_url=address, token=token, raise_on_unexpected_status=True, timeout=60)
    order = ControlRequest(pipeline=pipeline)
    if words == ("stop",):
        print(json.dumps(stop.sync(client=client, body=order).to_dict()))
        return
    with client:
        found = drive(client, order) | be_refused(Client(base_url=address), client, order)
    print(json.dumps(found))


def drive(client: Any, order: Any) -> dict[str, Any]:
    """Reads everything, and takes a checkpoint and a savepoint."""
    checkpoint = take(take_checkpoint, client, order)
    savepoint = take(take_savepoint, client, order)
    checkpoints = {one.id: one for one in get_checkpoints.sync(client=client)}
    (one,) = get_checkpoints.sync(client=client, id=checkpoint.checkpoint)
    history = get_history.sync(client=client, step=["totals"])
    state = answered(get_state.sync(client=client))
    tapped = answered(get_tap.sync(client=client, step="orders", rows=2))
    return {
        "state": get_status.sync(client=client).state,
        "steps": sorted(one.name for one in get_plan.sync(client=client).steps),
        "settings": len(get_config.sync(client=client).settings),
        "checkpoint": checkpoints[checkpoint.checkpoint].result,
        "subtasks": len(one.subtasks),
        "savepoint": savepoint.path,
        "events": [one.kind for one in get_events.sync(client=client).events],
        "failures": len(get_failures.sync(client=client)),
        "points": len(history.at_ms),
        "step_points": len(history.steps["totals"].busy_ratio),
        "partitions": len(get_partitions.sync(client=client).partitions),
        "states": [one.step for one in state.states],
        "tapped": [sorted(row.to_dict()) for row in tapped.rows],
    }


def take(command: Any, client: Any, order: Any) -> Any:
    """Asks for a checkpoint as often as the answer is to try again, because another one is under way."""
    ends = time.monotonic() + PATIENCE_S
    answer = command.sync(client=client, body=order)
    while isinstance(answer, Refusal) and answer.code == "checkpoint-unavailable" and time.monotonic() < ends:
        answer = command.sync(client=client, body=order)
    return answered(answer)


def answered(answer: Any) -> Any:
    """Returns an answer that is no refusal, and ends the program with the message of one that is."""
    if isinstance(answer, Refusal):
        sys.exit(f"refused: {answer.code}: {answer.message}")
    return answer


def be_refused(stranger: Any, client: Any, order: Any) -> dict[str, Any]:
    """Tries what is refused."""
    answers = {
        "without_token": take_checkpoint.sync(client=stranger, body=order),
        "other_pipeline": take_checkpoint.sync(client=client, body=ControlRequest(pipeline="another")),
        "no_such_step": get_tap.sync(client=client, step="nobody"),
        "no_dead_letters": get_dead_letters.sync(client=client),
    }
    assert all(isinstance(one, Refusal) for one in answers.values()), answers
    return {name: one.code for name, one in answers.items()}


if __name__ == "__main__":
    main(*sys.argv[1:])
