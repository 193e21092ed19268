"""Dead letters are corrected and replayed at the step that failed: nothing else sees their records a second time."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.users.user import User
from tests.waiting import wait_until
from tidegate.cli import replay
from tidegate.cli.main import run_command
from tidegate.config.load import read_pipeline
from tidegate.sources.dead_letter_topic import DeadLetterTopic, find_place

pytestmark = [pytest.mark.slow, pytest.mark.deep]

SEED = 3
ORDERS = 600


def orders_of(chance: random.Random) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "parts": chance.choice((0, 1, 5)),
            "items": [chance.choice(("3", "x")) for _ in range(chance.randint(0, 3))],
        }
        for number in range(ORDERS)
    ]


def write_pipeline(user: User) -> str:
    """Totals by key, a step and a sink behind an `explode`, and a copy: the case in which a replay doubled results."""
    orders = user.topic("in", 2)
    for name in ("copy", "totals", "shares", "prices", "dead", "retry"):
        user.topic(name, 2)
    user.document["sources"]["orders"] = {
        "topic": orders,
        "schema": {"id": "int", "parts": "int", "items": "array<string>"},
        "bad_records": "dead-letter",
    }
    user.document["steps"] = [
        {"name": "total", "from": "orders", "key": "id", "aggregate": {"seen": "count(*)"}},
        {"name": "share", "from": "orders", "select": {"id": "id", "share": "100 div parts"}},
        {"name": "each_item", "from": "orders", "explode": {"items": "item"}},
        {"name": "price", "from": "each_item", "select": {"id": "id", "price": "cast(item as int)"}},
    ]
    read = {"copy": "orders", "totals": "total", "shares": "share", "prices": "price"}
    user.document["sinks"] = {
        sink: {"from": step, "topic": f"{user.name}-{sink}", "key": "id"} for sink, step in read.items()
    }
    user.document["dead_letters"] = {
        "topic": f"{user.name}-dead",
        "retry_topic": f"{user.name}-retry",
        "max_per_minute": "unlimited",
    }
    return orders


def correct(user: User) -> None:
    steps = user.document["steps"]
    steps[1]["select"]["share"] = "100 div greatest(parts, 1)"
    steps[3]["select"]["price"] = "coalesce(try_cast(item as int), -1)"
    user.document["parallelism"] = 2
    user.document["spark"]["master"] = "local[2]"


def letters_of(user: User) -> int:
    with DeadLetterTopic(find_place(read_pipeline(user.write(), {}).settings)) as topic:
        return sum(1 for _ in topic.letters(topic.bounds()))


def test_a_replay_continues_at_the_step_through_kills_of_replay_slot_and_daemon(
    user: User, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    given = orders_of(chance)
    topic = write_pipeline(user)
    bad = sum(not one["parts"] for one in given) + sum(item == "x" for one in given for item in one["items"])
    first = user.start().wait_running()
    user.produce(topic, [json.dumps(one).encode() for one in given[: ORDERS // 2]])
    wait_until(lambda: bool(user.rows(f"{user.name}-copy")), "the first orders are out")
    (slot,) = first.slots()
    os.kill(slot, signal.SIGKILL)
    user.produce(topic, [json.dumps(one).encode() for one in given[ORDERS // 2 :]])
    wait_until(lambda: letters_of(user) == bad, "all letters are written")
    assert first.terminate() == 0

    arguments = ["dead-letters", "replay", str(user.write())]
    kill_replay(arguments, monkeypatch)
    correct(user)
    second = user.start().wait_running()
    arguments[-1] = str(user.write())
    assert run_command(arguments) == 0
    assert run_command(arguments) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-2:] == ["0 records were written again", f"{bad} letters had been replayed before"]
    os.kill(second.slots()[0], signal.SIGKILL)
    wait_until(lambda: len(user.rows(f"{user.name}-shares")) > ORDERS // 2, "the first rows have continued")
    second.kill()
    third = user.start().wait_running()
    wait_until(lambda: len(user.rows(f"{user.name}-shares")) >= ORDERS, "all rows have continued")
    items = Counter((one["id"], -1 if item == "x" else int(item)) for one in given for item in one["items"])
    wait_until(lambda: len(user.rows(f"{user.name}-prices")) >= items.total(), "all items have continued")
    user.produce(topic, [json.dumps({"id": ORDERS, "parts": 1, "items": ["x"]}).encode()])
    wait_until(lambda: len(user.rows(f"{user.name}-copy")) > ORDERS, "the next order is out")
    assert third.terminate() == 0

    ids = Counter(range(ORDERS + 1))
    assert Counter(row["id"] for row in user.rows(f"{user.name}-copy")) == ids
    assert Counter((row["id"], row["seen"]) for row in user.rows(f"{user.name}-totals")) == Counter(
        (number, 1) for number in ids
    )
    assert Counter(row["id"] for row in user.rows(f"{user.name}-shares")) == ids
    items[ORDERS, -1] += 1
    assert Counter((row["id"], row["price"]) for row in user.rows(f"{user.name}-prices")) == items
    assert letters_of(user) == bad, "nothing has failed again"


def kill_replay(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With its transaction open, after two others."""
    monkeypatch.setattr(replay, "DEAD_LETTERS_MAX", 50)
    left = iter(range(2))
    commit = replay._Writer._commit

    def commit_or_die(self: Any, left: Iterator[int] = left, commit: Any = commit) -> None:
        next(left)  # StopIteration ends the command as a kill would: without a word to the broker
        commit(self)

    with monkeypatch.context() as dying:
        dying.setattr(replay._Writer, "_commit", commit_or_die)
        with pytest.raises(StopIteration):
            run_command(arguments)
