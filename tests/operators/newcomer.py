"""Run in a process of its own, with kinds of operators that the product does not have: `sample` of `kinds/`, and copies
of it with a mistake each (`planted.py`). Prints what is said of each of them as JSON.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.operators.planted import ADDS_A_COLUMN_THAT_ARRIVES, MISTAKES, Mistake
from tidegate.config.errors import ConfigErrors
from tidegate.operators import kinds
from tidegate.operators.mistakes import OperatorMistake, check_specs, check_step_kinds
from tidegate.operators.spec import Operator
from tidegate.operators.step import StepKind

SAMPLE = Path(__file__).with_name("kinds") / "sample"


def plant(mistake: Mistake, folder: Path) -> None:
    """A copy of `sample` under another name. Raises ValueError for a mistake that changes nothing."""
    made = folder / mistake.word
    made.mkdir(parents=True)
    used: set[str] = set()
    for file in SAMPLE.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for old, new in mistake.changes:
            used |= {old} if old in text else set()
            text = text.replace(old, new)
        text = text.replace("tests.operators.kinds", kinds.__name__)
        (made / file.name).write_text(re.sub(r"\bsample\b", mistake.word, text), encoding="utf-8")
    if used != {old for old, _ in mistake.changes}:
        raise ValueError(f"{mistake.word} changes nothing")


def main(folder: Path) -> None:
    """`folder` is empty."""
    for mistake in (*MISTAKES, ADDS_A_COLUMN_THAT_ARRIVES, Mistake("sample", "", ())):
        plant(mistake, folder / ("unfit" if mistake.at_registration else "kinds"))
    kinds.__path__.append(str(folder / "kinds"))
    from tidegate.operators.registry import kind_modules, operator_union

    said = {}
    operators = operator_union().__args__
    found = {module.__name__: getattr(module, "KIND", None) for module in kind_modules()}
    kinds.__path__.append(str(folder / "unfit"))
    for mistake in (*MISTAKES, ADDS_A_COLUMN_THAT_ARRIVES):
        module = importlib.import_module(f"{kinds.__name__}.{mistake.word}")
        kind = getattr(module, "KIND", None)
        if mistake.at_registration:
            specs = [*operators, module.SampleOperator]
            said[mistake.word] = _attempt(partial(_register, specs, {**found, module.__name__: kind}))
        else:
            said[mistake.word] = _attempt(partial(_find, module.KIND))
    print(json.dumps({**said, **_say_of_sample()}))


def _register(specs: Sequence[type[Operator]], found: Mapping[str, StepKind | None]) -> str:
    check_specs(specs)
    check_step_kinds(found)
    return ""


def _say_of_sample() -> dict[str, str]:
    """What the product makes of the kind without a mistake."""
    from tests.operators.contract import load, plan_of
    from tidegate.config.reference import derive_json_schema, render_reference
    from tidegate.operators.registry import step_kinds
    from tidegate.plan.build import check_pipeline
    from tidegate.plan.explain import derive_explanation, render_explanation

    kind = next(one for one in step_kinds() if one.key == "sample")
    loaded = load(kind, kind.examples[0])
    explained = render_explanation(derive_explanation(loaded, plan_of(kind, kind.examples[0])))
    return {
        "sample": _attempt(lambda: _find(kind)),
        "in the reference": next(
            line for line in render_reference()["pipeline/steps.md"].splitlines() if line == "## Sample"
        ),
        "in the schema": "every" if '"every"' in json.dumps(derive_json_schema()) else "",
        "explained": next(line.strip() for line in explained.splitlines() if "sample every" in line),
        "warnings": "; ".join(str(one) for one in check_pipeline(loaded).warnings),
    }


def _attempt(call: Callable[[], str]) -> str:
    try:
        return call()
    except (OperatorMistake, ConfigErrors, TypeError) as mistake:
        return str(mistake)


def _find(kind: StepKind) -> str:
    from tests.operators.contract import find_breaches, plan_of, tried_of

    return "; ".join(
        f"operator `{spec.name}` ({type(spec).__name__}): {breach}"
        for example in kind.examples
        for spec, ports in tried_of(plan_of(kind, example))
        for breach in find_breaches(spec, ports)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
