"""`async`: calls a user's function for each row and adds the columns that it returns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field, create_model
from typing_extensions import override

from tidegate.config.fields.base import Path
from tidegate.operators.calls.spec import CallKind, CallOperator, CallSettings, derive_fields
from tidegate.operators.fingerprint import digest
from tidegate.operators.runtime import OperatorRuntime
from tidegate.operators.spec import Slot
from tidegate.operators.step import StepContext
from tidegate.user_code.describe import CodeDescription
from tidegate.user_code.modules import reference_check, split_reference

ASYNC: Final = "async"


_FUNCTION = Annotated[
    str | None,
    reference_check("lookup.geo:resolve"),
    Field(
        description="`module:function`: an `async def` that gets a row as a dict and returns a dict with the columns "
        "of `output`, or None for NULLs (`tidegate docs async`)."
    ),
]
_FIELDS: dict[str, Any] = {ASYNC: (_FUNCTION, None)}
AsyncSettings = create_model(
    "AsyncSettings", __base__=CallSettings, __doc__="The keys of an asynchronous step.", **_FIELDS
)
"""Created dynamically, since `async` is a Python keyword and cannot be the name of a declared attribute."""


class AsyncOperator(CallOperator, frozen=True, kw_only=True, tag="async"):
    """Calls a user's function with all columns that arrive."""

    code: CodeDescription

    @override
    def reads(self, port: int = 0) -> set[str]:
        """Returns all columns, since the function gets the whole row."""
        return {name for name, _ in self.input}

    @override
    def digest_answers(self, columns: Mapping[str, str]) -> dict[str, str]:
        row = [f"{name}={columns[name]}" for name, _ in sorted(self.input)]
        return {name: digest("async", self.code.reference, name, str(kind), *row) for name, kind in self.answers}

    @override
    def user_code(self) -> CodeDescription:
        return self.code

    @override
    def describes(self) -> list[str]:
        return [f"calls {self.code.reference}", *super().describes()]

    @override
    def open(self, slot: Slot) -> OperatorRuntime:
        from tidegate.operators.calls.function import DictDecoder, FunctionTarget, rows_of
        from tidegate.operators.calls.runtime import CallRuntime, open_caller

        decoder = DictDecoder(self.answers, self.kept_answers, self.code.reference)
        caller = open_caller(self, slot, FunctionTarget(self.code.reference))
        return CallRuntime(self, slot, caller, rows_of(self.input), decoder)


class AsyncKind(CallKind):
    """The kind of a step with `async`."""

    key = ASYNC
    examples = ("async: lookups:country, output: {country: string}",)
    needs: ClassVar[Mapping[str, str]] = {
        "output": "add the columns that the function answers: `output: {country: string}`"
    }
    settings = AsyncSettings

    @override
    def code(self, step: Any) -> Mapping[Path, str]:
        reference = getattr(step, ASYNC)
        return {} if reference is None else {(ASYNC,): reference}

    @override
    def build(self, step: Any, context: StepContext) -> None:
        fields, code = derive_fields(step, context), context.code((ASYNC,))
        if code is None or not _is_callable(code, context) or fields is None:
            return
        context.declare_columns(dict(fields["output"]))
        context.add(AsyncOperator(**fields, code=code))


def _is_callable(code: CodeDescription, context: StepContext) -> bool:
    """Tells whether calls can use it; if not, reports it."""
    name = split_reference(code.reference)[1]
    if code.is_step:
        context.problem((ASYNC,), f"`{name}` is a step", f"write `python: {code.reference}`")
    elif not code.is_async:
        remedy = f"write `async def {name}(row)`: a function that blocks would stop all calls"
        context.problem((ASYNC,), f"`{name}` is not async", remedy)
    elif code.takes_settings:
        context.problem((ASYNC,), f"`{name}` needs two arguments", "it gets one argument, the row as a dict")
    else:
        return True
    return False


KIND = AsyncKind()
