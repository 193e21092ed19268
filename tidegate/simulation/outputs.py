"""The output topics as read-committed readers see them, split where an older state is restored."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from typing import Any, Final

import msgspec

from tidegate.formats.dead_letters.letter import read_dead_letter
from tidegate.ids import TopicPartition
from tidegate.simulation.clusters import Clusters
from tidegate.simulation.model_broker.codes import RequestRefused
from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.oracle import OracleHistory, id_of
from tidegate.simulation.shapes.shape import DEAD_TOPIC, LATE_TOPIC, ContentShape, OnTimeShape, Shape, read_content

FETCH_MAX: Final = 1_000_000


class Outputs:
    """Readers of all partitions of a shape's topics."""

    def __init__(
        self,
        clusters: Clusters,
        shape: Shape,
        partitions: int,
        on_row: Callable[[str, Any], None] | None = None,
    ) -> None:
        self._clusters = clusters
        self._shape = shape
        self._on_row = on_row
        topics = shape.topics
        self.places = [TopicPartition(topic, number) for topic in topics for number in range(partitions)]
        self.ids: dict[str, set[Hashable]] = {topic: set() for topic in topics}
        """Topic -> records or windows that have come out since the last restore of an older state."""
        self.ever: dict[str, set[Hashable]] = {topic: set() for topic in topics}
        """Topic -> records or windows that have come out at any time."""
        self._next = dict.fromkeys(self.places, 0)
        self._rows: dict[TopicPartition, list[tuple[int, Any]]] = {place: [] for place in self.places}
        self._times: tuple[Counter[Hashable], Counter[Hashable]] = (Counter(), Counter())
        """How often a name has come out in the current history, and at any time, if records are repeated."""
        self._cuts: list[tuple[frozenset[int], dict[TopicPartition, int]]] = [(frozenset(), {})]
        """Per history: the records processed before it, and its first offsets."""

    @property
    def done(self) -> frozenset[int]:
        """Records processed before the restored state of the current history."""
        return self._cuts[-1][0]

    def read(self, now_ms: int) -> bool:
        """Reads on. Returns False while a partition has no leader."""
        whole = True
        for place in self.places:
            broker, there = self._clusters.at(place)
            try:
                found = broker.fetch(now_ms, there, self._next[place], committed=True, limit=FETCH_MAX)
            except RequestRefused:
                whole = False
                continue
            self._next[place] = found.next_offset
            ids, begins = self.ids[place.topic], self._cuts[-1][1].get(place, 0)
            for offset, record in found.records:
                row, name = self._read(place, offset, record)
                self._rows[place].append((offset, row))
                now, ever = self._times
                if offset >= begins:
                    ids.add(self._number(place.topic, name, now))
                self.ever[place.topic].add(self._number(place.topic, name, ever))
                if self._on_row is not None:
                    self._on_row(place.topic, row)
        return whole

    def _read(self, place: TopicPartition, offset: int, record: Record) -> tuple[Any, Hashable]:
        """Decodes a record. Returns its row or contents, and its name."""
        if isinstance(self._shape, ContentShape) and place.topic != DEAD_TOPIC:
            content = read_content(record)
            return content, self._shape.name_of(place.topic, content)
        row = self._row_of(place, offset, record)
        return row, id_of(place.topic, row)

    def _row_of(self, place: TopicPartition, offset: int, record: Record) -> dict[str, Any]:
        """Decodes a record. For a dead letter: the id of its record, where it came from, and its bytes."""
        if place.topic != DEAD_TOPIC:
            row: dict[str, Any] = msgspec.json.decode(record.value or b"")
            return row
        letter = read_dead_letter(
            place.partition, offset, record.timestamp_ms, record.key, record.value, record.headers
        )
        assert letter is not None
        text = letter.value if letter.whole else (letter.row or "").encode()
        failed = msgspec.json.decode(text or b"")
        cause = failed["id"] if "id" in failed else failed["sku"]  # a timer has failed, which has a key and no record
        return {
            "id": cause,
            "place": f"{self._clusters.find_input(letter.source_topic)}[{letter.source_partition}]",
            "bytes": letter.known,
            "value": letter.value,
            "key": letter.key,
        }

    def _number(self, topic: str, name: Hashable, times: Counter[Hashable]) -> Hashable:
        """Returns the name of a record, with the number of its repetition if records are repeated."""
        if topic == LATE_TOPIC or not (isinstance(self._shape, OnTimeShape) and self._shape.repeats):
            return name
        times[name] += 1
        return name, times[name] - 1

    def empty(self, now_ms: int) -> None:
        """Removes everything that has been read, as retention does, and what leaders know about producers."""
        self.read(now_ms)
        for place in self.places:
            broker, there = self._clusters.at(place)
            broker.delete_records(now_ms, there, broker.offsets(now_ms, there).stable)
            broker.forget_producers(now_ms, there)

    def go_back(self, done: frozenset[int]) -> None:
        """Begins another history, before which `done` had been processed."""
        self._cuts.append((done, {place: self._clusters.end_offset(place) for place in self.places}))
        for ids in self.ids.values():
            ids.clear()
        self._times[0].clear()

    def histories(self) -> list[OracleHistory]:
        """Returns all histories, oldest first."""
        ends = [begins for _, begins in self._cuts[1:]] + [dict.fromkeys(self.places, FETCH_MAX)]
        histories = []
        for (done, begins), end in zip(self._cuts, ends, strict=True):
            output: dict[str, list[list[Any]]] = defaultdict(list)
            for place in self.places:
                first, behind = begins.get(place, 0), end[place]
                output[place.topic].append([row for at, row in self._rows[place] if first <= at < behind])
            histories.append(OracleHistory(done, output))
        return histories
