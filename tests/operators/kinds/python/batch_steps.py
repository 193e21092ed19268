"""Steps on batches, which call what a test sets, and operators of them as a slot drives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import polars as pl

from tests.operators.driven import Collected
from tests.operators.kinds.python.running import COLUMNS
from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import DataType
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.ids import OperatorName
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.spec import Columns, Slot
from tidegate.python import Out, Step, Value
from tidegate.state.backends import choose_backend
from tidegate.user_code.describe import CodeDescription, DeclaredState, describe

_CALLED: list[Callable[..., Any]] = []


class Totals(Step):
    """With key."""

    total: Value[Any] = Value("bigint", default=0)

    def process_batch(self, keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        _CALLED[-1](self.total, keys, frame, out)


class Stateless(Step):
    """Without key."""

    def process_batch(self, frame: pl.DataFrame, out: Out) -> None:
        _CALLED[-1](frame, out)


def function(frame: pl.DataFrame) -> pl.DataFrame:
    """A function of frames."""
    found: pl.DataFrame = _CALLED[-1](frame)
    return found


class BatchStep:
    """A step that calls `call`: of the total, the keys, a frame and the output, or without key of the last two."""

    def __init__(
        self,
        call: Callable[..., Any],
        main: Columns = COLUMNS,
        *,
        others: dict[str, Columns] | None = None,
        same_rows: bool = False,
        keyed: bool = False,
        state: DeclaredState | None = None,
        backend: str = "memory",
        rows_max: int = 1 << 31,
        name: str = "",
    ) -> None:
        keyed = keyed or state is not None
        reference = f"{__name__}:{name or ('Totals' if keyed else 'Stateless')}"
        described = describe(reference, {})
        assert isinstance(described, CodeDescription), described
        if state is not None:
            described = msgspec.structs.replace(described, states=(state,))
        self.operator = PythonOperator(
            name=OperatorName("scored"),
            keys=("user",) if keyed else (),
            columns=COLUMNS,
            bad_records=BadRecordPolicy.SKIP,
            description=described,
            settings={},
            main=main,
            others=others or {},
            per_batch=True,
            same_rows=same_rows,
            timed=state is not None and state.ttl is not None and not state.ttl.processing,
        )
        self.out = Collected()
        self.now_ms = 0
        self.runtime: Any = self.operator.open(
            Slot(16, choose_backend(backend, 1), rows_max=rows_max, now_ms=lambda: self.now_ms)
        )
        self._call = call

    @property
    def state(self) -> Any:
        """Its only state."""
        (state,) = self.runtime.states.values()
        return state

    def process(self, batch: pl.DataFrame) -> pl.DataFrame:
        """What it emits of a batch."""
        _CALLED.append(self._call)
        try:
            self.runtime.process(0, batch, self.out)
        finally:
            _CALLED.pop()
        taken, self.out.batches = self.out.batches, []
        return pl.concat(taken) if taken else pl.DataFrame()

    def failures(self) -> list[tuple[int, str]]:
        """The rows that have failed since the last call, with the reasons."""
        taken, self.out.failures = self.out.failures, []
        assert {one.kind for one in taken} <= {FailureKind.PYTHON_FAILED}
        return [(one.row, one.message) for one in taken]


def declare(kind: DataType, default: Any = None, ttl: Ttl | None = None) -> DeclaredState:
    """A declaration of the state `total`."""
    return DeclaredState("total", "value", kind, default=default, ttl=ttl)
