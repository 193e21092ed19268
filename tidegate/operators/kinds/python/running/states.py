"""The declared states of a step while it runs: read for a batch, changed by its rows, and written at its end.

Values are read once per batch for all its keys; entries of maps and lists when they are first used. What a row writes
is in these dicts until the batch ends. The old value goes to the undo log before the first write of a row. The log is
part of the scope of the current call, with its key and row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any, Final, NoReturn

from typing_extensions import override

from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import DataType
from tidegate.operators.runtime import END_OF_TIME, LOWEST
from tidegate.operators.spec import Slot
from tidegate.operators.user_values import EPOCH, converter_of, reader_of
from tidegate.python import List, Map, Value
from tidegate.python.step import StepScope
from tidegate.state.base import Key, KeyedState
from tidegate.state.order import Row
from tidegate.state.snapshot import Value as Entry
from tidegate.user_code.describe import DeclaredState
from tidegate.user_code.running import RUNNING

Undo = tuple[Callable[[Any, Any], object], Any, Any]
"""A function that puts an old value back, and its arguments."""


class RunningScope(StepScope):
    """The current call of the step's code. The thread that makes the call is the only one that may use it."""

    def __init__(self, step: str, key_kinds: Sequence[DataType], slot: Slot) -> None:
        self._step = step
        self.thread = 0
        """The thread in which the step's code is called; 0 between calls."""
        self.row = 0
        """A number that no other row and no other timer has."""
        self.state_key: Key = None
        """The current key as states have it."""
        self.time_ms: int | None = None
        """The event time of the row or of the timer."""
        self.reached_ms = LOWEST
        """The event time of the row, or the watermark of its partition when it was read if that was later."""
        self.wall_ms = 0
        """The slot's clock at the beginning of the batch; 0 if no state needs it."""
        self.watermark_ms = LOWEST
        """The watermark that has arrived."""
        self.watermark_of: Callable[[Key], int] | None = None
        """Returns the watermark of a key, which a restart may have restored; None for a step without its own."""
        self.ending = False
        """Whether the timers of an end of time fire."""
        self.rescheduled: list[tuple[str, Key]] | None = None
        """The timers that the current call has set, by name and key; None while rows are processed."""
        self.past_due = False
        """Whether a row has set a timer to a time that the watermark has passed."""
        self.undo: list[Undo] = []
        """What the current row has changed first, in this order."""
        self.emitted_many = False
        """True if what has been emitted should leave before the next row is processed."""
        self.now_ms = slot.now_ms
        self._files = slot.files
        self._readers = [reader_of(kind) for kind in key_kinds]

    def begin(self) -> None:
        """Begins the calls of a batch, in this thread."""
        self.thread = get_ident()
        RUNNING.enter(self._step)

    def end(self) -> None:
        """Ends the calls of a batch."""
        RUNNING.leave()
        self.thread = 0
        self.state_key = None

    def roll_back(self) -> None:
        """Undoes what the current row has written."""
        for put, key, old in reversed(self.undo):
            put(key, old)
        self.undo.clear()

    def check(self) -> None:
        """Raises RuntimeError for a use outside a call of the step's code."""
        if self.thread != get_ident():
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raises RuntimeError for a use outside a call of the step's code."""
        if self.thread:
            raise RuntimeError(
                "state, timers and outputs belong to the thread that calls `process`: pass values to other "
                "threads, and use their results here"
            )
        raise RuntimeError("state, timers and outputs can be used only in `process` and `on_timer`, while they run")

    @property
    @override
    def key(self) -> tuple[Any, ...]:
        if self.thread != get_ident():
            self.refuse()
        if not self._readers:
            raise RuntimeError(
                "there is no current key: the step has no `key`, or gets batches with rows of several keys"
            )
        values = (self.state_key,) if len(self._readers) == 1 else self.state_key
        return tuple(
            value if value is None or read is None else read(value)
            for read, value in zip(self._readers, values, strict=True)
        )

    @property
    @override
    def watermark(self) -> dt.datetime | None:
        watermark_ms = self.watermark_ms
        if self.watermark_of is not None and self.thread:
            watermark_ms = max(watermark_ms, self.watermark_of(self.state_key))
        if watermark_ms == LOWEST:
            return None
        if watermark_ms == END_OF_TIME:
            return dt.datetime.max.replace(tzinfo=dt.UTC)
        return EPOCH + dt.timedelta(milliseconds=watermark_ms)

    @override
    def now(self) -> dt.datetime:
        return EPOCH + dt.timedelta(milliseconds=self.now_ms())

    @override
    def file(self, name: str) -> Path:
        return self._files(name)


