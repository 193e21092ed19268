"""Bids, auctions and persons of Nexmark's auction site: `python generate.py bids 20000`, a JSON line for each event.

Of 50 events 1 is a person, 3 are auctions and 46 bids, as in Nexmark's own generator. Half of the bids are for a few
hot auctions, three of four are by a few hot bidders. Times are out of order by less than 4 seconds, the `delay` of the
pipelines. The same count and seed give the same events. With `--records` lines have key, partition and Kafka timestamp,
for `tidegate preview --records`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

BEGIN = datetime(2025, 12, 31, 23, 58, 30, tzinfo=UTC)
"""90 seconds before midnight: days end within few events."""
APART = timedelta(milliseconds=10)
OUT_OF_ORDER = timedelta(seconds=4)
PARTITIONS = 4
HOT = 100
IN_FLIGHT = 100
CHANNELS = 10_000
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")


@dataclass(frozen=True)
class Event:
    """A record: `kind` is bids, auctions, persons or side-input, `arrived` its Kafka timestamp."""

    kind: str
    key: int
    arrived: datetime
    value: dict[str, Any]

    @property
    def partition(self) -> int:
        """Events with the same key are in one partition, in their order."""
        return self.key % PARTITIONS


def generate(count: int, seed: int = 1) -> Iterator[Event]:
    """So many events in the order of their arrival."""
    random = Random(seed)
    hot_urls = [_url(random) for _ in HOT_CHANNELS]
    for number in range(count):
        arrived = BEGIN + number * APART
        at = arrived - random.randrange(OUT_OF_ORDER // timedelta(milliseconds=1)) * timedelta(milliseconds=1)
        epoch, place = divmod(number, 50)
        if place == 0:
            yield _person(random, epoch, arrived, at)
        elif place <= 3:
            yield _auction(random, epoch * 3 + place - 1, epoch, arrived, at)
        else:
            yield _bid(random, epoch, arrived, at, hot_urls)


def generate_side_input(count: int) -> Iterator[Event]:
    """Yields the table of q13, a text for each number: there before the first event."""
    for number in range(count):
        yield Event("side-input", number, BEGIN, {"key": number, "value": f"value of {number}"})


def _person(random: Random, number: int, arrived: datetime, at: datetime) -> Event:
    person = {
        "id": 1000 + number,
        "name": f"{_text(random, 5)} {_text(random, 7)}",
        "emailAddress": f"{_text(random, 7)}@{_text(random, 5)}.com",
        "city": random.choice(CITIES),
        "state": random.choice(STATES),
        "dateTime": _stamp(at),
        "extra": _text(random, 20),
    }
    return Event("persons", 1000 + number, arrived, person)


def _auction(random: Random, number: int, persons: int, arrived: datetime, at: datetime) -> Event:
    initial = _price(random)
    auction = {
        "id": 1000 + number,
        "itemName": _text(random, 12),
        "initialBid": initial,
        "reserve": initial + _price(random),
        "dateTime": _stamp(at),
        "expires": _stamp(at + timedelta(milliseconds=random.randrange(1, 20_000))),
        "seller": _someone(random, persons, 0),
        "category": 10 + random.randrange(5),
        "extra": _text(random, 20),
    }
    return Event("auctions", 1000 + number, arrived, auction)


def _bid(random: Random, epoch: int, arrived: datetime, at: datetime, hot_urls: list[str]) -> Event:
    last = epoch * 3 + 2
    if random.randrange(2):
        auction = last // HOT * HOT
    else:
        auction = random.randrange(max(last - IN_FLIGHT, 0), last + 11)
    if random.randrange(2):
        hot = random.randrange(len(HOT_CHANNELS))
        channel, url = HOT_CHANNELS[hot], hot_urls[hot]
    else:
        number = random.randrange(CHANNELS)
        channel, url = f"channel-{number}", _url(random)
        if random.randrange(10):
            url += f"&channel_id={number * 214_748 % 2**31}"
    bid = {
        "auction": 1000 + auction,
        "bidder": _someone(random, epoch, 1),
        "price": _price(random),
        "channel": channel,
        "url": url,
        "dateTime": _stamp(at),
        "extra": _text(random, 20),
    }
    return Event("bids", 1000 + auction, arrived, bid)


def _someone(random: Random, persons: int, hot: int) -> int:
    if random.randrange(4):
        return 1000 + persons // HOT * HOT + hot
    return 1000 + random.randrange(max(persons - 1000, 0), persons + 11)


def _price(random: Random) -> int:
    return round(10 ** (random.random() * 6) * 100)


def _url(random: Random) -> str:
    folders = "/".join(_text(random, 5) for _ in range(3))
    return f"https://www.nexmark.com/{folders}/item.htm?query=1"


def _text(random: Random, size: int) -> str:
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz_", k=size))


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def main() -> None:
    """Print events of one kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["bids", "auctions", "persons", "side-input"])
    parser.add_argument("events", type=int, help="of all kinds, 46 of 50 are bids; rows of side-input")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--records", action="store_true", help="whole records in place of values")
    given = parser.parse_args()
    side_input = given.kind == "side-input"
    for event in generate_side_input(given.events) if side_input else generate(given.events, given.seed):
        if event.kind == given.kind:
            record = {"key": str(event.key), "partition": event.partition, "timestamp": _stamp(event.arrived)}
            line = {**record, "value": event.value} if given.records else event.value
            sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
