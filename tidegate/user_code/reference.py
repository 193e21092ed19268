"""References to user code in the pipeline file: `module:name`."""

from __future__ import annotations

from tidegate.config.fields.types import ValueCheck, refusal, require_text
from tidegate.user_code.modules import UserCodeProblem, split_reference


def reference_check(example: str) -> ValueCheck:
    """Returns the check of a setting that names user code. `example` is shown as a remedy and in the JSON Schema."""

    def check(value: object) -> str:
        text = require_text(value, "`module:name`", f"for instance {example}")
        try:
            split_reference(text)
        except UserCodeProblem as problem:
            raise refusal(problem.message, f"for instance {example}") from problem
        return text

    return ValueCheck(check, {"type": "string", "examples": [example]})