class Expiry:
    """The expiry of the entries of one state. Without a `ttl`, they never end.

    An entry ends its `ttl` after the last time that it was written, and not earlier than before if a late row writes
    it. In event time, the entry has ended for a row if the row's time, or the watermark of its partition when it was
    read if that was later, is past the end. So batches, restarts and the moment when an entry is really removed make no
    difference. In processing time, the moment when a batch is processed decides.
    """

    def __init__(self, ttl: Ttl | None, scope: RunningScope) -> None:
        self._ttl = ttl
        self._scope = scope
        self.lasting = ttl is None

    def stored(self, value: Any, before: Entry | None) -> Entry:
        """Returns an entry for the state. `before`: the entry that it replaces, which counts."""
        if self._ttl is None:
            return (value,)
        end = (self._scope.wall_ms if self._ttl.processing else self._scope.time_ms or 0) + self._ttl.time_ms
        if before is not None and before[1] is not None and before[1] > end:
            end = before[1]
        return (value, end)

    def visible(self, entry: Entry | None) -> Entry | None:
        """Returns an entry, or None if it has ended."""
        if entry is None or self._ttl is None or entry[1] is None:
            return entry
        scope = self._scope
        return None if (scope.wall_ms if self._ttl.processing else scope.reached_ms) > entry[1] else entry


_UNREAD: Final[Any] = object()
"""Stands for an entry of a map that has not been read."""


class ValueHandle(Value[Any]):
    """The values of a state `Value`."""

    def __init__(self, declared: DeclaredState, state: KeyedState[Any], scope: RunningScope) -> None:
        self._state = state
        self._scope = scope
        self._expiry = Expiry(declared.ttl, scope)
        self._lasting = declared.ttl is None
        self._read = reader_of(declared.type)
        self._convert = converter_of(declared.name, declared.type)
        self._default = None if declared.default is None else self._convert(declared.default)
        self._name = declared.name
        self._cached: dict[Key, Entry | None] = {}
        """The state's value for each key of the batch, with what was written."""
        self._put = self._cached.__setitem__
        self._written: dict[Key, None] = {}  # in the order of the rows, whatever hashes are
        self._touched = -1
        """The last row that wrote."""

    def load(self, keys: Collection[Key]) -> None:
        """Reads the values of all keys of a batch."""
        self._cached.update(zip(keys, self._state.get_many(keys), strict=True))

    def flush(self) -> int:
        """Writes what the batch has changed. Returns the number of entries."""
        written, cached = self._written, self._cached
        if written:
            new = {key: value for key in written if (value := cached[key]) is not None}
            if new:
                self._state.put_many(new, new.values())
            if len(new) < len(written):
                self._state.delete_many([key for key in written if cached[key] is None])
        count = len(written)
        written.clear()
        cached.clear()
        return count

    @override
    def get(self) -> Any:
        scope = self._scope
        if scope.thread != get_ident():
            scope.refuse()
        found = self._cached[scope.state_key]
        if not self._lasting:
            found = self._expiry.visible(found)
        value = self._default if found is None else found[0]
        return value if value is None or self._read is None else self._read(value)

    @override
    def set(self, value: Any) -> None:
        if value is not None:
            plain = self._convert(value)
            self._write((plain,) if self._lasting else self._renew(plain))
        elif self._default is None:
            self._write(None)
        else:
            raise TypeError(f"`{self._name}` has a default, and cannot be None: use `clear()`")

    @override
    def clear(self) -> None:
        self._write(None)

    @override
    def take(self) -> Any:
        found = self.get()
        self._write(None)
        return found

    def _renew(self, plain: Any) -> Entry:
        before = self._cached.get(self._scope.state_key)
        return self._expiry.stored(plain, self._expiry.visible(before))

    def _write(self, value: Entry | None) -> None:
        scope = self._scope
        if scope.thread != get_ident():
            scope.refuse()
        key, row = scope.state_key, scope.row
        cached = self._cached
        if self._touched != row:
            self._touched = row
            scope.undo.append((self._put, key, cached[key]))
            self._written[key] = None
        cached[key] = value


def row_of(key: Key) -> Row:
    """Returns the columns of a key."""
    return key if isinstance(key, tuple) else (key,)


class _MapEntries:
    """The entries of one key that a batch has used."""

    def __init__(self) -> None:
        self.known: dict[Any, Entry | None] = {}
        """Entries by their key, as the state has them or as they were written. None: there is none."""
        self.complete = False
        """Whether an entry that is not known does not exist."""

    def restore(self, key: Any, entry: Entry | None) -> None:
        """Puts an old entry back."""
        if entry is _UNREAD:
            del self.known[key]
            self.complete = False
        else:
            self.known[key] = entry


