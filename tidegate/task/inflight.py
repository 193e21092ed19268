"""In-flight data of unaligned checkpoints: rows between two subtasks that a barrier has overtaken.

A file holds one side of one subtask: the rows queued at its inputs (INPUT: replayed rows first, then channel by
channel) or at its outputs (OUTPUT). Within a channel the input side is older than the output side (B50).

    4 bytes "TGIF", 2 bytes format version, 4 bytes header length (both big-endian)
    header: JSON of `InflightHeader`
    for each frame of the header: an Arrow IPC stream

Rows are stored under the name of their edge, which survives a change of the plan. Only keyed edges have in-flight data,
so the key determines where a row belongs after a change of the parallelism.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.coordinator.types import StateHandle, StateKind
from tidegate.datatypes import DataType
from tidegate.errors import PipelineStopped
from tidegate.formats.arrow import decode_frame
from tidegate.ids import CheckpointId
from tidegate.operators.spec import Requirement, render_columns
from tidegate.plan.graph import Plan, derive_edge_names
from tidegate.state.keygroups import KEY_HASH, key_group_of
from tidegate.task.elements import Batch
from tidegate.task.outputs import EdgeOutput
from tidegate.task.wire import EncodedBatch, encode_element

if TYPE_CHECKING:
    import polars as pl

REPLAY_ORDER: Final = (StateKind.INPUT, StateKind.OUTPUT)
"""Rows already received are older than rows still at their senders."""
FORMAT_VERSION: Final = 1
_MAGIC = b"TGIF"
_PREFIX = struct.Struct(">4sHI")
_REMEDY: Final = (
    "restore the old definition, stop the pipeline once with SIGTERM (its final checkpoint leaves nothing in "
    "flight), then change it"
)


class InflightUnreadable(PipelineStopped):
    """Rows in flight cannot be replayed into the current pipeline."""

    code = "inflight-unreadable"


class EdgeShape(msgspec.Struct, frozen=True):
    """The properties of an edge that must be unchanged for its rows to be replayed."""

    name: str
    columns: tuple[tuple[str, DataType], ...]
    keys: tuple[str, ...]
    max_parallelism: int
    key_hash: str = KEY_HASH
    timed: bool = False
    """Whether rows must have an event time because a downstream step uses it."""


class FrameIndex(msgspec.Struct, frozen=True, array_like=True):
    """One batch: index of its edge in the header, and its size."""

    edge: int
    size_bytes: int


class InflightHeader(msgspec.Struct, frozen=True):
    """The description of a file: everything except its rows."""

    edges: tuple[EdgeShape, ...]
    frames: tuple[FrameIndex, ...]


Piece = tuple[int, Batch | EncodedBatch]
"""Index of the edge in the plan and a batch, encoded or not."""


class InflightCapture(msgspec.Struct, frozen=True):
    """One side of one subtask, encoded on a helper thread."""

    kind: StateKind
    shapes: Mapping[int, EdgeShape]
    pieces: Sequence[Piece]

    @property
    def edges(self) -> tuple[str, ...]:
        """Names of the edges whose rows it holds."""
        return tuple(self.shapes[edge].name for edge in sorted({edge for edge, _ in self.pieces}))

    @property
    def rows(self) -> int:
        """Number of rows it holds."""
        return sum(piece.frame.height if isinstance(piece, Batch) else piece.rows for _, piece in self.pieces)

    def files(self) -> list[bytes]:
        """Returns the capture as one file; see ports.Encode."""
        return [self.encode()]

    def encode(self) -> bytes:
        """Encodes the whole file."""
        order = sorted({edge for edge, _ in self.pieces})
        bodies = [encode_element(piece)[1] if isinstance(piece, Batch) else piece.body for _, piece in self.pieces]
        frames = tuple(
            FrameIndex(order.index(edge), len(body)) for (edge, _), body in zip(self.pieces, bodies, strict=True)
        )
        header = msgspec.json.encode(InflightHeader(tuple(self.shapes[edge] for edge in order), frames))
        return b"".join([_PREFIX.pack(_MAGIC, FORMAT_VERSION, len(header)), header, *bodies])


def derive_shapes(plan: Plan) -> dict[int, EdgeShape]:
    """Returns the shapes of all keyed edges by index; the others have no in-flight data."""
    names = derive_edge_names(plan)
    return {
        edge.index: EdgeShape(
            names[edge.index],
            edge.columns,
            edge.keys,
            plan.max_parallelism,
            timed=Requirement.EVENT_TIME in edge.carries,
        )
        for edge in plan.edges
        if edge.keys
    }


def read_inflight(
    name: str, data: bytes, shapes: Mapping[int, EdgeShape], key_groups: range
) -> list[tuple[int, Batch]]:
    """Reads the rows of these edges within `key_groups`, in file order, with the current indices of the edges.

    `name` appears in errors. Raises InflightUnreadable for damage and for an edge that has changed.
    """
    header, start = _read_header(name, data)
    if len(data) != start + sum(frame.size_bytes for frame in header.frames):
        raise InflightUnreadable(f"{name} is truncated: it has {len(data)} bytes")
    _refuse_changed(name, header, shapes)
    wanted = {shape.name: (index, shape) for index, shape in shapes.items()}
    taken: list[tuple[int, Batch]] = []
    view = memoryview(data)
    for frame in header.frames:
        body, start = view[start : start + frame.size_bytes], start + frame.size_bytes
        written = header.edges[frame.edge]
        if written.name not in wanted:
            continue
        index, shape = wanted[written.name]
        batch = _decode(name, body, shape, key_groups)
        if batch is not None:
            taken.append((index, batch))
    return taken


def refuse_other_edges(name: str, data: bytes, shapes: Mapping[int, EdgeShape]) -> None:
    """Checks only the header; `data` may end where the rows begin.

    Raises InflightUnreadable for damage and for an edge that has changed.
    """
    _refuse_changed(name, _read_header(name, data)[0], shapes)


def _refuse_changed(name: str, header: InflightHeader, shapes: Mapping[int, EdgeShape]) -> None:
    wanted = {shape.name: shape for shape in shapes.values()}
    for written in header.edges:
        shape = wanted.get(written.name, written)
        if written != msgspec.structs.replace(shape, timed=written.timed):
            raise InflightUnreadable(
                f"{name} has rows in flight on {shape.name} with columns {_describe(written)}, but the pipeline "
                f"now sends {_describe(shape)}: {_REMEDY}"
            )
        if shape.timed and not written.timed:
            raise InflightUnreadable(
                f"{name} has rows in flight on {shape.name} without event time, which a downstream step now needs: "
                f"{_REMEDY}"
            )


def read_replay(
    handles: Iterable[StateHandle],
    read: Callable[[StateHandle], bytes],
    shapes: Mapping[int, EdgeShape],
    key_groups: range,
) -> list[tuple[int, Batch]]:
    """Reads the rows in flight on these edges within `key_groups`, oldest first (B50). `read` returns a
    file's content.
    """
    names = {shape.name for shape in shapes.values()}
    wanted = [handle for handle in handles if names.intersection(handle.edges)]
    return [
        piece
        for kind in REPLAY_ORDER
        for handle in wanted
        if handle.kind is kind
        for piece in read_inflight(handle.path, read(handle), shapes, key_groups)
    ]


def _read_header(name: str, data: bytes) -> tuple[InflightHeader, int]:
    if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
        raise InflightUnreadable(f"{name} does not begin with TGIF: it is damaged, or not a file of Tidegate")
    _, version, length = _PREFIX.unpack_from(data)
    if version != FORMAT_VERSION:
        raise InflightUnreadable(
            f"{name} has format {version}, but this release reads {FORMAT_VERSION}: use the release that wrote it"
        )
    start = _PREFIX.size + length
    try:
        header = msgspec.json.decode(data[_PREFIX.size : start], type=InflightHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InflightUnreadable(f"the header of {name} is damaged: {error}") from error
    return header, start


def _decode(name: str, body: memoryview, shape: EdgeShape, key_groups: range) -> Batch | None:
    import polars as pl

    try:
        frame = decode_frame(body)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InflightUnreadable(f"rows in {name} cannot be read: {error}") from error
    kept = _owned(frame, shape, key_groups)
    return Batch(kept, int(kept.estimated_size())) if kept.height else None


def _owned(frame: pl.DataFrame, shape: EdgeShape, key_groups: range) -> pl.DataFrame:
    groups = key_group_of(frame, shape.keys, shape.max_parallelism)
    return frame.filter(groups.is_between(key_groups.start, key_groups.stop - 1))


def _describe(shape: EdgeShape) -> str:
    return f"({render_columns(shape.columns)}) by {', '.join(shape.keys)}"


class Recording:
    """The in-flight data of one subtask for one checkpoint, collected until every barrier is placed."""

    def __init__(
        self, replayed: Sequence[tuple[int, Batch]], queued: Mapping[int, tuple[int, Sequence[Batch]]]
    ) -> None:
        """`queued` is the edge and the queued batches of every input channel, by the channel's index."""
        self.alignment_ms: int | None = None
        self._replayed = list(replayed)
        self._channels = {channel: (edge, list(batches)) for channel, (edge, batches) in queued.items()}
        self._outputs: list[Piece] = []
        self._unsettled: set[tuple[int, int]] = set()

    def arrived(self, channel: int, batch: Batch) -> None:
        """Adds a batch that arrived in front of the channel's barrier (B47)."""
        self._channels[channel][1].append(batch)

    def expect(self, output: tuple[int, int]) -> None:
        """Waits for this output channel, where the barrier may still overtake."""
        self._unsettled.add(output)

    @property
    def is_overtaking(self) -> bool:
        """Whether rows are queued in front of the barrier in a channel."""
        return bool(self._channels)

    @property
    def unsettled(self) -> Sequence[tuple[int, int]]:
        """Output channels in which the barrier is not placed yet."""
        return sorted(self._unsettled)

    def overtaken(self, output: tuple[int, int], batches: Sequence[EncodedBatch]) -> None:
        """Records that the barrier is placed in this output channel (edge, position), in front of these batches."""
        self._unsettled.discard(output)
        self._outputs += [(output[0], batch) for batch in batches]

    @property
    def complete(self) -> bool:
        """Whether every barrier has arrived and every barrier sent on is placed."""
        return self.alignment_ms is not None and not self._unsettled

    def captures(self, shapes: Mapping[int, EdgeShape]) -> list[InflightCapture]:
        """Returns the captures to store, one for each side that is not empty."""
        inputs: list[Piece] = [*self._replayed]
        inputs += [(edge, batch) for edge, batches in self._channels.values() for batch in batches]
        sides = ((StateKind.INPUT, inputs), (StateKind.OUTPUT, self._outputs))
        return [InflightCapture(kind, shapes, pieces) for kind, pieces in sides if pieces]


