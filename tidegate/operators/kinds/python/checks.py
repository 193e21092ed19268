"""What does not go together in a step in Python: its keys in the file, and what its code declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidegate.config.fields.base import Path
from tidegate.operators.kinds.python.settings import BATCH, SAME
from tidegate.operators.spec import DEAD, LATE
from tidegate.user_code.describe import CodeDescription

RESERVED: Final = frozenset({DEAD, LATE})
"""Names of outputs that Tidegate itself uses."""
_CODE: Final[Path] = ("python",)

Problem = tuple[Path, str, str]
"""Place in the step, message, remedy."""


def find_problems(step: Any, description: CodeDescription) -> Iterator[Problem]:
    """Yields the problems of a step whose code can be imported."""
    name = step.python.partition(":")[2]
    if description.is_async:
        yield _CODE, f"`{name}` is async", "a step with `async: ...` calls it, or write `def` without `async`"
    elif description.is_class and not description.is_step:
        yield _CODE, f"the class `{name}` is no step", "derive it from `tidegate.python.Step`"
    else:
        yield from _find_key_problems(name, step, description)
        yield from _find_output_problems(name, step, description)
        yield from _find_settings_problems(name, step, description)
        yield from (_find_batch_problems if step.per == BATCH else _find_row_problems)(name, step, description)


def _find_key_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    kept = [*(one.name for one in description.states), *(one.name for one in description.timers)]
    if kept and step.key is None:
        yield _CODE, f"`{name}` declares `{kept[0]}`, and the step has no key", "add `key`: state belongs to a key"
    if step.pure and step.key is not None:
        yield ("pure",), "a step with `key` depends on more than its row", "remove it, or `key`"


def _find_output_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    for output in step.outputs:
        if output in RESERVED:
            yield ("outputs", output), f"`{output}` is an output of Tidegate's own", "choose another name"
    if step.outputs and not description.is_class:
        remedy = "write a class derived from `tidegate.python.Step`, which emits to it with `out.to(...)`"
        yield ("outputs",), f"the function `{name}` has one output only: what it returns", remedy


def _find_settings_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    if not getattr(step, "with"):
        return
    if not description.is_class and not description.takes_settings:
        argument = "frame" if step.per == BATCH else "row"
        remedy = f"write `def {name}({argument}, settings)`, or remove `with`"
        yield ("with",), f"the function `{name}` takes no settings", remedy
    if description.is_class and "open" not in description.methods:
        remedy = "define `def open(self, settings)`, or remove `with`"
        yield ("with",), f"the class `{name}` has no `open`, which gets these settings", remedy


def _find_row_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    if step.rows == SAME:
        yield ("rows",), "is for `per: batch`: a row may emit any number of rows", "remove it"
    elif step.rows is not None:
        yield ("rows",), f"`{step.rows}` is for `join`", "remove it"
    if description.is_class and "process" not in description.methods:
        remedy = "define `def process(self, row, out)`, or add `per: batch` for its `process_batch`"
        yield _CODE, f"the class `{name}` has no `process`", remedy


def _find_batch_problems(name: str, step: Any, description: CodeDescription) -> Iterator[Problem]:
    if step.rows not in (None, SAME):
        yield ("rows",), f"`{step.rows}` is for `join`", "write `rows: same`, or remove it"
    for state in description.states:
        if state.form != "value":
            message = f"`{state.name}` of `{name}` is a {state.form.capitalize()}, and batches only have a Value"
            yield ("per",), message, "use Value, for instance of an array, or remove `per: batch`"
    for timer in description.timers:
        message = f"`{timer.name}` of `{name}` is a Timer, and batches have none"
        yield ("per",), message, "remove `per: batch`: timers are set for a row and its key"
    if not description.is_class:
        return
    wanted = "self, frame, out" if step.key is None else "self, keys, frame, out"
    if "process_batch" not in description.methods:
        remedy = f"define `def process_batch({wanted})`, or remove `per: batch`, which calls `process` for each row"
        yield ("per",), f"the class `{name}` has no `process_batch`", remedy
    elif description.takes_keys != (step.key is not None):
        missing = (
            "gets the keys of the batch, and the step has no key" if step.key is None else "does not take the keys"
        )
        yield _CODE, f"`process_batch` of `{name}` {missing}", f"write `def process_batch({wanted})`"
