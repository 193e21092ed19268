"""Channels between subtasks: bounded queues with credits in bytes. No sockets here.

An unaligned barrier overtakes the batches that wait at the sender (`RemoteOutput`), never another barrier; at the
receiver it is reported to the subtask when it arrives, while its place in the queue stays (`InputChannel`).

The receiver grants a credit (`CREDIT_BYTES`, the same at both ends) and grants again what it has consumed, so it always
has room for what is on its way. A sender with credit may send one whole frame, whatever its size; control elements cost
nothing, since their number is bounded: by the checkpoints in flight, of watermarks and statuses at most three wait
between two batches (`Coalescing`), and an answer follows a question. A blocked channel keeps receiving up to its credit
(C35), the others go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from typing_extensions import override

from tidegate.ids import CheckpointId
from tidegate.operators.runtime import ROWS_MAX
from tidegate.task.elements import (
    BYTES_MAX,
    Barrier,
    Batch,
    CheckpointControl,
    Element,
    StillIdle,
    StreamStatus,
    TimeControl,
    Watermark,
)
from tidegate.task.wire import EncodedBatch, FrameKind, encode_element

CREDIT_BYTES: Final = 2 << 20
QUEUE_BYTES_MAX: Final = 1 << 20
"""A sender with more than this waiting takes no new input (backpressure)."""


class Coalescing:
    """What watermarks and statuses do to the end of a queue: what nothing comes between has the effect of the last.

    A watermark takes the place of the one that it follows, and is left out while idle: it would not count (W08).
    A status that follows its opposite cancels it.
    """

    __slots__ = ("_idle",)

    def __init__(self) -> None:
        self._idle = False

    def join(self, last: Element | None, control: TimeControl) -> tuple[bool, bool]:
        """Whether the last element of the queue leaves it for this one, and whether this one is appended."""
        if isinstance(control, Watermark):
            if self._idle or not isinstance(last, Watermark):
                return False, not self._idle
            higher = control.time_ms > last.time_ms
            return higher, higher
        if control.idle == self._idle:
            return False, False
        self._idle = control.idle
        cancels = isinstance(last, StreamStatus)
        return cancels, not cancels


class InputChannel:
    """The receiving end of edge `edge`: elements in the order in which they were sent."""

    __slots__ = (
        "_coalescing",
        "_consumed",
        "_elements",
        "_on_arrival",
        "_question",
        "credit_bytes",
        "edge",
        "queued_bytes",
        "sender",
    )

    def __init__(self, edge: int = 0, credit_bytes: int = CREDIT_BYTES) -> None:
        self.edge = edge
        self.credit_bytes = credit_bytes
        self.queued_bytes = 0
        self._elements: deque[Element] = deque()
        self._consumed = 0
        self._coalescing = Coalescing()
        self._on_arrival: Callable[[Batch | CheckpointControl], None] | None = None
        self._question = 0
        self.sender: LocalOutput | None = None
        """Where it is of the same slot."""

    def __len__(self) -> int:
        return len(self._elements)

    @property
    def head(self) -> Element:
        """The oldest element; the queue must not be empty."""
        return self._elements[0]

    def watch(self, on_arrival: Callable[[Batch | CheckpointControl], None]) -> None:
        """Have every batch, barrier and cancellation marker reported when it has been appended (B47)."""
        self._on_arrival = on_arrival

    def push(self, element: Element) -> None:
        """Append what arrived."""
        if isinstance(element, Batch):
            self.queued_bytes += element.size_bytes
        elif isinstance(element, Watermark | StreamStatus):
            self._push_time(element)
            return
        self._elements.append(element)
        if self._on_arrival is not None and not isinstance(element, StillIdle):
            self._on_arrival(element)

    def _push_time(self, control: TimeControl) -> None:
        replaces, stays = self._coalescing.join(self._elements[-1] if self._elements else None, control)
        if replaces:
            self._elements.pop()
        if stays:
            self._elements.append(control)

    def batches_ahead_of(self, checkpoint: CheckpointId) -> list[Batch]:
        """The queued batches in front of the checkpoint's barrier, all of them if it is not here."""
        ahead: list[Batch] = []
        for element in self._elements:
            if isinstance(element, Barrier) and element.checkpoint >= checkpoint:
                break
            if isinstance(element, Batch):
                ahead.append(element)
        return ahead

    def pop(self, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> Element:
        """Take the oldest element, of a batch at most so much but one row; its bytes become credit for the sender."""
        element = self._elements.popleft()
        if isinstance(element, Batch):
            rows = element.rows_within(rows_max, bytes_max)
            if rows < element.frame.height:
                element, rest = element.split(rows)
                self._elements.appendleft(rest)
            self.queued_bytes -= element.size_bytes
            self._consumed += element.size_bytes
        return element

    def ask(self, question: int) -> None:
        """Have the sender asked whether it is still idle."""
        if self.sender is not None:
            self.sender.on_question(question)
        else:
            self._question = question

    def take_question(self) -> int:
        """The question that is to go to the sender; 0 for none."""
        question, self._question = self._question, 0
        return question

    def take_credit(self) -> int:
        """Bytes to grant again: 0 until a quarter of the credit is consumed, so that grants stay few."""
        if self._consumed < self.credit_bytes // 4:
            return 0
        granted, self._consumed = self._consumed, 0
        return granted


class OutputChannel(Protocol):
    """The sending end."""

    def emit(self, element: Element) -> None:
        """Queue an element; never refuses (the caller asks `writable` before it takes new input)."""

    @property
    def writable(self) -> bool:
        """Whether the vertex may take another input batch."""

    def take_overtaken(self, checkpoint: CheckpointId) -> Sequence[EncodedBatch] | None:
        """The encoded batches that the checkpoint's barrier has overtaken here, oldest first; returned once.

        None while the barrier waits and may still overtake.
        """

    def on_time(self, now_ms: int) -> None:
        """A barrier that has waited longer than its limit overtakes."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due; None while no barrier with a limit waits."""

    def forget(self, checkpoint: CheckpointId) -> None:
        """The checkpoint was given up: its barrier overtakes nothing and holds back no other."""

    def listen(self, asked: Callable[[int], None]) -> None:
        """Have the receiver's questions reported, whether the sender is still idle."""


class _Asked(OutputChannel):
    """A sending end whose receiver asks whether the sender is still idle."""

    def __init__(self) -> None:
        self._asked: Callable[[int], None] | None = None

    @override
    def listen(self, asked: Callable[[int], None]) -> None:
        self._asked = asked

    def on_question(self, question: int) -> None:
        """The receiver asks."""
        if self._asked is not None:
            self._asked(question)


class LocalOutput(_Asked, OutputChannel):
    """To a subtask of the same slot: no serialisation. The receiver's queue is the channel, so nothing waits here."""

    next_deadline_ms: int | None = None

    def __init__(self, target: InputChannel) -> None:
        super().__init__()
        self._target = target
        target.sender = self

    def emit(self, element: Element) -> None:
        """Straight into the receiver's queue."""
        self._target.push(element)

    @property
    def writable(self) -> bool:
        """While the receiver's queue is below the credit."""
        return self._target.queued_bytes < self._target.credit_bytes

    @override
    def take_overtaken(self, checkpoint: CheckpointId) -> Sequence[EncodedBatch] | None:
        return ()

    @override
    def on_time(self, now_ms: int) -> None:
        pass

    @override
    def forget(self, checkpoint: CheckpointId) -> None:
        pass


class _Waiting:
    """An encoded element; `barrier` while it is a barrier that counts, `since_ms` from the first look at the clock.

    A barrier that is `placed` keeps its place: rows are on the one or the other side of it for good.
    """

    __slots__ = ("barrier", "body", "kind", "placed", "rows", "since_ms", "time")

    def __init__(self, element: Element) -> None:
        self.kind, self.body = encode_element(element)
        self.time = element if isinstance(element, Watermark | StreamStatus) else None
        self.rows = element.frame.height if isinstance(element, Batch) else 0
        self.barrier = element if isinstance(element, Barrier) else None
        self.placed = self.barrier is not None and self.barrier.unaligned_after_ms is None
        self.since_ms: int | None = None

    @property
    def limit_ms(self) -> int | None:
        """How long it waits before it overtakes; None for all but barriers with a time limit."""
        after = self.barrier.unaligned_after_ms if self.barrier is not None else None
        return after or None

    def place_unaligned(self, barrier: Barrier) -> None:
        self.placed = True
        if not barrier.is_unaligned:
            self.barrier = barrier.as_unaligned()
            self.kind, self.body = encode_element(self.barrier)


class RemoteOutput(_Asked, OutputChannel):
    """To a subtask of another slot: encoded at once, sent as credit allows. `sequence` numbers the frames."""

    def __init__(self, edge: int, credit_bytes: int = CREDIT_BYTES, queue_bytes_max: int = QUEUE_BYTES_MAX) -> None:
        super().__init__()
        self.edge = edge
        self.queued_bytes = 0
        self._queue: deque[_Waiting] = deque()
        self._credit = credit_bytes
        self._queue_bytes_max = queue_bytes_max
        self._sequence = 0
        self._coalescing = Coalescing()
        self._limited = 0
        self._overtaken: dict[CheckpointId, list[EncodedBatch]] = {}

    def emit(self, element: Element) -> None:
        """Encode and queue; an unaligned barrier goes in front of the batches."""
        if isinstance(element, Watermark | StreamStatus) and not self._joins(element):
            return
        waiting = _Waiting(element)
        self._queue.append(waiting)
        self.queued_bytes += len(waiting.body)
        self._limited += waiting.limit_ms is not None
        if waiting.barrier is not None and waiting.barrier.is_unaligned:
            self._overtake(waiting.barrier.checkpoint)

    def _joins(self, control: TimeControl) -> bool:
        """Whether it is to be queued, see Coalescing."""
        replaces, stays = self._coalescing.join(self._queue[-1].time if self._queue else None, control)
        if replaces:
            self.queued_bytes -= len(self._queue.pop().body)
        return stays

    @property
    def writable(self) -> bool:
        """While little waits for credit or for the socket."""
        return self.queued_bytes < self._queue_bytes_max

    def grant(self, credit: int) -> None:
        """The receiver has consumed `credit` bytes."""
        self._credit += credit

    def take(self) -> tuple[FrameKind, int, bytes] | None:
        """The next frame that may leave now as (kind, sequence, body), or None."""
        if not self._queue:
            return None
        head = self._queue[0]
        if head.kind is FrameKind.BATCH:
            if self._credit <= 0:
                return None
            self._credit -= len(head.body)
        self._queue.popleft()
        self._limited -= head.limit_ms is not None
        self.queued_bytes -= len(head.body)
        sequence, self._sequence = self._sequence, self._sequence + 1
        return head.kind, sequence, head.body

    @override
    def take_overtaken(self, checkpoint: CheckpointId) -> Sequence[EncodedBatch] | None:
        """They are still queued, too: they are newer than what the receiver records."""
        if self._limited and any(
            each.barrier is not None and each.barrier.checkpoint == checkpoint and each.limit_ms is not None
            for each in self._queue
        ):
            return None
        return self._overtaken.pop(checkpoint, ())

    @override
    def on_time(self, now_ms: int) -> None:
        """Older barriers with a limit overtake together with the one that is due."""
        due: CheckpointId | None = None
        for each in self._queue if self._limited else ():
            if each.limit_ms is None or each.barrier is None:
                continue
            if each.since_ms is None:
                each.since_ms = now_ms
            if now_ms >= each.since_ms + each.limit_ms:
                due = each.barrier.checkpoint
        if due is not None:
            self._overtake(due)

    @property
    @override
    def next_deadline_ms(self) -> int | None:
        """0 when a barrier has not seen the clock yet."""
        if not self._limited:
            return None
        limited = ((each.since_ms, each.limit_ms) for each in self._queue)
        return min(0 if since is None else since + limit for since, limit in limited if limit is not None)

    @override
    def forget(self, checkpoint: CheckpointId) -> None:
        """The frame is sent all the same; nobody waits for it."""
        self._overtaken.pop(checkpoint, None)
        for each in self._queue:
            if each.barrier is not None and each.barrier.checkpoint == checkpoint:
                self._limited -= each.limit_ms is not None
                each.barrier = None
                each.placed = False

    def _overtake(self, newest: CheckpointId) -> None:
        """Bring the barriers up to `newest` in front of the batches, but past no barrier that has its place, and note
        what each of them overtakes.
        """
        waiting = list(self._queue)
        fixed = max((index for index, each in enumerate(waiting) if each.barrier and each.placed), default=-1) + 1
        front: list[_Waiting] = []
        behind: list[_Waiting] = []
        for each in waiting[fixed:]:
            if each.barrier is None or each.barrier.checkpoint > newest:
                behind.append(each)
                continue
            self._limited -= each.limit_ms is not None
            self.queued_bytes -= len(each.body)
            each.place_unaligned(each.barrier)
            self.queued_bytes += len(each.body)
            passed = [EncodedBatch(other.body, other.rows) for other in behind if other.kind is FrameKind.BATCH]
            if passed:
                self._overtaken[each.barrier.checkpoint] = passed
            front.append(each)
        self._queue = deque([*waiting[:fixed], *front, *behind])