class Recordings:
    """The recordings of one subtask. `ended` is called when nothing more can be added to a recording."""

    def __init__(self, outputs: Mapping[int, EdgeOutput], ended: Callable[[CheckpointId, Recording], None]) -> None:
        self._outputs = outputs
        self._ended = ended
        self._open: dict[CheckpointId, Recording] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, checkpoint: CheckpointId, recording: Recording, alignment_ms: int) -> None:
        """Starts recording on every output channel, and on the input channels with rows in front of the barrier."""
        for edge, output in self._outputs.items():
            for position in range(len(output.channels)):
                recording.expect((edge, position))
        if not recording.is_overtaking:
            recording.alignment_ms = alignment_ms
        self._open[checkpoint] = recording

    def arrived(self, checkpoint: CheckpointId, channel: int, batch: Batch) -> None:
        """Adds a batch that arrived in front of the channel's barrier (B47)."""
        self._open[checkpoint].arrived(channel, batch)

    def aligned(self, checkpoint: CheckpointId, alignment_ms: int) -> None:
        """Records that every barrier has arrived. A recording without rows in flight has already ended with the
        snapshot.
        """
        recording = self._open.get(checkpoint)
        if recording is not None:
            recording.alignment_ms = alignment_ms
            self.settle()

    def settle(self) -> None:
        """Hands over the recordings to which nothing more can be added."""
        for checkpoint, recording in list(self._open.items()):
            for edge, position in recording.unsettled:
                batches = self._outputs[edge].channels[position].take_overtaken(checkpoint)
                if batches is not None:
                    recording.overtaken((edge, position), batches)
            if recording.complete:
                del self._open[checkpoint]
                self._ended(checkpoint, recording)

    def forget(self, checkpoint: CheckpointId) -> None:
        """Drops an aborted checkpoint."""
        self._open.pop(checkpoint, None)
        for output in self._outputs.values():
            output.forget(checkpoint)
