"""Channels between subtasks: bounded queues with credits in bytes. No sockets here.

An unaligned barrier overtakes the batches queued at the sender (`RemoteOutput`), but never another barrier. At the
receiver, the subtask is notified of it on arrival, and the barrier keeps its position in the queue (`InputChannel`).

The receiver grants an initial credit (`CREDIT_BYTES`, the same at both ends) and later re-grants what it has consumed,
so it always has room for frames in transit. A sender with credit may send one whole frame of any size. Control elements
cost no credit, since their number is bounded: barriers by the checkpoints in flight, watermarks and statuses by at most
three queued between two batches (`Coalescing`), answers by the questions asked, and a channel catches up and ends once.
A blocked channel keeps receiving up to its credit (C35), while the others continue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from typing_extensions import override

from tidegate.ids import CheckpointId
from tidegate.operators.runtime import END_OF_TIME, ROWS_MAX
from tidegate.task.elements import (
    BYTES_MAX,
    Barrier,
    Batch,
    CatchUpMarker,
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
"""A sender with more than this queued accepts no new input (backpressure)."""


class Coalescing:
    """Coalescing of watermarks and statuses at the end of a queue: of adjacent ones, only the last takes effect.

    A watermark replaces one directly before it, and is dropped while idle, since it would not count (W08). The end of
    time replaces none, since what the last watermark makes due is more than it makes due (`DueResultsRuntime`). A
    status that follows its opposite cancels it.
    """

    __slots__ = ("_idle",)

    def __init__(self) -> None:
        self._idle = False

    def join(self, last: Element | None, control: TimeControl) -> tuple[bool, bool]:
        """Returns whether the last element of the queue is removed for this one, and whether this one is appended."""
        if isinstance(control, Watermark):
            if self._idle or not isinstance(last, Watermark):
                return False, not self._idle
            higher = control.time_ms > last.time_ms
            return higher and control.time_ms != END_OF_TIME, higher
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
        """Set if the sender is in the same slot."""

    def __len__(self) -> int:
        return len(self._elements)

    @property
    def head(self) -> Element:
        """The oldest element; the queue must not be empty."""
        return self._elements[0]

    def watch(self, on_arrival: Callable[[Batch | CheckpointControl], None]) -> None:
        """Registers a callback for every batch, barrier and cancellation marker, called after it has been appended
        (B47).
        """
        self._on_arrival = on_arrival

    def push(self, element: Element) -> None:
        """Appends an element that has arrived."""
        if isinstance(element, Batch):
            self.queued_bytes += element.size_bytes
        elif isinstance(element, Watermark | StreamStatus):
            self._push_time(element)
            return
        self._elements.append(element)
        if self._on_arrival is not None and not isinstance(element, StillIdle | CatchUpMarker):
            self._on_arrival(element)

    def _push_time(self, control: TimeControl) -> None:
        replaces, stays = self._coalescing.join(self._elements[-1] if self._elements else None, control)
        if replaces:
            self._elements.pop()
        if stays:
            self._elements.append(control)

    def batches_ahead_of(self, checkpoint: CheckpointId) -> list[Batch]:
        """Returns the queued batches in front of the checkpoint's barrier, or all of them if it has not arrived."""
        ahead: list[Batch] = []
        for element in self._elements:
            if isinstance(element, Barrier) and element.checkpoint >= checkpoint:
                break
            if isinstance(element, Batch):
                ahead.append(element)
        return ahead

    def pop(self, rows_max: int = ROWS_MAX, bytes_max: int = BYTES_MAX) -> Element:
        """Takes the oldest element. Splits a batch that exceeds the limits, but takes at least one row.

        The bytes taken become credit for the sender.
        """
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
        """Asks the sender whether it is still idle."""
        if self.sender is not None:
            self.sender.on_question(question)
        else:
            self._question = question

    def take_question(self) -> int:
        """Returns the question to send to the sender; 0 if there is none."""
        question, self._question = self._question, 0
        return question

    def take_credit(self) -> int:
        """Returns the bytes to grant again: 0 until a quarter of the credit is consumed, which keeps grants
        infrequent.
        """
        if self._consumed < self.credit_bytes // 4:
            return 0
        granted, self._consumed = self._consumed, 0
        return granted