class MapHandle(Map[Any, Any]):
    """The entries of a state `Map`."""

    def __init__(self, declared: DeclaredState, state: KeyedState[Any], scope: RunningScope) -> None:
        assert declared.key_type is not None
        self._state = state
        self._scope = scope
        self._expiry = Expiry(declared.ttl, scope)
        self._read_key, self._read = reader_of(declared.key_type), reader_of(declared.type)
        self._convert = converter_of(declared.name, declared.type)
        self._convert_key = converter_of(f"key of {declared.name}", declared.key_type)
        self._name = declared.name
        self._maps: dict[Key, _MapEntries] = {}
        self._written: dict[Key, dict[Any, None]] = {}
        self._touched: set[Any] = set()
        """The keys of entries that the current row has written."""
        self._row = -1

    def load(self, keys: Collection[Key]) -> None:
        """Reads nothing: entries are read when they are used."""

    def flush(self) -> int:
        """Writes what the batch has changed. Returns the number of entries."""
        new: dict[Row, Entry] = {}
        gone: list[Row] = []
        for key, entries in self._written.items():
            row, known = row_of(key), self._maps[key].known
            for entry_key in entries:
                entry = known.get(entry_key, _UNREAD)
                if entry is None:
                    gone.append((*row, entry_key))
                elif entry is not _UNREAD:
                    new[(*row, entry_key)] = entry
        if new:
            self._state.put_many(new, new.values())
        if gone:
            self._state.delete_many(gone)
        self._maps.clear()
        self._written.clear()
        return len(new) + len(gone)

    @override
    def get(self, key: Any, default: Any = None) -> Any:
        found = self._find(self._key_of(key))
        return default if found is None else self._value_of(found)

    @override
    def set(self, key: Any, value: Any) -> None:
        entry_key = self._key_of(key)
        plain = None if value is None else self._convert(value)
        before = None if self._expiry.lasting else self._find(entry_key)
        self._write(entry_key, self._expiry.stored(plain, before))

    @override
    def delete(self, key: Any) -> None:
        self._write(self._key_of(key), None)

    @override
    def clear(self) -> None:
        for entry_key, _ in self._all():
            self._write(entry_key, None)

    @override
    def items(self) -> list[tuple[Any, Any]]:
        return [(self._user_key(key), self._value_of(entry)) for key, entry in self._all()]

    @override
    def keys(self) -> list[Any]:
        return [self._user_key(key) for key, _ in self._all()]

    @override
    def __len__(self) -> int:
        return len(self._all())

    @override
    def __contains__(self, key: object) -> bool:
        return self._find(self._key_of(key)) is not None

    @override
    def __getitem__(self, key: Any) -> Any:
        found = self._find(self._key_of(key))
        if found is None:
            raise KeyError(key)
        return self._value_of(found)

    @override
    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    @override
    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        self.delete(key)

    @override
    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def _key_of(self, key: Any) -> Any:
        if key is None:
            raise TypeError(f"the key of an entry of `{self._name}` is None: use another value")
        return self._convert_key(key)

    def _user_key(self, key: Any) -> Any:
        return key if self._read_key is None else self._read_key(key)

    def _value_of(self, entry: Entry) -> Any:
        return entry[0] if self._read is None or entry[0] is None else self._read(entry[0])

    def _entries(self) -> _MapEntries:
        self._scope.check()
        return self._maps.setdefault(self._scope.state_key, _MapEntries())

    def _find(self, entry_key: Any) -> Entry | None:
        """Returns an entry that has not ended."""
        entries = self._entries()
        found = entries.known.get(entry_key, _UNREAD)
        if found is _UNREAD:
            row = (*row_of(self._scope.state_key), entry_key)
            found = entries.known[entry_key] = None if entries.complete else self._state.get(row)
        return self._expiry.visible(found)

    def _all(self) -> list[tuple[Any, Entry]]:
        """Returns all entries that have not ended, in the order of their keys."""
        entries = self._entries()
        known = entries.known
        if not entries.complete:
            row = row_of(self._scope.state_key)
            (group,) = self._state.groups_of([row])
            for found, entry in self._state.scan(group, row):
                known.setdefault(found[-1], entry)
            entries.complete = True
        visible = ((key, self._expiry.visible(known[key])) for key in sorted(known))
        return [(key, entry) for key, entry in visible if entry is not None]

    def _write(self, entry_key: Any, entry: Entry | None) -> None:
        entries, scope = self._entries(), self._scope
        if self._row != scope.row:
            self._row = scope.row
            self._touched.clear()
        if entry_key not in self._touched:
            self._touched.add(entry_key)
            scope.undo.append((entries.restore, entry_key, entries.known.get(entry_key, _UNREAD)))
            self._written.setdefault(scope.state_key, {})[entry_key] = None
        entries.known[entry_key] = entry


