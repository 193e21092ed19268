"""The base of steps in Python, and what they get: rows, outputs and settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from typing_extensions import override

from tidegate.config.fields.units import derive_duration_ms

if TYPE_CHECKING:
    import polars

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


if TYPE_CHECKING:

    class _Columns(Mapping[str, Any]):
        """Lets a type checker report changes of a row."""

        def __init__(self, columns: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), /, **more: Any) -> None: ...
        @override
        def __getitem__(self, name: str) -> Any: ...
        @override
        def __iter__(self) -> Iterator[str]: ...
        @override
        def __len__(self) -> int: ...
        def copy(self) -> dict[str, Any]:
            """Returns a dict that can be changed."""

else:
    _Columns = dict


class Row(_Columns):
    """A row: a dict of its columns that cannot be changed."""

    __slots__ = ("time_ms",)

    time_ms: int
    """Its event time, ms since 1970; missing if rows have none."""

    @property
    def time(self) -> datetime:
        """The event time of the row, in UTC. Raises RuntimeError if rows have none."""
        try:
            return _EPOCH + timedelta(milliseconds=self.time_ms)
        except AttributeError:
            raise RuntimeError(
                "these rows have no event time: declare `event_time` of their source, or a step `event_time`"
            ) from None

    if not TYPE_CHECKING:

        def _refuse_change(self, *_, **__):
            raise TypeError("a row cannot be changed: make a new one, for instance `{**row, 'price': 1}`")

        __setitem__ = __delitem__ = __ior__ = _refuse_change
        clear = pop = popitem = setdefault = update = _refuse_change


class Out(Protocol):
    """The outputs of a step. Rows need all columns that the pipeline file declares; further ones are ignored."""

    def emit(self, row: Mapping[str, Any] | polars.DataFrame | None = None, /, **columns: Any) -> None:
        """Emits a row of the main output, as a mapping or as keywords; in `process_batch` a frame.

        Raises TypeError if a value does not have the type of its column.
        """

    def to(self, output: str, row: Mapping[str, Any] | polars.DataFrame | None = None, /, **columns: Any) -> None:
        """Emits a row, or a frame, of another output."""


class Settings(Mapping[str, Any]):
    """The values under `with` of the step in the pipeline file. They cannot be changed."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    @override
    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise KeyError(f"there is no setting {name!r}: add it under `with` of the step") from None

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @override
    def __len__(self) -> int:
        return len(self._values)

    @override
    def __repr__(self) -> str:
        """Names the settings only, because a value may be a secret."""
        return f"Settings({', '.join(self._values)})"

    def duration(self, name: str, default: str | None = None) -> timedelta:
        """Returns a setting such as `30m` as a timedelta. Raises KeyError, TypeError and ValueError."""
        text = self[name] if default is None else self._values.get(name, default)
        if not isinstance(text, str):
            raise TypeError(f"the setting {name!r} is {text!r}, not a duration: write a number with its unit, as 30m")
        try:
            return timedelta(milliseconds=derive_duration_ms(text))
        except ValueError as error:
            raise ValueError(f"the setting {name!r} is {text!r}, not a duration: {error}") from error


class StepScope(Protocol):
    """What a step that runs can ask its slot."""

    @property
    def key(self) -> tuple[Any, ...]:
        """The current key."""

    @property
    def watermark(self) -> datetime | None:
        """The watermark; None before the first one."""

    def now(self) -> datetime:
        """Returns the time of the slot's clock."""

    def file(self, name: str) -> Path:
        """Returns where a file of the pipeline is."""


class Step:
    """A step in Python. Derive from it, declare state and timers as attributes, and define `process`.

    There is one object for each subtask. State survives restarts; attributes that you set yourself do not.
    """

    version: ClassVar[int] = 1
    """Raise it when state of the version before must not be continued: a start then asks what to do with it."""

    _scope: StepScope | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """The current key: the values of the columns of `key`."""
        return self._running.key

    @property
    def watermark(self) -> datetime | None:
        """No row of this key up to this event time arrives any more unless it is late; None before the first watermark.

        It survives restarts, except in a step without `key`.
        """
        return self._running.watermark

    def now(self) -> datetime:
        """Returns the time of the slot's clock, in UTC. Tests set this clock."""
        return self._running.now()

    def file(self, name: str) -> Path:
        """Returns the path of a file that the pipeline file lists under `code`, by its name."""
        return self._running.file(name)

    @property
    def _running(self) -> StepScope:
        if self._scope is None:
            raise RuntimeError("only Tidegate can run a step")
        return self._scope

    def open(self, settings: Settings) -> None:
        """Is called once before the first row. An exception ends the attempt."""

    def process(self, row: Row, out: Out) -> None:
        """Processes a row. If it raises, what it has written and emitted is undone, and the row has failed."""
        raise NotImplementedError("define `process`")

    def on_timer(self, name: str, at: datetime, out: Out) -> None:
        """Is called when the timer `name` of the key `self.key` is due, which was set to `at`."""
        raise NotImplementedError("define `on_timer`")

    def close(self) -> None:
        """Is called at the end of an attempt, unless its process dies."""


def bind(step: Step, scope: StepScope, handles: Mapping[str, object]) -> None:
    """Connects a step to the slot that runs it: its declarations become handles."""
    step._scope = scope  # noqa: SLF001  # of this module
    vars(step).update(handles)
