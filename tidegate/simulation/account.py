"""The account of a world's input and output: how much has been processed, and whether the output is correct."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.formats.dead_letters.letter import read_dead_letter
from tidegate.ids import TopicPartition
from tidegate.simulation.clusters import Clusters
from tidegate.simulation.model_broker.codes import RequestRefused
from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.oracle import (
    check_committed,
    check_output,
    count_releases,
    has_come_out,
    id_of,
    topics_of_records,
)
from tidegate.simulation.progress import Progress
from tidegate.simulation.python_steps import PythonOracle
from tidegate.simulation.reach import note_cut
from tidegate.simulation.shapes.lookup import AttemptStart, LookupOracle, LookupShape, TableOracle, TableShape
from tidegate.simulation.shapes.oracle import Oracle, OracleHistory, ShapeOracle
from tidegate.simulation.shapes.python_steps import PythonShape
from tidegate.simulation.shapes.shape import (
    DEAD_TOPIC,
    LATE_TOPIC,
    ContentShape,
    DerivedShape,
    OnTimeShape,
    Shape,
    read_content,
)
from tidegate.simulation.watch import check_left
from tidegate.simulation.workload import InputRecord

if TYPE_CHECKING:
    from tidegate.simulation.world import World

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


class Account:
    """The account of one world. Daemons report to it, and at the end it judges the output."""

    def __init__(self, world: World) -> None:
        workload = world.schedule.workload
        self._world = world
        self.progress = None if workload.windows is None else Progress(world, workload.windows)
        """Progress of the windows, if the workload has any."""
        on_row = None if self.progress is None else self.progress.on_row
        self.outputs = Outputs(world.clusters, workload.shape, workload.partitions, on_row)
        self.attempts = self.completed = 0
        self.positions: Mapping[TopicPartition, int] = {}
        """Positions of the newest committed checkpoint."""
        self.processed_count = 0
        """Sum of the positions of the newest committed checkpoint."""
        self.lost: set[int] = set()
        """Records that retention removed before they were read, according to the journal."""
        self._starts: list[list[AttemptStart]] = [[]]
        """Per history: what was there when its attempts began."""
        self._skipped: frozenset[int] | None = None
        """Records before the start, once the start is fixed."""

    def on_recovered(self, state: JournalState, directory: str) -> None:
        """Notes that a daemon has recovered. If it restored an older state on request, a new history begins here.

        The first recovery fixes where the first history begins. Records before that point are not expected in the
        output.
        """
        world, workload = self._world, self._world.schedule.workload
        self.attempts += 1
        done = world.operations.on_recovered(state.origin, directory)
        begin = state.newest_checkpoint
        assert begin is not None, "where the sources begin is a checkpoint"
        note_cut(world.reach, "restores", begin)
        self.note_lost(begin)
        if self.progress is not None:
            self.progress.on_recovered(begin, world.operations.parallelism)
        if self._skipped is None:
            begins_late = workload.from_latest or workload.shape.forgetful
            self._skipped = self.processed(begin) if begins_late else frozenset()
        if done is not None:
            self._go_back(state.origin, done)
        processed = self.processed(begin)
        self._starts[-1].append(AttemptStart(self._visible() or processed, processed))

    def _go_back(self, origin: str, done: frozenset[int]) -> None:
        world = self._world
        self.outputs.read(world.kernel.clock.now_ms())
        records = topics_of_records(world.schedule.workload)
        again = set[Hashable]().union(*(self.outputs.ids[topic] for topic in records)) - done
        world.reach.note("gone back", 1)
        world.reach.note("gone back in front of committed work", int(bool(again)))
        self.outputs.go_back(done)
        self._starts.append([])
        if self.progress is not None:
            self.progress.go_back(done)
        world.trace.tell(f"went back to {origin}: {len(done)} records had been processed, {len(again)} come again")

    def note_lost(self, checkpoint: CompletedCheckpoint) -> None:
        """Excludes the records that the checkpoint lists as lost from those to be processed."""
        for one in checkpoint.lost:
            place = self._world.clusters.name_place(one.source, one.partition)
            gone = self._world.feed.numbers_in(place, one.from_offset, one.to_offset)
            self._world.reach.note("records that retention removed before they were read", len(gone - self.lost))
            self.lost |= gone

    def on_completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Notes that a checkpoint is complete and committed."""
        self.completed += 1
        note_cut(self._world.reach, "checkpoints", checkpoint)
        if len({one.cluster for one in checkpoint.committables}) > 1:
            self._world.reach.note("checkpoints with transactions in two clusters")
        if self.progress is not None:
            self.progress.on_completed(checkpoint)
        self.positions = self._world.clusters.merge_offsets(checkpoint.positions)
        processed = sum(self.positions.values())
        if processed != self.processed_count:
            self.processed_count = processed
            self._world.course.on_completed()

    @property
    def records(self) -> Sequence[InputRecord]:
        """The records that are to be processed."""
        skipped = self._skipped or frozenset()
        return [
            record for record in self._world.feed.records if record.id not in skipped and record.id not in self.lost
        ]

    def is_complete(self) -> bool:
        """Returns whether every record is in the output."""
        if self._world.operations.going_back is not None or not self.outputs.read(self._world.kernel.clock.now_ms()):
            return False
        records, outputs = self.records, self.outputs
        oracle_of_shape = self._shape_oracle()
        if oracle_of_shape is not None:
            if not isinstance(oracle_of_shape, ShapeOracle) and not self._all_read():
                return False
            return oracle_of_shape.is_complete(outputs.done, outputs.ids, outputs.ever)
        topics = topics_of_records(self._world.schedule.workload)
        ids, ever = outputs.ids, outputs.ever
        if not all(has_come_out(topic, records, outputs.done, ids[topic], ever[topic]) for topic in topics):
            return False
        if self.progress is None or not self.progress.all_read:
            return self.progress is None
        oracle = self.progress.oracle(self._skipped or frozenset())
        return not any(
            oracle.missing(topic, outputs.done, outputs.ids[topic], outputs.ever[topic], self.progress.sizes[topic])
            for topic in oracle.topics
        )

    def _all_read(self) -> bool:
        """Returns whether the newest committed checkpoint is after everything that has arrived."""
        if self.progress is not None:
            return self.progress.all_read
        return all(self.positions.get(place, 0) > ids[-1][0] for place, ids in self._world.feed.places.items())

    def processed(self, checkpoint: CompletedCheckpoint) -> frozenset[int]:
        """Returns the input records before the checkpoint's positions."""
        offsets = self._world.clusters.merge_offsets(checkpoint.positions)
        return frozenset(
            number
            for place, numbers in self._world.feed.places.items()
            for offset, number in numbers
            if offset < offsets.get(place, 0)
        )

    def _visible(self) -> frozenset[int]:
        """Returns the input records that a reader can see now; none if a partition has no leader."""
        world, ends = self._world, {}
        try:
            for place in world.feed.places:
                broker, there = world.clusters.at(place)
                ends[place] = broker.offsets(world.kernel.clock.now_ms(), there).stable
        except RequestRefused:
            return frozenset()
        return frozenset(number for place, end in ends.items() for number in world.feed.numbers_in(place, 0, end))

    @property
    def _rescaled(self) -> bool:
        return any(fault.kind == "rescale" for fault in self._world.faults.fired)

    def _shape_oracle(self) -> Oracle | None:
        """Returns the oracle of the shape for the records known now, or None if it is judged by topic."""
        workload, shape = self._world.schedule.workload, self._world.schedule.workload.shape
        if isinstance(shape, LookupShape):
            return LookupOracle(shape, self._world.feed.records, self._starts)
        if isinstance(shape, TableShape):
            return TableOracle(self._world.feed.records)
        if isinstance(shape, PythonShape):
            timed = None if self.progress is None else self.progress.timed(self._skipped or frozenset())
            return PythonOracle(shape, self.records, timed)
        if isinstance(shape, OnTimeShape):
            assert self.progress is not None
            return self.progress.oracle_on_time(shape, self._skipped or frozenset())
        if not isinstance(shape, DerivedShape):
            return None
        return ShapeOracle(
            shape,
            self.records,
            exactly_once=workload.exactly_once,
            ordered=not (shape.waits and self._rescaled),
        )

    def check(self) -> list[str]:
        """Returns everything that is wrong with the output."""
        self.outputs.read(self._world.kernel.clock.now_ms())
        *earlier, last = histories = self.outputs.histories()
        workload, records = self._world.schedule.workload, self.records
        oracle_of_shape = self._shape_oracle()
        if oracle_of_shape is not None:
            self._world.reach.note(f"schedules: {workload.topology}")
            for what, count in oracle_of_shape.count(histories).items():
                self._world.reach.note(what, count)
            problems = oracle_of_shape.check(histories)
            return problems or ([] if self._world.problems else check_left(self._world))
        if workload.shape.bad:
            self._world.reach.note(f"schedules: {workload.topology}")
            self._world.reach.note("dead letters", len(self.outputs.ever[DEAD_TOPIC]))
        moved = self._rescaled or workload.growing
        problems = check_output(workload, records, last, moved=moved) + check_committed(workload, records, histories)
        for history in earlier:
            problems += check_output(workload, records, history, complete=False, moved=moved)
        if workload.changed:
            self._world.reach.note(f"releases with totals that are {workload.changed}", count_releases(histories) - 1)
        if self.progress is not None:
            if workload.windows is not None and workload.windows.title:
                self._world.reach.note(f"schedules: {workload.windows.title}")
            oracle = self.progress.oracle(self._skipped or frozenset())
            problems += oracle.check(histories)
            for outcome, count in oracle.count_row_outcomes().items():
                self._world.reach.note(f"records of windows: {outcome.value}", count)
        return problems + (check_left(self._world) if not self._world.problems else [])