class _Elements:
    """The list of one key, as far as a batch has used it."""

    def __init__(self, count: int) -> None:
        """`count`: the index after the last element in the state."""
        self.stored = count
        self.first_new = count
        """The index of the first element of `added`."""
        self.kept: list[Entry] | None = None
        """The elements before those in `added`. None: those of the state, which have not been read."""
        self.added: list[Entry] = []

    def state_of(self) -> tuple[Any, ...]:
        """Returns what `restore` needs."""
        return self.first_new, self.kept, self.added, len(self.added)

    def restore(self, before: tuple[Any, ...], _: object) -> None:
        """Puts an old list back."""
        self.first_new, self.kept, self.added, count = before
        del self.added[count:]


class ListHandle(List[Any]):
    """The elements of a state `List`. Each is an entry of the state, by its index."""

    def __init__(self, declared: DeclaredState, state: KeyedState[Any], scope: RunningScope) -> None:
        self._state = state
        self._scope = scope
        self._expiry = Expiry(declared.ttl, scope)
        self._read = reader_of(declared.type)
        self._convert = converter_of(declared.name, declared.type)
        self._name = declared.name
        self._lists: dict[Key, _Elements] = {}
        self._written: dict[Key, None] = {}
        self._row = -1

    def load(self, keys: Collection[Key]) -> None:
        """Reads nothing: lists are read when they are used."""

    def flush(self) -> int:
        """Writes what the batch has changed. Returns the number of entries."""
        new: dict[Row, Entry] = {}
        gone: list[Row] = []
        for key in self._written:
            row, elements = row_of(key), self._lists[key]
            new.update({(*row, elements.first_new + place): entry for place, entry in enumerate(elements.added)})
            if elements.first_new < elements.stored:  # it was cleared
                stored = (found for found, _ in self._scan(row))
                gone += [found for found in stored if found not in new]
        if new:
            self._state.put_many(new, new.values())
        if gone:
            self._state.delete_many(gone)
        self._lists.clear()
        self._written.clear()
        return len(new) + len(gone)

    @override
    def append(self, element: Any) -> None:
        plain = self._plain(element)
        self._begin_write().added.append(self._expiry.stored(plain, None))

    @override
    def extend(self, elements: Iterable[Any]) -> None:
        plain = [self._expiry.stored(self._plain(one), None) for one in elements]
        self._begin_write().added.extend(plain)

    @override
    def get(self) -> list[Any]:
        read = self._read
        values = [entry[0] for entry in self._visible(self._elements())]
        return values if read is None else [None if value is None else read(value) for value in values]

    @override
    def set(self, elements: Iterable[Any]) -> None:
        plain = [self._expiry.stored(self._plain(one), None) for one in elements]
        self._replace(plain)

    @override
    def clear(self) -> None:
        self._replace([])

    @override
    def __len__(self) -> int:
        elements = self._elements()
        if self._expiry.lasting:
            return elements.first_new + len(elements.added)
        return len(self._visible(elements))

    def _plain(self, element: Any) -> Any:
        return None if element is None else self._convert(element)

    def _replace(self, entries: list[Entry]) -> None:
        elements = self._begin_write()
        elements.first_new, elements.kept, elements.added = 0, [], entries

    def _begin_write(self) -> _Elements:
        """Returns the list of the current key, after adding it to the undo log."""
        elements, scope = self._elements(), self._scope
        if self._row != scope.row:
            self._row = scope.row
            scope.undo.append((elements.restore, elements.state_of(), None))
            self._written[scope.state_key] = None
        return elements

    def _elements(self) -> _Elements:
        self._scope.check()
        key = self._scope.state_key
        found = self._lists.get(key)
        if found is None:
            last = next(self._scan(row_of(key), backwards=True, limit=1), None)
            found = self._lists[key] = _Elements(0 if last is None else last[0][-1] + 1)
        return found

    def _visible(self, elements: _Elements) -> list[Entry]:
        if elements.kept is None:
            row = row_of(self._scope.state_key)
            elements.kept = [entry for _, entry in self._scan(row)] if elements.stored else []
        entries = [*elements.kept, *elements.added]
        return entries if self._expiry.lasting else [one for one in entries if self._expiry.visible(one) is not None]

    def _scan(self, row: Row, *, backwards: bool = False, limit: int | None = None) -> Iterator[tuple[Key, Entry]]:
        (group,) = self._state.groups_of([row])
        return self._state.scan(group, row, backwards=backwards, limit=limit)


StateHandle = ValueHandle | MapHandle | ListHandle


def open_handle(declared: DeclaredState, state: KeyedState[Any], scope: RunningScope) -> StateHandle:
    """Returns what gives a step access to one of its states."""
    if declared.form == "map":
        return MapHandle(declared, state, scope)
    if declared.form == "list":
        return ListHandle(declared, state, scope)
    return ValueHandle(declared, state, scope)
