"""A function of the user's as a target of calls. Imported only where operators run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from tidegate.operators.calls.user_code import load_function

if TYPE_CHECKING:
    import polars as pl


class FunctionTarget:
    """See Target. `reference` is `module:function`, or a class that is called like one, opened and closed."""

    def __init__(self, reference: str) -> None:
        """Raises UserCodeProblem."""
        found = load_function(reference)
        self._object: Any = found() if isinstance(found, type) else found
        self._has_life = isinstance(found, type)
        self._ask = cast("Callable[[object], Awaitable[object]]", self._object)

    async def open(self) -> None:
        """See Target."""
        if self._has_life and hasattr(self._object, "open"):
            await self._object.open()

    def ask(self, request: object) -> Awaitable[object]:
        """See Target."""
        return self._ask(request)

    async def close(self) -> None:
        """See Target."""
        if self._has_life and hasattr(self._object, "close"):
            await self._object.close()


def rows_of(names: Sequence[str]) -> Callable[[pl.DataFrame], Sequence[object]]:
    """Makes dicts of the rows, with these columns."""
    wanted = list(names)
    return lambda frame: frame.select(wanted).to_dicts()
