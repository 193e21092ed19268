"""A cache of answers by URL, bounded in time and size. Pure: the time is an argument."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

BYTES_MAX: Final = 32 << 20
"""The maximum size of one subtask's answers with their URLs."""
OVERHEAD_BYTES: Final = 300


class AnswerCache:
    """A cache that evicts the oldest answers when it is full. It keeps nothing if `lifetime_s` is 0."""

    def __init__(self, lifetime_s: float, bytes_max: int = BYTES_MAX) -> None:
        self._lifetime_s = lifetime_s
        self._bytes_max = self._room = bytes_max
        self._entries: OrderedDict[str, tuple[float, bytes | None]] = OrderedDict()

    def __len__(self) -> int:
        """Returns the number of cached answers, including expired ones."""
        return len(self._entries)

    @property
    def keeps(self) -> bool:
        """True if it keeps anything at all."""
        return self._lifetime_s > 0

    def find(self, url: str, now_s: float) -> tuple[bytes | None] | None:
        """Returns the answer, wrapped because it may be None; None if there is no answer or it has expired."""
        found = self._entries.get(url)
        if found is None:
            return None
        if found[0] <= now_s:
            self._forget(url)
            return None
        return (found[1],)

    def put(self, url: str, answer: bytes | None, now_s: float) -> None:
        """Caches an answer from now on, unless it is larger than the cache."""
        size = _size(url, answer)
        if not self.keeps or size > self._bytes_max:
            return
        if url in self._entries:
            self._forget(url)
        while size > self._room:
            self._forget(next(iter(self._entries)))
        self._entries[url] = (now_s + self._lifetime_s, answer)
        self._room -= size

    def _forget(self, url: str) -> None:
        _, answer = self._entries.pop(url)
        self._room += _size(url, answer)


def _size(url: str, answer: bytes | None) -> int:
    return OVERHEAD_BYTES + len(url) + (0 if answer is None else len(answer))
