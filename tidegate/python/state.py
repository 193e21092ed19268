"""Declarations of state and timers. In a step that runs, the same attributes are those of the current key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Never, NoReturn, TypeVar, overload

if TYPE_CHECKING:
    import polars

T = TypeVar("T")
K = TypeVar("K")

Integer = Literal["tinyint", "smallint", "int", "bigint"]
Real = Literal["float", "double"]
Instant = Literal["timestamp", "timestamp_ntz"]
Lasts = str | Mapping[str, str] | None
"""`"30d"`, in event time, or `{"processing_time": "30d"}`: how long after its last write an entry is gone."""


def _refuse_use(*_: object) -> NoReturn:
    raise RuntimeError(
        "state and timers belong to a key: declare them in the class, not in `__init__`, and use them in `process` "
        "or `on_timer`, as attributes of `self`"
    )


class Declaration:
    """What a step declares as an attribute. Assigning to that attribute would replace it for all keys."""

    _attribute: str = ""

    def __set_name__(self, step: type, name: str) -> None:
        """Remembers the name of the attribute."""
        self._attribute = name

    def __set__(self, step: object, value: Never) -> NoReturn:
        """Refuses `self.clicks = 5`."""
        name = self._attribute
        raise AttributeError(f"`{name}` is declared by the step, and cannot be replaced: write `self.{name}.set(...)`")


class Value(Declaration, Generic[T]):
    """One value for each key: `clicks = Value("bigint", default=0)`.

    `kind` is a type of the pipeline file. `default` is what `get` returns for a key without a value.
    """

    form: ClassVar[str] = "value"

    @overload
    def __init__(self: Value[int], kind: Integer, *, default: int, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[int | None], kind: Integer, *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[float], kind: Real, *, default: float, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[float | None], kind: Real, *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[str], kind: Literal["string"], *, default: str, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[str | None], kind: Literal["string"], *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[bool], kind: Literal["boolean"], *, default: bool, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[bool | None], kind: Literal["boolean"], *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[datetime | None], kind: Instant, *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[date | None], kind: Literal["date"], *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[bytes | None], kind: Literal["binary"], *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Value[Any], kind: str, *, default: Any = None, ttl: Lasts = None) -> None: ...
    def __init__(self, kind: str, *, default: Any = None, ttl: Lasts = None) -> None:
        self.type = kind
        self.default = default
        self.ttl = ttl

    def get(self) -> T:
        """Returns the value of the current key, or the default. A list, dict or struct is a copy."""
        _refuse_use()

    def set(self, value: T) -> None:
        """Sets the value of the current key. None without a default is the same as `clear`."""
        _refuse_use(value)

    def clear(self) -> None:
        """Removes the value of the current key."""
        _refuse_use()

    def take(self) -> T:
        """Returns the value of the current key, or the default, and removes it."""
        _refuse_use()

    def get_many(self, keys: polars.DataFrame) -> polars.Series:
        """Returns the value of the key of each row, in `process_batch`; the default where there is none.

        `keys` has the key columns: the keys of the batch, some of them, or its rows.
        """
        _refuse_use(keys)

    def set_many(self, keys: polars.DataFrame, values: polars.Series) -> None:
        """Sets the value of the key of each row, in `process_batch`. NULL removes a value.

        Of rows with the same key, the last one counts.
        """
        _refuse_use(keys, values)

    def clear_many(self, keys: polars.DataFrame) -> None:
        """Removes the value of the key of each row, in `process_batch`."""
        _refuse_use(keys)


class List(Declaration, Generic[T]):
    """A list for each key: `recent = List("string")`. `kind` is the type of its elements."""

    form: ClassVar[str] = "list"

    @overload
    def __init__(self: List[int], kind: Integer, *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: List[float], kind: Real, *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: List[str], kind: Literal["string"], *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: List[datetime], kind: Instant, *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: List[Any], kind: str, *, ttl: Lasts = None) -> None: ...
    def __init__(self, kind: str, *, ttl: Lasts = None) -> None:
        self.type = kind
        self.ttl = ttl

    def append(self, element: T) -> None:
        """Adds an element at the end."""
        _refuse_use(element)

    def extend(self, elements: Iterable[T]) -> None:
        """Adds elements at the end."""
        _refuse_use(elements)

    def get(self) -> list[T]:
        """Returns a copy of the list of the current key; empty if it has none."""
        _refuse_use()

    def set(self, elements: Iterable[T]) -> None:
        """Replaces the list of the current key."""
        _refuse_use(elements)

    def clear(self) -> None:
        """Removes the list of the current key."""
        _refuse_use()

    def __len__(self) -> int:  # noqa: PLE0303  # it raises
        """Returns the number of elements of the current key."""
        _refuse_use()


class Map(Declaration, Generic[K, T]):
    """A map for each key: `pages = Map("string", "timestamp")`. Each of its entries is stored for itself.

    Annotate it for a type checker: `pages: Map[str, datetime] = Map("string", "timestamp")`.
    """

    form: ClassVar[str] = "map"

    @overload
    def __init__(self: Map[str, int], key_type: Literal["string"], kind: Integer, *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(self: Map[str, float], key_type: Literal["string"], kind: Real, *, ttl: Lasts = None) -> None: ...
    @overload
    def __init__(
        self: Map[str, str], key_type: Literal["string"], kind: Literal["string"], *, ttl: Lasts = None
    ) -> None: ...
    @overload
    def __init__(
        self: Map[str, bool], key_type: Literal["string"], kind: Literal["boolean"], *, ttl: Lasts = None
    ) -> None: ...
    @overload
    def __init__(
        self: Map[str, datetime], key_type: Literal["string"], kind: Instant, *, ttl: Lasts = None
    ) -> None: ...
    @overload
    def __init__(self: Map[Any, Any], key_type: str, kind: str, *, ttl: Lasts = None) -> None: ...
    def __init__(self, key_type: str, kind: str, *, ttl: Lasts = None) -> None:
        self.key_type = key_type
        self.type = kind
        self.ttl = ttl

    @overload
    def get(self, key: K) -> T | None: ...
    @overload
    def get(self, key: K, default: T) -> T: ...
    def get(self, key: K, default: T | None = None) -> T | None:
        """Returns the value of an entry, or the default if there is no such entry."""
        _refuse_use(key, default)

    def set(self, key: K, value: T) -> None:
        """Sets the value of an entry."""
        _refuse_use(key, value)

    def delete(self, key: K) -> None:
        """Removes an entry if it exists."""
        _refuse_use(key)

    def clear(self) -> None:
        """Removes all entries of the current key."""
        _refuse_use()

    def items(self) -> list[tuple[K, T]]:
        """Returns all entries of the current key, in the order of their keys."""
        _refuse_use()

    def keys(self) -> list[K]:
        """Returns the keys of all entries, in their order."""
        _refuse_use()

    def __len__(self) -> int:  # noqa: PLE0303  # it raises
        """Returns the number of entries of the current key."""
        _refuse_use()

    def __contains__(self, key: object) -> bool:
        """Returns True if there is such an entry."""
        _refuse_use(key)

    def __getitem__(self, key: K) -> T:
        """Returns the value of an entry. Raises KeyError."""
        _refuse_use(key)

    def __setitem__(self, key: K, value: T) -> None:
        """Sets the value of an entry."""
        _refuse_use(key, value)

    def __delitem__(self, key: K) -> None:
        """Removes an entry. Raises KeyError."""
        _refuse_use(key)

    def __iter__(self) -> Iterator[K]:
        """Iterates over the keys of all entries, in their order."""
        _refuse_use()


class Timer(Declaration):
    """A timer for each key: `quiet = Timer("event-time")`, or `Timer("clock")` for the slot's clock.

    When it is due, `on_timer` is called with the name of this attribute. A key has one timer of each name. An
    event-time timer is due when the watermark reaches it, because rows with earlier event times may arrive until then.
    So a row with a later event time may be processed before it: `get` tells when the timer is due.
    """

    form: ClassVar[str] = "timer"

    def __init__(self, clock: Literal["event-time", "clock"]) -> None:
        self.clock = clock

    def set(self, at: datetime) -> None:
        """Sets the timer of the current key, or moves it. A time that has passed is due at once."""
        _refuse_use(at)

    def clear(self) -> None:
        """Removes the timer of the current key."""
        _refuse_use()

    def get(self) -> datetime | None:
        """Returns when the timer of the current key is due; None if it is not set."""
        _refuse_use()