class OutputChannel(Protocol):
    """The sending end of a channel."""

    def emit(self, element: Element) -> None:
        """Queues an element; never refuses (the caller checks `writable` before it takes new input)."""

    @property
    def writable(self) -> bool:
        """Whether the vertex may take another input batch."""

    def take_overtaken(self, checkpoint: CheckpointId) -> Sequence[EncodedBatch] | None:
        """Returns the encoded batches that the checkpoint's barrier has overtaken here, oldest first, and only once.

        Returns None while the barrier is queued and may still overtake.
        """

    def on_time(self, now_ms: int) -> None:
        """Lets a barrier that has waited longer than its limit overtake."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due; None while no barrier with a limit waits."""

    def forget(self, checkpoint: CheckpointId) -> None:
        """Discards an aborted checkpoint: its barrier overtakes nothing and holds back no other."""

    def listen(self, asked: Callable[[int], None]) -> None:
        """Registers a callback for the receiver's questions whether the sender is still idle."""


class _Asked(OutputChannel):
    """A sending end whose receiver can ask whether the sender is still idle."""

    def __init__(self) -> None:
        self._asked: Callable[[int], None] | None = None

    @override
    def listen(self, asked: Callable[[int], None]) -> None:
        self._asked = asked

    def on_question(self, question: int) -> None:
        """Forwards a question of the receiver."""
        if self._asked is not None:
            self._asked(question)


class LocalOutput(_Asked, OutputChannel):
    """A channel to a subtask of the same slot, without serialisation.

    The receiver's queue is the channel, so nothing is queued here.
    """

    next_deadline_ms: int | None = None

    def __init__(self, target: InputChannel) -> None:
        super().__init__()
        self._target = target
        target.sender = self

    def emit(self, element: Element) -> None:
        """Appends directly to the receiver's queue."""
        self._target.push(element)

    @property
    def writable(self) -> bool:
        """Whether the receiver's queue is below the credit."""
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
    """An encoded element. `barrier` is set for a barrier that counts, `since_ms` from the first reading of the clock.

    A `placed` barrier keeps its position: rows stay on their side of it.
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
        """How long the barrier waits before it overtakes; None for anything but a barrier with a time limit."""
        after = self.barrier.unaligned_after_ms if self.barrier is not None else None
        return after or None

    def place_unaligned(self, barrier: Barrier) -> None:
        self.placed = True
        if not barrier.is_unaligned:
            self.barrier = barrier.as_unaligned()
            self.kind, self.body = encode_element(self.barrier)


class RemoteOutput(_Asked, OutputChannel):
    """A channel to a subtask of another slot: encodes at once, sends as credit allows. `sequence` numbers
    the frames.
    """

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
        """Encodes and queues an element; an unaligned barrier moves in front of the batches."""
        if isinstance(element, Watermark | StreamStatus) and not self._joins(element):
            return
        waiting = _Waiting(element)
        self._queue.append(waiting)
        self.queued_bytes += len(waiting.body)
        self._limited += waiting.limit_ms is not None
        if waiting.barrier is not None and waiting.barrier.is_unaligned:
            self._overtake(waiting.barrier.checkpoint)

    def _joins(self, control: TimeControl) -> bool:
        """Returns whether to queue the element, see Coalescing."""
        replaces, stays = self._coalescing.join(self._queue[-1].time if self._queue else None, control)
        if replaces:
            self.queued_bytes -= len(self._queue.pop().body)
        return stays

    @property
    def writable(self) -> bool:
        """Whether little is queued for credit or for the socket."""
        return self.queued_bytes < self._queue_bytes_max

    def grant(self, credit: int) -> None:
        """Adds the `credit` bytes that the receiver has consumed."""
        self._credit += credit

    def take(self) -> tuple[FrameKind, int, bytes] | None:
        """Returns the next frame that can be sent now as (kind, sequence, body), or None."""
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
        """The batches also stay queued: they are newer than what the receiver records."""
        if self._limited and any(
            each.barrier is not None and each.barrier.checkpoint == checkpoint and each.limit_ms is not None
            for each in self._queue
        ):
            return None
        return self._overtaken.pop(checkpoint, ())

    @override
    def on_time(self, now_ms: int) -> None:
        """Lets older barriers with a limit overtake together with the one that is due."""
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
        """0 if a barrier has not been given the time yet."""
        if not self._limited:
            return None
        limited = ((each.since_ms, each.limit_ms) for each in self._queue)
        return min(0 if since is None else since + limit for since, limit in limited if limit is not None)

    @override
    def forget(self, checkpoint: CheckpointId) -> None:
        """The frame is still sent, but no subtask waits for it."""
        self._overtaken.pop(checkpoint, None)
        for each in self._queue:
            if each.barrier is not None and each.barrier.checkpoint == checkpoint:
                self._limited -= each.limit_ms is not None
                each.barrier = None
                each.placed = False

    def _overtake(self, newest: CheckpointId) -> None:
        """Moves the barriers up to `newest` in front of the batches and records what each overtakes.

        No barrier moves past one that is placed.
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
