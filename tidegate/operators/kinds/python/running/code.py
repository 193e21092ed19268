"""Loads a step's code in a slot, and closes it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, Final

from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.kinds.python.running.scope import RunningScope
from tidegate.python import Settings, Step
from tidegate.python.step import bind
from tidegate.user_code.failure import StepFailed, describe_failure
from tidegate.user_code.modules import UserCodeProblem, load
from tidegate.user_code.running import RUNNING

logger = logging.getLogger(__name__)

CLOSE_S: Final = 10.0
"""How long `close` of a step may take."""


def open_code(operator: PythonOperator, scope: RunningScope, handles: Mapping[str, object], settings: Settings) -> Any:
    """Returns the user's function, or a step that has been opened, whose declarations are `handles`.

    Raises StepFailed, and UserCodeProblem if it cannot be imported.
    """
    RUNNING.enter(operator.name)
    try:
        found: Any = load(operator.reference)
        if not operator.description.is_class:
            return found
        step = found()
        bind(step, scope, handles)
        step.open(settings)
    except (KeyboardInterrupt, UserCodeProblem):
        raise
    except BaseException as error:
        failure = describe_failure(error)
        raise StepFailed(f"step {operator.name}: {operator.reference} cannot be opened: {failure}") from error
    finally:
        RUNNING.leave()
    return step


def close_code(operator: PythonOperator, code: Any) -> None:
    """Calls `close` of a step that has it, and waits for it for a bounded time."""
    if not (isinstance(code, Step) and "close" in operator.description.methods):
        return
    name = operator.name

    def run() -> None:
        try:
            code.close()
        except BaseException as error:  # noqa: BLE001  # of the user's code: the attempt ends anyway
            logger.warning("`close` of step %s has failed: %s", name, describe_failure(error))

    thread = threading.Thread(target=run, name=f"close of {name}", daemon=True)
    thread.start()
    thread.join(CLOSE_S)
    if thread.is_alive():
        logger.warning("`close` of step %s has not ended after %g s, and is left behind", name, CLOSE_S)
